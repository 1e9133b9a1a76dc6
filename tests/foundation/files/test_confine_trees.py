"""Over random trees of directories and links, whatever opens is inside, and both resolvers agree on it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import get_args

from hypothesis import example, given, settings
from hypothesis import strategies as st

from armarium.foundation.files.confine import READ_DIRECTORY, ConfinedRoot, Resolver, normalise
from armarium.foundation.files.errors import InvalidPath, PathEscapesRoot

# Few names, so that links, paths and entries meet each other often.
NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.sampled_from(["a", "b", "c", "..", ".", "", "out", "root"])
ENTRY_PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
HOSTILE_PATHS = st.lists(STEPS, min_size=1, max_size=6).map("/".join)
LINK_TEXTS = st.builds(
    lambda start, path: (start + path) or ".",
    st.sampled_from(["", "", "../", "{base}/root/", "{base}/root", "{base}/out/", "{base}/", "/"]),
    HOSTILE_PATHS,
)
DIRECTORY, FILE = "a directory", "a file"
TREES = st.lists(st.tuples(ENTRY_PATHS, st.sampled_from([DIRECTORY, FILE]) | LINK_TEXTS), max_size=14)

FLAGS = st.sampled_from(
    [os.O_RDONLY | os.O_NONBLOCK, os.O_PATH, os.O_PATH | os.O_NOFOLLOW, READ_DIRECTORY, os.O_RDWR | os.O_CREAT]
)


def plant(base: Path, tree: list[tuple[str, str]]) -> None:
    """Make the entries that can be made, never writing through a link that was planted before."""
    (base / "root").mkdir()
    (base / "out/a").mkdir(parents=True)
    (base / "out/b").write_text("secret")
    for path, entry in tree:
        place = base / "root" / path
        if os.path.realpath(place.parent) != str(place.parent) or not place.parent.is_dir():
            continue
        with suppress(FileExistsError):
            if entry == DIRECTORY:
                place.mkdir()
            elif entry == FILE:
                place.touch(exist_ok=False)
            else:
                place.symlink_to(entry.format(base=base))


def outcome(root: ConfinedRoot, path: str, flags: int) -> tuple[str, object]:
    """What came of it; a file that the call created is gone again, so that the next one meets the same tree."""
    before = entries(Path(root.real_path))
    try:
        fd = root.open(path, flags, 0o600)
    except PathEscapesRoot:
        return "refused", None
    except OSError as error:
        return "failed", error.errno
    try:
        place = os.readlink(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    for created in entries(Path(root.real_path)) - before:
        os.unlink(os.path.join(root.real_path, created))
    return "opened", place


def real_place(path: Path, *, follow_last: bool) -> str:
    return os.path.realpath(path) if follow_last else os.path.join(os.path.realpath(path.parent), path.name)


def entries(top: Path) -> set[str]:
    return {str(path.relative_to(top)) for path in top.rglob("*")}


@settings(max_examples=300, deadline=None)
@given(tree=TREES, paths=st.lists(st.tuples(HOSTILE_PATHS, FLAGS), min_size=1, max_size=6))
@example(tree=[("a", "{base}/root/b/"), ("b", "..")], paths=[("a/out", os.O_RDONLY)])
@example(tree=[("a", DIRECTORY), ("a/b", "../../root/a")], paths=[("a/b", os.O_PATH)])
@example(tree=[("b", "a/"), ("c", "a/.")], paths=[("b", os.O_RDWR | os.O_CREAT), ("c", os.O_RDWR | os.O_CREAT)])
@example(tree=[("a", FILE), ("b", "a/")], paths=[("b", os.O_PATH), ("b", os.O_PATH | os.O_NOFOLLOW)])
def test_whatever_opens_is_inside_and_both_resolvers_agree(
    tree: list[tuple[str, str]], paths: list[tuple[str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        base = Path(directory).resolve()
        plant(base, tree)
        outside = entries(base / "out")
        roots = {resolver: ConfinedRoot(str(base / "root"), resolver=resolver) for resolver in get_args(Resolver)}
        try:
            for hostile, flags in paths:
                try:
                    path = normalise(hostile)
                except PathEscapesRoot:
                    continue
                results = {resolver: outcome(root, path, flags) for resolver, root in roots.items()}
                assert results["openat2"] == results["walk"], (path, flags)
                kind, place = results["walk"]
                if kind == "opened":
                    assert place == real_place(base / "root" / path, follow_last=not flags & os.O_NOFOLLOW)
                    assert Path(str(place)).is_relative_to(base / "root")
        finally:
            for root in roots.values():
                root.close()
        assert entries(base / "out") == outside
        assert set(os.listdir(base)) == {"root", "out"}


@given(path=st.text(max_size=40) | st.lists(STEPS, max_size=12).map("/".join))
def test_a_normalised_path_has_only_names_and_stays_as_it_is(path: str) -> None:
    try:
        relative = normalise(path)
    except (PathEscapesRoot, InvalidPath):
        return
    assert normalise(relative) == relative
    assert not {"", ".", ".."} & set(relative.split("/")) or relative == ""
    assert os.path.normpath("/" + relative) == os.path.normpath("/" + path.lstrip("/"))
