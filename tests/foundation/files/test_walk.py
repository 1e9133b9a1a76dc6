"""A walk yields entries in path order and stays below its top directory."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.capabilities.sandbox.search.grep import Query
from armarium.foundation.concurrency.cancellation import Cancellation, Stopped
from armarium.foundation.files import walk as walk_module
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.ignore import GitIgnores, IgnoreRules
from armarium.foundation.files.walk import Bounds, Everything, Walk, Watch
from support.file_search import (
    CountingCancellation,
    StoppingCancellation,
    bounds,
    globbed,
    grepped,
    lines,
    opened,
    paths,
    plant,
)

NAMES = st.sampled_from(["a", "a.b", "a-b", "a0", "b", "A", "é", "~", " ", "a b", "\U0001f600", "z\udce9"])
TREES = st.recursive(
    st.just(None), lambda children: st.dictionaries(NAMES, children, min_size=1, max_size=5), max_leaves=20
)


def make_tree(directory: bytes, tree: dict[str, object] | None) -> None:
    for name, below in (tree or {}).items():
        path = os.path.join(directory, os.fsencode(name))
        if below is None:
            open(path, "wb").close()
        else:
            os.mkdir(path)
            make_tree(path, below)  # type: ignore[arg-type]


def flattened(tree: dict[str, object] | None, prefix: str = "") -> list[str]:
    found: list[str] = []
    for name, below in (tree or {}).items():
        found.append(prefix + name)
        if below is not None:
            found += flattened(below, f"{prefix}{name}/")  # type: ignore[arg-type]
    return found


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_entries_come_in_the_plain_string_order_of_their_paths(tree: dict[str, object] | None) -> None:
    with tempfile.TemporaryDirectory() as base:
        make_tree(os.fsencode(base), tree)
        assert paths(globbed(Path(base), "**")) == sorted(flattened(tree))


def test_the_same_tree_gives_the_same_answer_every_time(tmp_path: Path) -> None:
    plant(tmp_path, {f"d{i % 7}/f{i}": b"x\n" for i in range(100)})
    first = globbed(tmp_path, "**", max_results=40)
    assert first.truncated
    assert all(globbed(tmp_path, "**", max_results=40) == first for _ in range(3))
    assert paths(first) == paths(globbed(tmp_path, "**"))[:40]


def test_links_are_seen_and_never_followed(tmp_path: Path) -> None:
    outside = plant(tmp_path / "outside", {"secret.txt": b"needle outside\n", "sub/more.txt": b"needle\n"})
    root = plant(tmp_path / "root", {"real/file.txt": b"needle inside\n"})
    (root / "out-directory").symlink_to(outside)
    (root / "out-file").symlink_to(outside / "secret.txt")
    (root / "in-directory").symlink_to("real")
    (root / "in-file").symlink_to("real/file.txt")
    (root / "dangling").symlink_to("nowhere")
    found = globbed(root, "**")
    assert paths(found) == ["dangling", "in-directory", "in-file", "out-directory", "out-file", "real", "real/file.txt"]
    assert [entry.type for entry in found.matches] == ["symlink"] * 5 + ["directory", "file"]
    assert paths(globbed(root, "out-directory/*")) == []
    assert lines(grepped(root, "needle")) == [("real/file.txt", 1, "needle inside")]


def test_special_files_are_named_but_never_opened(tmp_path: Path) -> None:
    plant(tmp_path, {"a.txt": b"needle\n"})
    os.mkfifo(tmp_path / "fifo")
    assert [(found.path, found.type) for found in globbed(tmp_path, "*").matches] == [
        ("a.txt", "file"),
        ("fifo", "other"),
    ]
    assert paths(globbed(tmp_path, "*", type_filter="file")) == ["a.txt"]
    # A writer would hang here, and so would a reader, if the FIFO were opened as a file is.
    assert lines(grepped(tmp_path, "needle")) == [("a.txt", 1, "needle")]


def test_depth_one_is_the_directory_itself(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"x\n", "d/b": b"x\n", "d/e/c": b"x\n"})
    assert paths(globbed(tmp_path, "**", limits=bounds(max_depth=1))) == ["a", "d"]
    assert paths(globbed(tmp_path, "**", limits=bounds(max_depth=2))) == ["a", "d", "d/b", "d/e"]
    assert [file for file, _, _ in lines(grepped(tmp_path, "x", limits=bounds(max_depth=2)))] == ["a", "d/b"]


def test_paths_are_shown_below_the_prefix(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"x\n", "d/b": b"x\n"})
    assert paths(globbed(tmp_path, "**", prefix="src/app")) == ["src/app/a", "src/app/d", "src/app/d/b"]
    assert [file for file, _, _ in lines(grepped(tmp_path, "x", prefix="src/app"))] == ["src/app/a", "src/app/d/b"]


def test_a_directory_that_vanishes_meanwhile_is_left_out(tmp_path: Path) -> None:
    plant(tmp_path, {"a/x": b"", "b/x": b"", "c/x": b""})
    with opened(tmp_path) as fd:
        walk = Walk(fd, "", Everything(), "file", bounds(), Watch(time.monotonic() + 60, Cancellation()))
        with closing(walk.runs()) as runs:
            assert next(runs).directory == "a/"
            shutil.rmtree(tmp_path / "b")
            assert [run.directory for run in runs] == ["c/"]


def test_a_deep_tree_takes_few_descriptors(tmp_path: Path) -> None:
    depth = 500
    fd = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(os.open("z.txt", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)
        fd = below
    os.close(fd)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, hard))
    try:
        found = globbed(tmp_path, "**/z.txt")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert paths(found) == sorted("d/" * level + "z.txt" for level in range(depth))


def test_a_directory_that_was_set_aside_is_left_out_when_it_is_not_the_same_any_more(tmp_path: Path) -> None:
    # So deep that the directories at the top are closed while the walk is at the bottom.
    deepest = "a/b/" + "c/" * 80
    plant(tmp_path, {f"{deepest}x": b"", "a/b/z": b"", "a/z": b"", "z": b""})
    plant(tmp_path, {"other/b/z": b""})
    with opened(tmp_path) as fd:
        walk = Walk(fd, "", Everything(), "file", bounds(), Watch(time.monotonic() + 60, Cancellation()))
        with closing(walk.runs()) as runs:
            assert next(runs).directory == deepest
            os.rename(tmp_path / "a/b", tmp_path / "moved")
            os.rename(tmp_path / "other/b", tmp_path / "a/b")
            assert [(run.directory, run.names) for run in runs] == [("a/", ["z"]), ("", ["z"])]


SWAP = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
root = os.open(sys.argv[1], os.O_PATH | os.O_DIRECTORY)
print("swapping", flush=True)
while os.path.exists(sys.argv[2]):
    for _ in range(100):
        libc.renameat2(root, b"dir", root, b"link", 2)
"""


@contextmanager
def swapping(root: Path, running: Path) -> Iterator[None]:
    """Exchange `dir` and `link` again and again while the block runs."""
    running.touch()
    command = [sys.executable, "-c", SWAP, str(root), str(running)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attacker:
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == "swapping\n"
            yield
        finally:
            running.unlink()
            attacker.wait(timeout=30)


def test_a_directory_swapped_for_a_link_to_the_outside_never_gives_outside_content(tmp_path: Path) -> None:
    outside = plant(tmp_path / "outside", {"sub/secret.txt": b"needle outside\n", "outside-only": b"needle outside\n"})
    root = plant(tmp_path / "root", {"dir/sub/file.txt": b"needle inside\n", "x.txt": b"needle inside\n"})
    (root / "link").symlink_to(outside)
    seen: set[str] = set()
    with swapping(root, tmp_path / "running"):
        for _ in range(1000):
            hits = grepped(root, "needle").matches
            assert all(hit.line_content == "needle inside" for hit in hits)
            names = paths(globbed(root, "**"))
            assert not any("secret" in name or "outside" in name for name in names)
            seen |= set(names)
    assert {"dir/sub/file.txt", "link/sub/file.txt"} <= seen, "the swap was never seen from both sides"


class TickingClock:
    """A clock that goes on by a second each time somebody looks at it."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 1
        return self.now


def test_a_search_past_its_deadline_returns_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, {f"d{i:03}/f": b"needle\n" for i in range(300)})
    monkeypatch.setattr(walk_module, "time", TickingClock())
    found = globbed(tmp_path, "**/f", limits=Bounds(100.0))
    assert found.timed_out
    assert not found.truncated
    assert paths(found) == [f"d{i:03}/f" for i in range(len(found.matches))]
    assert 0 < len(found.matches) < 300
    monkeypatch.setattr(walk_module, "time", TickingClock())
    hits = grepped(tmp_path, "needle", limits=Bounds(100.0))
    assert hits.timed_out
    assert 0 < len(hits.matches) < 300


def test_a_deadline_in_the_past_ends_a_search_at_once(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"needle\n", "b/c": b"needle\n"})
    assert globbed(tmp_path, "**", limits=Bounds(0.0)).timed_out
    assert grepped(tmp_path, "needle", limits=Bounds(0.0)).timed_out


@pytest.mark.parametrize("beats", [1, 2, 3, 10, 40])
def test_a_cancelled_search_ends_and_closes_what_it_opened(tmp_path: Path, beats: int) -> None:
    plant(tmp_path, {f"d{i:03}/e/f": b"needle\n" * 10 for i in range(50)})
    with pytest.raises(Stopped):
        globbed(tmp_path, "**", cancellation=StoppingCancellation(beats))
    with pytest.raises(Stopped):
        grepped(tmp_path, Query("needle", buffer_bytes=64), cancellation=StoppingCancellation(beats))


def test_progress_counts_the_entries_seen(tmp_path: Path) -> None:
    plant(tmp_path, {f"d{i}/f{j}": b"" for i in range(5) for j in range(9)})
    cancellation = CountingCancellation()
    globbed(tmp_path, "**", cancellation=cancellation)
    assert cancellation.done >= 5 + 4 * 9


def test_the_ignore_list_hides_entries_and_everything_below_them(tmp_path: Path) -> None:
    plant(tmp_path, {"keep/a.pem": b"x\n", "keep/b.txt": b"x\n", "secret/c.txt": b"x\n", "keep/ok.pem": b"x\n"})
    rules = IgnoreRules.from_lines(["*.pem", "!ok.pem", "secret/"])
    assert paths(globbed(tmp_path, "**", limits=bounds(ignore=rules))) == ["keep", "keep/b.txt", "keep/ok.pem"]
    assert [file for file, _, _ in lines(grepped(tmp_path, "x", limits=bounds(ignore=rules)))] == [
        "keep/b.txt",
        "keep/ok.pem",
    ]


def test_the_ignore_list_speaks_about_where_the_directory_really_is(tmp_path: Path) -> None:
    plant(tmp_path, {"a.txt": b"", "b.txt": b""})
    limits = Bounds(time.monotonic() + 60, ignore=IgnoreRules.from_lines(["/real/a.txt"]), located="real")
    assert paths(globbed(tmp_path, "*", prefix="shown", limits=limits)) == ["shown/b.txt"]
    assert paths(globbed(tmp_path, "*", prefix="shown")) == ["shown/a.txt", "shown/b.txt"]


@pytest.mark.parametrize(
    ("path", "is_directory", "hidden"),
    [
        ("a.pem", False, True),
        ("x/y/a.pem", False, True),
        ("with\nnewline/a.pem", False, True),
        ("caf\udce9/a.pem", False, True),
        ("é/ü.pem", False, True),
        ("ok.pem", False, False),
        ("secret", False, False),
        ("secret", True, True),
        ("secret/deep/file", False, True),
        ("secret/ok.pem", False, True),
        ("build/out", False, True),
        ("x/build", True, False),
        ("", True, False),
    ],
)
def test_ignore_rules_are_those_of_a_gitignore_at_the_root(path: str, is_directory: bool, hidden: bool) -> None:
    rules = IgnoreRules.from_lines(["# comment", "*.pem", "!ok.pem", "secret/", "/build"])
    assert rules.hides(path, is_directory) is hidden
    assert rules.hides(path, is_directory) is hidden, "and the second time, from memory"


@pytest.mark.parametrize("pattern", ["[z-a]", "!", "foo\\"])
def test_an_ignore_pattern_that_cannot_be_read_is_named(pattern: str) -> None:
    with pytest.raises(InvalidPattern) as caught:
        IgnoreRules.from_lines(["*.ok", pattern])
    assert pattern in caught.value.message


def test_thousands_of_ignore_patterns_work_and_the_last_word_counts() -> None:
    rules = IgnoreRules.from_lines([f"*a*b{number}*c" for number in range(3000)] + ["!a-b7-c"])
    assert rules.hides("x/a-b2999-c", False)
    assert rules.hides("a-b0-c", False)
    assert not rules.hides("a-b7-c", False)
    assert not rules.hides("a-b-c", False)


GITIGNORED = {
    ".gitignore": b"*.log\nbuild/\n/only-top\n[z-a]\n!important.log\ndocs/**/tmp\n",
    ".git/config": b"needle\n",
    "a.log": b"needle\n",
    "a.txt": b"needle\n",
    "important.log": b"needle\n",
    "only-top": b"needle\n",
    "sub/only-top": b"needle\n",
    "sub/.gitignore": b"*.txt\n!b.log\n",
    "sub/b.log": b"needle\n",
    "sub/c.txt": b"needle\n",
    "sub/build/x": b"needle\n",
    "sub/deeper/d.txt": b"needle\n",
    "build": b"needle\n",
    "docs/x/y/tmp/f": b"needle\n",
    "docs/x/f": b"needle\n",
    "nested/build/.gitignore": b"!*\n",
    "nested/build/x": b"needle\n",
}


def test_what_git_leaves_out_is_left_out_if_wanted(tmp_path: Path) -> None:
    plant(tmp_path, GITIGNORED)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/.gitignore").symlink_to("../sub/.gitignore")
    plant(tmp_path, {"linked/e.txt": b"needle\n"})
    shutil.rmtree(tmp_path / ".git")
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    listing = ["git", "-C", str(tmp_path), "ls-files", "-z", "--others", "--exclude-standard"]
    shown = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split("\0")[:-1]
    wanted = globbed(tmp_path, "**", limits=bounds(gitignores=GitIgnores()))
    assert [found.path for found in wanted.matches if found.type != "directory"] == sorted(shown)
    everything = paths(globbed(tmp_path, "**"))
    assert {"a.log", ".git/config", "sub/build/x"} <= set(everything)


def test_the_gitignores_above_the_searched_directory_count_too(tmp_path: Path) -> None:
    plant(tmp_path, GITIGNORED)
    with opened(tmp_path) as root_fd:
        above = GitIgnores.above(root_fd, "sub/deeper")
        assert [directory for directory, _ in above.scopes] == ["", "sub/"]
        assert GitIgnores.above(root_fd, "sub/missing/x").scopes[-1][0] == "sub/"
        assert GitIgnores.above(root_fd, "").scopes == ()
    limits = Bounds(time.monotonic() + 60, gitignores=above)
    assert paths(globbed(tmp_path / "sub/deeper", "**", prefix="sub/deeper", limits=limits)) == []
    assert paths(globbed(tmp_path / "sub/deeper", "**", prefix="sub/deeper")) == ["sub/deeper/d.txt"]


def test_a_hostile_gitignore_does_not_hold_up_a_walk(tmp_path: Path) -> None:
    plant(tmp_path, {".gitignore": b"*a" * 2000 + b"b\n", "a" * 250: b"", "keep": b""})
    started = time.monotonic()
    assert len(paths(globbed(tmp_path, "**", limits=bounds(gitignores=GitIgnores())))) == 3
    assert time.monotonic() - started < 10
