"""Discovery finds every file that belongs to the corpus, once and in order, even if the tree changes meanwhile."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.capabilities.corpus.files.discover import DiscoveryRules, discover, rediscover
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.foundation.concurrency.cancellation import Cancellation, Stopped
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.names import escape_name, unescape_name
from support.descriptors import none_left_open


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def plant(top: Path, *paths: str) -> None:
    for path in paths:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(path)


def found_in(
    top: Path, *, gitignore: bool = True, follow_symlinks: bool = False, excludes: tuple[str, ...] = ()
) -> list[str]:
    rules = DiscoveryRules(Exclusion(excludes), gitignore, follow_symlinks)
    with ConfinedRoot(str(top)) as root:
        return [found.rel_path for found in discover(root, rules, Cancellation())]


def test_files_come_in_the_order_of_their_paths_with_size_and_time(top: Path) -> None:
    plant(top, "b.md", "a/z.md", "a.md", "a-b/c.md")
    os.utime(top / "b.md", ns=(0, 1_700_000_000_123_456_789))
    with ConfinedRoot(str(top)) as root:
        found = list(discover(root, DiscoveryRules(Exclusion()), Cancellation()))
    assert [each.rel_path for each in found] == ["a-b/c.md", "a.md", "a/z.md", "b.md"]
    last = found[-1]
    assert (last.size_bytes, last.mtime_ns) == (4, 1_700_000_000_123_456_789)


def test_what_a_change_in_progress_prepares_is_no_document(top: Path) -> None:
    staged = ".armarium-0123456789abcdef.tmp"
    plant(top, "a.md", staged, f"docs/{staged}/b.md")
    rules = DiscoveryRules(Exclusion())
    assert found_in(top) == ["a.md"]
    with ConfinedRoot(str(top)) as root:
        again = [
            list(rediscover(root, rules, path, Cancellation())) for path in (staged, f"docs/{staged}/b.md", "docs")
        ]
    assert again == [[], [], []]


def test_the_default_list_and_the_configured_one_are_left_out(top: Path) -> None:
    kept = ["docs/build.md", "src/a.py"]
    plant(
        top, *kept, ".git/config", "a/node_modules/x.js", "dist/x", "build/x", ".venv/x", ".dir2mcp/x", "k.pem", "old/x"
    )
    assert found_in(top, excludes=("**/*.pem", "old/**")) == kept


def test_nested_gitignores_are_obeyed_and_can_be_switched_off(top: Path) -> None:
    plant(top, "a.log", "sub/a.log", "sub/keep.log", "sub/deep/b.tmp", "b.tmp", "made/x.md")
    (top / ".gitignore").write_text("*.log\nmade/\n")
    (top / "sub/.gitignore").write_text("!keep.log\n*.tmp\n")
    assert found_in(top) == [".gitignore", "b.tmp", "sub/.gitignore", "sub/keep.log"]
    assert len(found_in(top, gitignore=False)) == 8


def test_links_and_special_files_are_not_documents(top: Path) -> None:
    plant(top, "real.md", "directory/x.md")
    (top / "link.md").symlink_to("real.md")
    (top / "linked").symlink_to("directory")
    os.mkfifo(top / "pipe")
    assert found_in(top) == ["directory/x.md", "real.md"]


def test_followed_links_add_what_the_walk_does_not_reach_and_nothing_twice(top: Path) -> None:
    plant(top, "real.md", "directory/x.md", "hidden/y.md", "hidden/deep/z.md")
    (top / ".gitignore").write_text("hidden/\n")
    (top / "a-link.md").symlink_to("real.md")
    (top / "a-linked").symlink_to("directory")
    (top / "shown").symlink_to("hidden")
    (top / "shown-too").symlink_to("hidden/deep")
    expected = [".gitignore", "directory/x.md", "real.md", "shown/deep/z.md", "shown/y.md"]
    assert found_in(top, follow_symlinks=True) == expected


def test_a_followed_link_to_one_file_shows_it_under_the_links_path(top: Path) -> None:
    plant(top, "hidden/y.md")
    (top / ".gitignore").write_text("hidden/\n")
    (top / "first.md").symlink_to("hidden/y.md")
    (top / "second.md").symlink_to("first.md")
    assert found_in(top, follow_symlinks=True) == [".gitignore", "first.md"]


def test_no_link_leads_out_of_the_root_or_around_an_exclusion(top: Path) -> None:
    plant(top, "a.md", ".env", "build/out.md", "plain/x.md")
    plant(top.parent, "outside/secret.md")
    (top / "escape").symlink_to("../outside")
    (top / "escape.md").symlink_to(top.parent / "outside/secret.md")
    (top / "notes.md").symlink_to(".env")
    (top / "made").symlink_to("build")
    (top / "node_modules").symlink_to("plain")
    assert found_in(top, follow_symlinks=True, excludes=("**/.env",)) == ["a.md", "plain/x.md"]


def test_cyclic_and_dangling_links_end(top: Path) -> None:
    plant(top, "a/b/x.md")
    (top / "a/b/up").symlink_to("../..")
    (top / "a/self").symlink_to("self")
    (top / "ping").symlink_to("pong")
    (top / "pong").symlink_to("ping")
    (top / "nowhere").symlink_to("missing")
    (top / ".gitignore").write_text("loops/\n")
    plant(top, "loops/one/1.md", "loops/two/2.md")
    (top / "loops/one/other").symlink_to("../two")
    (top / "loops/two/other").symlink_to("../one")
    (top / "in").symlink_to("loops/one")
    assert found_in(top, follow_symlinks=True) == [".gitignore", "a/b/x.md", "in/1.md", "in/other/2.md"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"two\nlines.md", r"sub/two\nlines.md"),
        (b"bell\x07", r"sub/bell\x07"),
        ("line\u2028end.md".encode(), r"sub/line\u2028end.md"),
    ],
)
def test_a_name_no_document_can_have_is_told_and_left_out(top: Path, name: bytes, shown: str) -> None:
    plant(top, "sub/good – é \U0001f600.md")
    (Path(os.fsdecode(os.fsencode(top) + b"/sub/" + name))).write_text("x")
    told: list[tuple[str, str]] = []
    with ConfinedRoot(str(top)) as root:
        walk = discover(root, DiscoveryRules(Exclusion()), Cancellation(), lambda *entry: told.append(entry))
        found = [each.rel_path for each in walk]
    assert found == ["sub/good – é \U0001f600.md"]
    assert [shown_path for shown_path, _ in told] == [shown]


def test_names_that_are_not_utf8_are_found_under_their_escape(top: Path) -> None:
    plant(top, r"d/real\xfe.md")
    os.mkdir(os.fsencode(top) + b"/d\xff")
    Path(os.fsdecode(os.fsencode(top) + b"/d\xff/bad\xfe.md")).write_text("x")
    assert sorted(found_in(top)) == [r"d/real\x5cxfe.md", r"d\xff/bad\xfe.md"]


def test_a_directory_with_such_a_name_is_left_out_whole(top: Path) -> None:
    plant(top, "new\nline/a.md", "b.md")
    told: list[tuple[str, str]] = []
    with ConfinedRoot(str(top)) as root:
        walk = discover(root, DiscoveryRules(Exclusion()), Cancellation(), lambda *entry: told.append(entry))
        found = [each.rel_path for each in walk]
    assert found == ["b.md"]
    assert [shown_path for shown_path, _ in told] == [r"new\nline"]


def test_no_directory_can_pass_for_the_inside_of_an_archive(top: Path) -> None:
    plant(top, "a.zip", "a.zip!/inner.md", "wow!/x.md", "b.zip!")
    assert found_in(top) == ["a.zip", "b.zip!", "wow!/x.md"]


@pytest.mark.parametrize("follow_symlinks", [False, True])
def test_a_tree_that_changes_under_the_walk_does_not_stop_it(top: Path, follow_symlinks: bool) -> None:
    plant(top, *(f"d{number}/f{number}.md" for number in range(20)), "a.md", "z.md")
    plant(top.parent, "outside/f15.md")

    class Vandal(Cancellation):
        beats = 0

        def checkpoint(self, done: int) -> None:
            self.beats += 1
            if self.beats == 3:
                shutil.rmtree(top / "d10")
                shutil.rmtree(top / "d15")
                (top / "d15").symlink_to(top.parent / "outside")
                shutil.rmtree(top / "d16")
                (top / "d16").write_text("now a file")
                (top / "z.md").unlink()
                (top / "z.md").mkdir()

    rules = DiscoveryRules(Exclusion(), follow_symlinks=follow_symlinks)
    with ConfinedRoot(str(top)) as root:
        found = {each.rel_path for each in discover(root, rules, Vandal())}
    gone = {"d10/f10.md", "d15/f15.md", "d16/f16.md", "z.md"}
    assert found - {"d16"} == {"a.md", *(f"d{number}/f{number}.md" for number in range(20))} - gone


def test_a_deleted_root_is_an_error_and_not_an_empty_corpus(top: Path) -> None:
    with ConfinedRoot(str(top)) as root:
        top.rmdir()
        with pytest.raises(OSError, match="root"):
            list(discover(root, DiscoveryRules(Exclusion()), Cancellation()))


def test_a_stopped_discovery_ends_at_once_and_leaves_no_descriptor_open(top: Path) -> None:
    plant(top, "a/b/c/d.md", "z/y.md")
    with none_left_open(top), ConfinedRoot(str(top)) as root:
        cancellation = Cancellation()
        walking: Iterator[object] = discover(root, DiscoveryRules(Exclusion()), cancellation)
        next(walking)
        cancellation.cancel()
        with pytest.raises(Stopped):
            list(walking)


def test_size_limits_differ_by_type() -> None:
    instructions = Instructions((), (), max_bytes=1000, max_bytes_by_type={"pdf": 5000})
    assert (instructions.limit("text"), instructions.limit("pdf"), instructions.most_bytes) == (1000, 5000, 5000)


NAMES = st.sampled_from(["a", "a.b", "a-b", "b", "é", " ", "build", ".git", "x.pem", "z\udce9", "n\nl", "l", "a!", "~"])
TREES = st.recursive(
    st.one_of(st.none(), st.sampled_from(["..", "a", "../a", "/", "a/b", "l", "."])),
    lambda children: st.dictionaries(NAMES, children, max_size=5),
    max_leaves=25,
)


def make_tree(directory: str, tree: object) -> None:
    """Directories are dictionaries, files None, links their text."""
    if not isinstance(tree, dict):
        return
    for name, below in tree.items():
        path = os.path.join(directory, name)
        if below is None:
            Path(path).write_bytes(b"x")
        elif isinstance(below, str):
            os.symlink(below, path)
        else:
            os.mkdir(path)
            make_tree(path, below)


@settings(max_examples=120, deadline=None)
@given(TREES, st.booleans())
def test_any_tree_gives_each_allowed_file_once_in_order(tree: object, follow_symlinks: bool) -> None:
    exclusion = Exclusion(["*.pem"], secret_patterns=[])
    with tempfile.TemporaryDirectory() as base:
        make_tree(base, tree)
        expected = sorted(
            path
            for directory, _, names in os.walk(base)
            for name in names
            if not os.path.islink(path := os.path.join(directory, name))
        )
        relative = [path[len(base) + 1 :] for path in expected]
        visible = [path for path in relative if not exclusion.excludes_path(path) and escape_name(path).isprintable()]
        visible = [
            path for path in visible if not any(os.path.lexists(f"{base}/{path[:at]}") for at in archive_marks(path))
        ]
        rules = DiscoveryRules(exclusion, gitignore=False, follow_symlinks=follow_symlinks)
        with ConfinedRoot(base) as root:
            found = [unescape_name(each.rel_path) for each in discover(root, rules, Cancellation())]
        assert len(found) == len(set(found))
        reached = {os.path.realpath(os.path.join(base, path)) for path in found}
        assert len(reached) == len(found)
        if follow_symlinks:
            assert set(visible) <= set(found)
            assert all(path.startswith(os.path.realpath(base) + "/") for path in reached)
        else:
            assert found == sorted(visible)


def archive_marks(path: str) -> list[int]:
    return [at for at in range(len(path)) if path.startswith("!/", at)]
