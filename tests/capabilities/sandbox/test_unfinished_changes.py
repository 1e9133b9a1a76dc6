"""Staged entries are hidden from every tool, and removed if and only if they are stale."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.sandbox.changes import trees
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.names import drop_staged, is_staged, new_staged_name
from armarium.foundation.files.staged_entries import staged_directory, staged_file, sweep
from support.sandbox_in_process import between, sandbox
from support.trees import make_tree, picture

pytestmark = pytest.mark.anyio

STAGED = ".armarium-0123456789abcdef.tmp"


def test_staged_names_are_told_from_all_others() -> None:
    name = new_staged_name()
    assert is_staged(name)
    others = [".armarium-notes", ".armarium-0123.tmp", ".armarium-release-notes-01.tmp", ".armarium", "a", "~"]
    others += [".armarium-0123456789ABCDEF.tmp", ".armarium-0123456789abcde\N{ARABIC-INDIC DIGIT ONE}.tmp", f"{name}\n"]
    assert not any(map(is_staged, others))
    names = sorted([*others, name, f"{name}/", f"{new_staged_name()}/", ".armarium-notes/"])
    drop_staged(names)
    assert names == sorted([*others, ".armarium-notes/"])


async def test_entries_in_progress_are_hidden_from_every_tool(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"d/{STAGED}": "needle", "d/a.txt": "needle", f"d/sub/{STAGED}/b.txt": "needle"})
    with owned(tmp_path / "d" / STAGED), owned(tmp_path / "d/sub" / STAGED):
        async with sandbox({"root": tmp_path}, tmp_path / "state") as tools:
            listed = await tools.call("list_folder", root="root", path="d")
            found = await tools.call("glob", root="root", pattern="**", path="d")
            searched = await tools.call("grep", root="root", pattern="needle", path="d")
            copied = await tools.copy("root:d", "root:e")
            for tool in ("read_file", "stat_file", "permissions_file", "remove_file", "list_folder", "remove_folder"):
                error = await tools.fails(tool, root="root", path=f"d/{STAGED}")
                assert error.code == "PATH_IGNORED", tool
            refused = await tools.fails("write_file", root="root", path=f"x/{STAGED}/y", content="")
    assert [entry["name"] for entry in listed["entries"]] == ["a.txt", "sub"]
    assert [entry["path"] for entry in found["matches"]] == ["d/a.txt", "d/sub"]
    assert [match["file"] for match in searched["matches"]] == ["d/a.txt"]
    assert copied["files_copied"] == 1
    assert refused.code == "PATH_IGNORED"
    assert sorted(path.name for path in (tmp_path / "e").rglob("*")) == ["a.txt", "sub"]


class owned:
    """Make sure the entry is there and locked, as its owner would."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        if not self._path.exists():
            make_tree(self._path.parent, {self._path.name: "needle"})
        self._fd = os.open(self._path, os.O_RDONLY)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def test_a_sweep_removes_what_nobody_owns_and_nothing_else(tmp_path: Path) -> None:
    make_tree(tmp_path, {
        f"a/{STAGED}": "x", f"a/b/{STAGED}/c/d.txt": "x", f"hidden/{STAGED}": "x",
        "a/b/kept.txt": "k", ".armarium-mine": "x", ".armarium-release-notes-01.tmp": "x",
    })  # fmt: skip
    (tmp_path / f"a/b/{STAGED}/c").chmod(0o500)
    fd = os.open(tmp_path / "a", os.O_RDONLY)
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        with staged_file(fd, 0o600) as file, staged_directory(fd, 0o700) as directory:
            removed = sweep(top, Cancellation(), lambda path: path == "hidden")
            assert removed == 2
            file.put("file")
            directory.put("directory")
    finally:
        os.close(fd)
        os.close(top)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir())
    assert left == [".armarium-mine", ".armarium-release-notes-01.tmp", "a/b/kept.txt", "a/file", f"hidden/{STAGED}"]
    assert (tmp_path / "a/directory").is_dir()


def test_a_staged_entry_that_a_sweep_took_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    flock = fcntl.flock
    swept: list[str] = []

    def after_a_sweep(file: int, how: int) -> None:
        if not swept:
            swept.extend(os.listdir(tmp_path))
            os.unlink(tmp_path / swept[0])
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", after_a_sweep)
    try:
        with staged_file(fd, 0o600) as staged:
            os.write(staged.fd, b"whole")
            staged.put("file")
    finally:
        os.close(fd)
    assert len(swept) == 1
    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("write_file", {"path": "a/b/c.txt", "content": "x"}),
        ("write_file", {"path": "a/b/c.txt", "content": "x", "mode": "append"}),
        ("write_file", {"path": "a/b/c.txt", "content": "x", "mode": "create_only"}),
        ("patch_file", {"path": "a/b/c.txt", "patch": "--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+x\n"}),
    ],
)
async def test_a_failed_write_leaves_no_directories_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any]
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            error = await tools.fails(tool, root="root", **arguments)
    assert error.code == "STORAGE_FAILURE"
    assert picture(tmp_path) == {}


@pytest.mark.parametrize("path", ["newdir/", "a/b/", "file.txt/", "a/."])
@pytest.mark.parametrize("tool", ["write_file", "patch_file"])
async def test_a_path_that_ends_with_a_slash_is_no_file(tmp_path: Path, path: str, tool: str) -> None:
    (tmp_path / "file.txt").write_text("f")
    before = picture(tmp_path)
    content = {"content": "x"} if tool == "write_file" else {"patch": "--- /dev/null\n+++ b\n@@ -0,0 +1 @@\n+x\n"}
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        error = await tools.fails(tool, root="root", path=path, **content)
    assert error.code == "IS_A_DIRECTORY"
    assert picture(tmp_path) == before


@pytest.mark.parametrize("tool", ["copy", "move"])
async def test_a_file_does_not_take_the_name_of_a_directory_that_is_not_there(tmp_path: Path, tool: str) -> None:
    make_tree(tmp_path, {"a.txt": "a", "d/b.txt": "b"})
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        error = await tools.fails(tool, **between("root:a.txt", "root:archive/"))
        assert error.code == "NOT_A_DIRECTORY"
        await tools.call(tool, **between("root:a.txt", "root:d/"))
        await tools.call(tool, **between("root:d", "root:archive/"))
    assert (tmp_path / "archive/a.txt").read_text() == "a"


async def test_the_retry_of_a_failed_copy_does_not_nest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(tmp_path, {"proj/a.txt": "a", "proj/b.txt": "b", "f/x": "x"})
    copy_content = trees.copy_content
    calls = 0

    def failing_once(source: int, target: int, cancellation: Cancellation) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return copy_content(source, target, cancellation)

    monkeypatch.setattr(trees, "copy_content", failing_once)
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        await tools.fails("copy", **between("root:proj", "root:f/proj"))
        assert not (tmp_path / "f/proj").exists()
        await tools.copy("root:proj", "root:f/proj")
    assert sorted(os.listdir(tmp_path / "f/proj")) == ["a.txt", "b.txt"]


async def test_a_copy_into_a_directory_that_has_the_name_is_merged(tmp_path: Path) -> None:
    make_tree(tmp_path, {"proj/a.txt": "new", "proj/sub/b.txt": "b", "f/proj/a.txt": "old", "f/proj/kept.txt": "k"})
    (tmp_path / "f/proj/a.txt").chmod(0o600)
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        await tools.copy("root:proj", "root:f")
        make_tree(tmp_path, {"clash/sub": "a file where proj has a directory"})
        make_tree(tmp_path, {"clash2/proj/sub": "file", "clash2/proj/a.txt": "old"})
        error = await tools.fails("copy", **between("root:proj", "root:clash2"))
    merged = {str(path.relative_to(tmp_path / "f")): path.read_text() for path in (tmp_path / "f").rglob("*.txt")}
    assert merged == {"proj/a.txt": "new", "proj/sub/b.txt": "b", "proj/kept.txt": "k"}
    assert (tmp_path / "f/proj/a.txt").stat().st_mode & 0o777 == 0o600
    assert error.code == "NOT_A_DIRECTORY"
    assert error.details["path"] == "clash2/proj/sub"
    assert (tmp_path / "clash2/proj/a.txt").read_text() == "old", "half of it was merged"


async def test_a_wide_directory_is_removed_in_linear_time(tmp_path: Path) -> None:
    (tmp_path / "wide").mkdir()
    for number in range(20_000):
        os.close(os.open(tmp_path / f"wide/{number}", os.O_CREAT))
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        answer = await tools.call("remove_folder", root="root", path="wide")
    assert answer["entries_removed"] == 20_001
    assert picture(tmp_path) == {}


async def test_a_removal_that_fails_names_the_entry_and_puts_the_rest_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path, {"tree/a.txt": "a", "tree/sub/stuck.txt": "s", "tree/z.txt": "z"})
    unlink = os.unlink

    def refusing(name: str, *, dir_fd: int | None = None) -> None:
        if name == "stuck.txt":
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(name, dir_fd=dir_fd)

    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        with monkeypatch.context() as patched:
            patched.setattr(os, "unlink", refusing)
            error = await tools.fails("remove_folder", root="root", path="tree")
    assert (error.code, error.details) == ("PERMISSION_DENIED", {"root": "root", "path": "tree/sub/stuck.txt"})
    assert sorted(os.listdir(tmp_path / "tree")) == ["sub", "z.txt"]
    assert os.listdir(tmp_path) == ["tree"]


@pytest.fixture
def protected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories called `protected` cannot be changed, as if this user were not root."""
    access = os.access

    def asked(name: str, mode: int, *, dir_fd: int, effective_ids: bool) -> bool:
        here = os.path.normpath(os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name))
        return not here.endswith("/protected") and access(name, mode, dir_fd=dir_fd, effective_ids=effective_ids)

    monkeypatch.setattr(os, "access", asked)


@pytest.mark.usefixtures("protected")
async def test_a_removal_that_cannot_succeed_removes_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path, {"tree/a.txt": "a", "tree/sub/protected/b.txt": "b", "tree/z.txt": "z"})
    before = picture(tmp_path)
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        error = await tools.fails("remove_folder", root="root", path="tree")
    assert (error.code, error.details) == ("PERMISSION_DENIED", {"root": "root", "path": "tree/sub/protected"})
    assert picture(tmp_path) == before


@pytest.mark.usefixtures("protected")
async def test_an_empty_protected_directory_is_removed(tmp_path: Path) -> None:
    make_tree(tmp_path, {"tree/protected": None, "tree/a.txt": "a"})
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        await tools.call("remove_folder", root="root", path="tree")
    assert picture(tmp_path) == {}


@pytest.mark.usefixtures("protected")
async def test_a_copy_that_cannot_be_merged_changes_nothing(tmp_path: Path) -> None:
    make_tree(tmp_path, {"tree/a.txt": "new", "tree/protected/b.txt": "b"})
    make_tree(tmp_path, {"there/tree/a.txt": "old", "there/tree/protected": None})
    before = picture(tmp_path / "there")
    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        error = await tools.fails("copy", **between("root:tree", "root:there"))
    assert error.code == "PERMISSION_DENIED"
    assert error.details == {"root": "root", "path": "there/tree/protected/b.txt"}
    assert picture(tmp_path / "there") == before


@pytest.mark.parametrize("mode", ["overwrite", "append"])
async def test_a_file_that_vanishes_before_it_is_written_is_not_called_protected(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(tmp_path, {"a.txt": "old"})
    access = os.access

    def vanishing(name: str, asked: int, *, dir_fd: int, effective_ids: bool) -> bool:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=dir_fd)
        return access(name, asked, dir_fd=dir_fd, effective_ids=effective_ids)

    async with sandbox({"root": tmp_path}, tmp_path.parent / "state") as tools:
        monkeypatch.setattr(os, "access", vanishing)
        answer = await tools.call("write_file", root="root", path="a.txt", content="new", mode=mode)
    assert answer["created"]
    assert (tmp_path / "a.txt").read_text() == "new"
