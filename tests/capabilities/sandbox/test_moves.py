"""Moves lose nothing: a rename if possible, otherwise a copy, after which only copied entries are removed."""

from __future__ import annotations

import errno
import os
import resource
import stat
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from armarium.capabilities.sandbox.changes import cross_device_copy, trees
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.staged_entries import staged_file
from support.sandbox_in_process import apart, between, other_file_system, sandbox
from support.trees import make_tree, picture

pytestmark = pytest.mark.anyio


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    return tmp_path


@pytest.fixture(params=["another file system", "a rename that is refused"])
def far(here: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """The second root, to which nothing can be renamed."""
    if request.param == "another file system":
        with other_file_system(here, monkeypatch) as directory:
            yield directory
    else:
        apart(here / "two", monkeypatch)
        yield here / "two"


@pytest.fixture
def carried(here: Path, far: Path) -> dict[str, Path]:
    return {"one": here / "one", "two": far}


def staged_in(directory: Path) -> list[str]:
    return [str(path) for path in directory.rglob(".armarium-*")]


@pytest.mark.parametrize("landlock", ["auto", "off"])
async def test_a_move_between_roots_on_one_file_system_is_a_rename(here: Path, landlock: str) -> None:
    make_tree(here / "one", {"tree/sub/a.txt": "a", "file.txt": "b"})
    inodes = [(here / "one" / name).stat().st_ino for name in ("tree", "tree/sub/a.txt", "file.txt")]
    os.utime(here / "one/file.txt", ns=(1, 1))

    async with sandbox({"one": here / "one", "two": here / "two"}, here, landlock=landlock) as tools:
        moved = await tools.move("one:tree", "two:deep/tree")
        await tools.move("one:file.txt", "two:file.txt")

    assert moved == {"source": "root://one/tree", "destination": "root://two/deep/tree"}
    assert [(here / "two" / name).stat().st_ino for name in ("deep/tree", "deep/tree/sub/a.txt", "file.txt")] == inodes
    assert (here / "two/file.txt").stat().st_mtime_ns == 1
    assert picture(here / "one") == {}


async def test_a_carried_file_keeps_mode_times_attributes_and_holes(carried: dict[str, Path], here: Path) -> None:
    source = carried["one"] / "file.bin"
    with source.open("wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"in the middle")
    source.chmod(0o641)
    os.setxattr(source, "user.note", b"kept")
    if os.geteuid() == 0:
        os.chown(source, 1234, 2345)
        source.chmod(0o4751)
    os.utime(source, ns=(1_500_000_000_123456789, 1_400_000_000_987654321))
    before = source.stat()

    async with sandbox(carried, here) as tools:
        await tools.move("one:file.bin", "two:sub/file.bin")

    moved = carried["two"] / "sub/file.bin"
    after = moved.stat()
    assert not source.exists()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert (after.st_size, after.st_atime_ns, after.st_mtime_ns) == (64 << 20, before.st_atime_ns, before.st_mtime_ns)
    assert os.getxattr(moved, "user.note") == b"kept"
    assert after.st_blocks * 512 < 4 << 20, "the holes were filled"
    assert moved.read_bytes().strip(b"\0") == b"in the middle"


async def test_a_carried_tree_keeps_everything_of_its_entries(carried: dict[str, Path], here: Path) -> None:
    tree = carried["one"] / "tree"
    make_tree(tree, {"sub/a.txt": "a", "sub/empty": None, "b.txt": "b", "tight/c.txt": "c"})
    (tree / "link").symlink_to("b.txt")
    os.link(tree / "b.txt", tree / "same.txt")
    (tree / "sub/a.txt").chmod(0o600)
    (tree / "tight").chmod(0o700)
    os.setxattr(tree / "sub", "user.note", b"kept")
    for number, path in enumerate(sorted(tree.rglob("*"), reverse=True), start=1):
        os.utime(path, ns=(number, number), follow_symlinks=False)
    os.utime(tree, ns=(99, 99))
    before = picture(tree)
    times = {str(path.relative_to(tree)): path.lstat().st_mtime_ns for path in tree.rglob("*")}

    async with sandbox(carried, here) as tools:
        answer = await tools.move("one:tree", "two:tree")

    moved = carried["two"] / "tree"
    assert "complete" not in answer
    assert not tree.exists()
    assert picture(moved) == before
    assert {str(path.relative_to(moved)): path.lstat().st_mtime_ns for path in moved.rglob("*")} == times
    assert moved.stat().st_mtime_ns == 99
    assert os.getxattr(moved / "sub", "user.note") == b"kept"
    assert staged_in(carried["two"]) == []


async def test_what_changes_while_a_tree_is_carried_stays_and_is_told(
    carried: dict[str, Path], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = carried["one"] / "tree"
    make_tree(
        tree, {"sub/kept.txt": "k", "sub/appended.txt": "a", "sub/replaced.txt": "r", "gone.txt": "g", "d/e": "x"}
    )
    sync = trees.sync_tree

    def changed_meanwhile(staged_fd: int, files: int) -> None:
        with (tree / "sub/appended.txt").open("a") as file:
            file.write("more")
        (tree / "new").write_text("R")
        os.rename(tree / "new", tree / "sub/replaced.txt")
        (tree / "sub/new.txt").write_text("n")
        (tree / "gone.txt").unlink()
        sync(staged_fd, files)

    monkeypatch.setattr(trees, "sync_tree", changed_meanwhile)
    async with sandbox(carried, here) as tools:
        answer = await tools.move("one:tree", "two:tree")

    assert answer["complete"] is False
    assert answer["remaining_count"] == 3
    assert {left["path"]: left["reason"] for left in answer["remaining"]} == {
        "tree/sub/appended.txt": "changed while it was moved",
        "tree/sub/new.txt": "appeared while it was moved",
        "tree/sub/replaced.txt": "changed while it was moved",
    }
    left = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()}
    assert left == {"sub/appended.txt": "amore", "sub/replaced.txt": "R", "sub/new.txt": "n"}
    assert (carried["two"] / "tree/sub/appended.txt").read_text() == "a"
    assert not (tree / "d").exists()


async def test_a_file_that_changes_while_it_is_carried_is_carried_as_it_is_then(
    carried: dict[str, Path], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = carried["one"] / "file.txt"
    source.write_text("first\n")
    keep = cross_device_copy.keep_attributes
    rounds = 0

    def changed_meanwhile(source_fd: int, like: os.stat_result, fd: int) -> None:
        nonlocal rounds
        keep(source_fd, like, fd)
        rounds += 1
        if rounds < 3:
            with source.open("a") as file:
                file.write(f"line {rounds}\n")

    monkeypatch.setattr(cross_device_copy, "keep_attributes", changed_meanwhile)
    async with sandbox(carried, here) as tools:
        await tools.move("one:file.txt", "two:file.txt")

    assert (carried["two"] / "file.txt").read_text() == "first\nline 1\nline 2\n"
    assert not source.exists()
    assert staged_in(carried["two"]) == []


@pytest.mark.parametrize("tool", ["copy", "move"])
async def test_a_failed_transfer_changes_nothing_and_names_what_failed(
    carried: dict[str, Path], here: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    make_tree(carried["one"], {"tree/a.txt": "a", "tree/sub/bad.txt": "b", "tree/z.txt": "z"})
    before = picture(carried["one"])
    copy_content = trees.copy_content

    def failing(source: int, target: int, cancellation: Any) -> int:
        if os.readlink(f"/proc/self/fd/{source}").endswith("bad.txt"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return copy_content(source, target, cancellation)

    monkeypatch.setattr(trees, "copy_content", failing)
    async with sandbox(carried, here) as tools:
        error = await tools.fails(tool, **between("one:tree", "two:new/parents/tree"))

    assert error.code == "STORAGE_FAILURE"
    assert error.details == {"root": "one", "path": "tree/sub/bad.txt"}
    assert "tree/sub/bad.txt (root: one)" in error.message
    assert picture(carried["one"]) == before
    assert picture(carried["two"]) == {}, "the destination was changed"


async def test_a_full_destination_is_named_as_the_destination(
    carried: dict[str, Path], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(carried["one"], {"tree/sub/a.txt": "a"})
    before = picture(carried["one"])

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", full)
    monkeypatch.setattr(os, "pwrite", full)
    async with sandbox(carried, here) as tools:
        for tool in ("copy", "move"):
            error = await tools.fails(tool, **between("one:tree", "two:tree"))
            assert error.details == {"root": "two", "path": "tree/sub/a.txt"}
            assert error.code == "STORAGE_FAILURE"
    assert picture(carried["one"]) == before
    assert picture(carried["two"]) == {}


async def test_a_read_only_file_system_is_refused_before_anything_is_copied(
    carried: dict[str, Path], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(carried["one"], {"tree/a.txt": "a"})
    real = os.fstatvfs

    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(
        os, "fstatvfs", lambda fd: ReadOnly if "one" in os.readlink(f"/proc/self/fd/{fd}") else real(fd)
    )
    monkeypatch.setattr(trees, "copy_content", lambda *_: pytest.fail("something was copied"))
    async with sandbox(carried, here) as tools:
        error = await tools.fails("move", **between("one:tree", "two:sub/tree"))
    assert error.code == "PERMISSION_DENIED"
    assert error.details == {"root": "one", "path": "tree"}
    assert picture(carried["two"]) == {}


async def test_if_match_holds_for_a_carried_file(carried: dict[str, Path], here: Path) -> None:
    (carried["one"] / "a.txt").write_text("a")
    async with sandbox(carried, here) as tools:
        digest = (await tools.call("hash_file", root="one", path="a.txt", algorithm="sha256"))["hash"]
        error = await tools.fails("move", **between("one:a.txt", "two:a.txt"), if_match="0" * 64)
        assert error.code == "CONFLICT"
        assert picture(carried["two"]) == {}
        await tools.move("one:a.txt", "two:a.txt", if_match=digest)
    assert (carried["two"] / "a.txt").read_text() == "a"


async def test_a_directory_does_not_take_the_place_of_a_file(carried: dict[str, Path], here: Path) -> None:
    make_tree(carried["one"], {"tree/a.txt": "a", "file": "f", "dir/tree": "f"})
    make_tree(carried["two"], {"file": "f"})
    pictures = [picture(root) for root in carried.values()]
    async with sandbox(carried, here) as tools:
        for tool in ("move", "copy"):
            for dest in ("one:file", "two:file", "one:dir"):
                error = await tools.fails(tool, **between("one:tree", dest))
                assert error.code == "NOT_A_DIRECTORY", (tool, dest)
    assert [picture(root) for root in carried.values()] == pictures


@pytest.mark.parametrize("unreadable", ["tree/sub", "tree/sub/file"])
async def test_an_unreadable_source_is_named_not_the_destination(
    here: Path, monkeypatch: pytest.MonkeyPatch, unreadable: str
) -> None:
    make_tree(here / "one", {"tree/sub/file": "f"})
    real_open = os.open

    def refusing(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        is_read = not flags & (os.O_PATH | os.O_CREAT)
        if (
            dir_fd is not None
            and is_read
            and f"{os.readlink(f'/proc/self/fd/{dir_fd}')}/{path}".endswith(f"/one/{unreadable}")
        ):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real_open(path, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refusing)
    async with sandbox({"one": here / "one", "two": here / "two"}, here, landlock="off") as tools:
        error = await tools.fails("copy", **between("one:tree", "two:tree"))
    assert (error.code, error.details) == ("PERMISSION_DENIED", {"root": "one", "path": unreadable})
    assert picture(here / "two") == {}


@pytest.mark.parametrize("closed", ["one", "two"])
async def test_a_move_whose_rename_is_refused_names_the_side_that_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    make_tree(here / "one", {"a.txt": "a"})

    def refusing(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def access(_: str, __: int, *, dir_fd: int, effective_ids: bool) -> bool:
        return not os.readlink(f"/proc/self/fd/{dir_fd}").endswith(closed)

    async with sandbox({"one": here / "one", "two": here / "two"}, here) as tools:
        monkeypatch.setattr(os, "rename", refusing)
        monkeypatch.setattr(os, "access", access)
        error = await tools.fails("move", **between("one:a.txt", "two:b.txt"))
    assert error.code == "PERMISSION_DENIED"
    assert error.details == {"root": closed, "path": "a.txt" if closed == "one" else "b.txt"}


async def test_two_moves_in_opposite_directions_keep_every_file(here: Path) -> None:
    files = {f"x/{number}/f.txt": str(number) for number in range(30)}
    make_tree(here / "one", dict(files))
    async with sandbox({"one": here / "one", "two": here / "two"}, here) as tools:

        async def back_and_forth(source: str, dest: str, outcomes: list[str]) -> None:
            for _ in range(20):
                try:
                    await tools.move(f"{source}:x", f"{dest}:x")
                    outcomes.append("ok")
                except Exception as error:  # noqa: BLE001 whatever it is, it is counted
                    outcomes.append(getattr(error, "code", repr(error)))

        outcomes: list[str] = []
        async with anyio.create_task_group() as both:
            both.start_soon(back_and_forth, "one", "two", outcomes)
            both.start_soon(back_and_forth, "two", "one", outcomes)

    assert set(outcomes) <= {"ok", "NOT_FOUND"}
    assert outcomes.count("ok") >= 1
    found = [path for root in ("one", "two") for path in (here / root).rglob("f.txt")]
    assert len(found) == 30
    assert sorted(path.read_text() for path in found) == sorted(files.values())


async def test_a_move_carries_a_tree_deeper_than_the_descriptors(carried: dict[str, Path], here: Path) -> None:
    depth = 700
    fd = os.open(carried["one"], os.O_RDONLY)
    for name in ["top", *["d"] * depth]:
        os.mkdir(name, dir_fd=fd)
        os.mkdir("e", dir_fd=fd)
        below = os.open(name, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)

    async with sandbox(carried, here) as tools:
        before = len(os.listdir("/proc/self/fd"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 300, hard))
        try:
            copied = await tools.copy("one:top", "one:copied")
            moved = await tools.move("one:top", "two:top")
            removed = await tools.call("remove_folder", root="one", path="copied")
            again = await tools.call("remove_folder", root="two", path="top")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert copied["files_copied"] == 1
    assert "complete" not in moved
    assert removed["entries_removed"] == again["entries_removed"] == 2 * depth + 2
    assert stat.S_ISDIR(carried["one"].stat().st_mode)


async def test_a_move_onto_another_name_of_the_same_file_leaves_one_name(here: Path) -> None:
    make_tree(here / "one", {"a": "x", "c": "y"})
    os.link(here / "one/a", here / "one/b")
    os.link(here / "one/c", here / "two/c")

    async with sandbox({"one": here / "one", "two": here / "two"}, here) as tools:
        await tools.move("one:a", "one:b")
        await tools.move("one:c", "two:c")

    assert os.listdir(here / "one") == ["b"]
    assert (here / "one/b").read_text() == "x"
    assert (here / "two/c").read_text() == "y"


async def test_a_file_is_not_moved_onto_itself_through_a_root_inside_a_root(here: Path) -> None:
    make_tree(here / "one", {"sub/a": "x"})
    os.link(here / "one/sub/a", here / "one/second-name")

    async with sandbox({"one": here / "one", "inner": here / "one/sub"}, here) as tools:
        with pytest.raises(InvalidArgument):
            await tools.move("one:sub/a", "inner:a")

    assert sorted(picture(here / "one")) == ["second-name", "sub", "sub/a"]


async def test_what_a_killed_process_left_in_a_tree_does_not_keep_its_source(
    carried: dict[str, Path], here: Path
) -> None:
    left = {"tree/sub/.armarium-0123456789abcdef.tmp/half": "h", "tree/.armarium-1123456789abcdef.tmp": "h"}
    make_tree(carried["one"], {"tree/sub/a": "a"})

    async with sandbox(carried, here) as tools:
        make_tree(carried["one"], left)  # after the sweep at the start
        answer = await tools.move("one:tree", "two:tree")

    assert answer == {"source": "root://one/tree", "destination": "root://two/tree"}
    assert picture(carried["one"]) == {}
    assert sorted(picture(carried["two"])) == ["tree", "tree/sub", "tree/sub/a"]


async def test_a_change_in_progress_in_a_carried_tree_is_told_without_its_hidden_name(
    carried: dict[str, Path], here: Path
) -> None:
    make_tree(carried["one"], {"tree/sub/a": "a"})

    async with sandbox(carried, here) as tools:
        fd = os.open(carried["one"] / "tree/sub", os.O_RDONLY)
        with staged_file(fd, 0o600):
            answer = await tools.move("one:tree", "two:tree")
        os.close(fd)

    assert answer["complete"] is False
    assert answer["remaining"] == [{"path": "tree/sub", "reason": "a change in it is not finished"}]


async def test_a_directory_that_vanishes_while_a_tree_is_carried_is_not_refused(
    carried: dict[str, Path], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(carried["one"], {"tree/a": "a", "tree/gone": None})
    access = os.access

    def vanishing(name: str, mode: int, *, dir_fd: int, effective_ids: bool) -> bool:
        if name == "gone":
            os.rmdir(name, dir_fd=dir_fd)
        return access(name, mode, dir_fd=dir_fd, effective_ids=effective_ids)

    async with sandbox(carried, here) as tools:
        with monkeypatch.context() as patched:
            patched.setattr(os, "access", vanishing)
            await tools.move("one:tree", "two:tree")

    assert picture(carried["one"]) == {}
    assert sorted(picture(carried["two"])) == ["tree", "tree/a"]


async def test_a_file_is_not_moved_onto_itself_where_its_directory_is_mounted_twice(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(here / "one", {"sub/a": "x"})

    def between_mounts(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        if source.startswith(".armarium-"):
            rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    rename = os.rename
    async with sandbox({"one": here / "one", "inner": here / "one/sub"}, here) as tools:
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", between_mounts)
            with pytest.raises(InvalidArgument):
                await tools.move("one:sub/a", "inner:a")

    assert (here / "one/sub/a").read_text() == "x"


async def test_a_destination_that_is_moved_into_the_source_meanwhile_is_a_conflict(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tree(here, {"one/t/a": "a", "two/t/b": "b"})
    rename = os.rename

    def late(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        rename(here / "one/t", here / "one/old")
        rename(here / "two/t", here / "one/t")
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    async with sandbox({"one": here / "one", "two": here / "two"}, here) as tools:
        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", late)
            error = await tools.fails("move", **between("one:t", "two:t"))

    assert error.code == "CONFLICT"
    assert sorted(picture(here / "one")) == ["old", "old/a", "t", "t/b"]
