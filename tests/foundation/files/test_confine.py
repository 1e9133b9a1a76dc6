"""Every path stays inside its root, whichever resolver opens it."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

from armarium.foundation.files import beneath, confine
from armarium.foundation.files.confine import (
    ConfinedRoot,
    Resolver,
    normalise,
    open_child_directory,
    rename_noreplace,
)
from armarium.foundation.files.errors import InvalidPath, IsADirectory, NotADirectory, NotARegularFile, PathEscapesRoot
from support.descriptors import none_left_open

SECRET = "the secret of the outside"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A root with a few real entries, and beside it an outside that nothing may reach."""
    (tmp_path / "root/docs/deep").mkdir(parents=True)
    (tmp_path / "root/notes.txt").write_text("notes")
    (tmp_path / "root/docs/deep/page.txt").write_text("page")
    (tmp_path / "outside/docs").mkdir(parents=True)
    (tmp_path / "outside/secret.txt").write_text(SECRET)
    (tmp_path / "rooted-beside").mkdir()
    (tmp_path / "rooted-beside/secret.txt").write_text(SECRET)
    return tmp_path


@pytest.fixture(params=get_args(Resolver))
def root(base: Path, request: pytest.FixtureRequest) -> Iterator[ConfinedRoot]:
    with ConfinedRoot(str(base / "root"), resolver=request.param) as confined, none_left_open(base):
        yield confined


def read(root: ConfinedRoot, path: str) -> str:
    with root.opened(path, os.O_RDONLY) as fd:
        return os.read(fd, 100).decode()


def names_in(root: ConfinedRoot, path: str) -> set[str]:
    with root.opened(path, confine.READ_DIRECTORY) as fd:
        return set(os.listdir(fd))


def test_a_root_knows_its_real_path_even_when_given_by_a_link(base: Path) -> None:
    (base / "alias").symlink_to("root")
    with ConfinedRoot(str(base / "alias")) as root:
        assert root.real_path == str((base / "root").resolve())
        assert root.resolver == ("openat2" if beneath.kernel_has_openat2() else "walk")
        assert read(root, "notes.txt") == "notes"


@pytest.mark.parametrize(("name", "error"), [("missing", FileNotFoundError), ("root/notes.txt", NotADirectoryError)])
def test_a_root_must_be_an_existing_directory(base: Path, name: str, error: type[OSError]) -> None:
    with pytest.raises(error):
        ConfinedRoot(str(base / name))


def test_a_closed_root_opens_nothing(base: Path) -> None:
    root = ConfinedRoot(str(base / "root"))
    root.close()
    root.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        root.open("notes.txt", os.O_RDONLY)


def test_files_and_directories_open_beneath_the_root(root: ConfinedRoot) -> None:
    assert read(root, "notes.txt") == "notes"
    assert read(root, "docs/deep/page.txt") == "page"
    assert names_in(root, "") == {"notes.txt", "docs"}
    assert names_in(root, "docs/deep") == {"page.txt"}


def test_opened_descriptors_are_not_inherited(root: ConfinedRoot) -> None:
    with root.opened("notes.txt", os.O_RDONLY) as fd:
        assert not os.get_inheritable(fd)
    assert not os.get_inheritable(root.fd)


def test_a_file_is_created_with_the_mode_asked_for(root: ConfinedRoot) -> None:
    with root.opened("docs/new.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640) as fd:
        assert stat.S_IMODE(os.fstat(fd).st_mode) == 0o640
    with pytest.raises(FileExistsError):
        root.open("docs/new.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    with root.opened("docs/new.txt", os.O_RDONLY, 0o600) as fd:
        assert os.fstat(fd).st_size == 0


@pytest.mark.parametrize(
    ("path", "flags", "number"),
    [
        ("missing", os.O_RDONLY, errno.ENOENT),
        ("docs/missing/x", os.O_RDONLY, errno.ENOENT),
        ("notes.txt/x", os.O_RDONLY, errno.ENOTDIR),
        ("notes.txt", os.O_RDONLY | os.O_DIRECTORY, errno.ENOTDIR),
        ("docs", os.O_WRONLY, errno.EISDIR),
        ("", os.O_WRONLY, errno.EISDIR),
        ("n" * 256, os.O_RDONLY, errno.ENAMETOOLONG),
    ],
)
def test_other_failures_are_the_systems_own_and_name_the_relative_path(
    root: ConfinedRoot, path: str, flags: int, number: int
) -> None:
    with pytest.raises(OSError, match=os.strerror(number)) as failure:
        root.open(path, flags)
    assert failure.value.errno == number
    assert failure.value.filename == path


def test_a_nul_is_refused_before_the_kernel_would_cut_the_path_there(root: ConfinedRoot) -> None:
    with pytest.raises(InvalidPath):
        root.open("notes.txt\0.png", os.O_RDONLY)


INSIDE_LINKS: dict[str, Callable[[Path], str]] = {
    "a relative link": lambda root: "docs/deep",
    "a link with dots and slashes": lambda root: ".//docs/./deep/",
    "a link up and down again": lambda root: "docs/../docs/deep",
    "an absolute link": lambda root: f"{root}/docs/deep",
    "an absolute link with needless slashes": lambda root: f"/{root}//docs/./deep/",
    "an absolute link by the name of the settings": lambda root: f"{root.parent}/alias/docs/deep",
    "a link to a link": lambda root: "chain",
    "a link to an absolute link": lambda root: "absolute-chain",
    "an absolute link to a link up": lambda root: f"{root}/docs/up/docs/deep",
}


@pytest.mark.parametrize("resolver", get_args(Resolver))
@pytest.mark.parametrize("case", INSIDE_LINKS)
def test_a_link_that_stays_inside_is_followed(base: Path, resolver: Resolver, case: str) -> None:
    (base / "alias").symlink_to("root")
    (base / "root/chain").symlink_to("docs/deep")
    (base / "root/absolute-chain").symlink_to(base / "root/docs/deep")
    (base / "root/docs/up").symlink_to("..")
    (base / "root/link").symlink_to(INSIDE_LINKS[case](base / "root"))
    with ConfinedRoot(str(base / "alias"), resolver=resolver) as root:
        assert read(root, "link/page.txt") == "page"
        assert names_in(root, "link") == {"page.txt"}
        with root.opened("link/page.txt", os.O_RDONLY) as fd:
            assert root.locate(fd) == "docs/deep/page.txt"
        with root.opened("link/new.txt", os.O_WRONLY | os.O_CREAT, 0o600):
            assert (base / "root/docs/deep/new.txt").exists()


def test_a_link_to_the_root_itself_is_followed(root: ConfinedRoot, base: Path) -> None:
    (base / "root/docs/home").symlink_to(base / "root")
    (base / "root/docs/here").symlink_to(".")
    assert read(root, "docs/home/notes.txt") == "notes"
    assert read(root, "docs/here/here/deep/page.txt") == "page"


OUTSIDE_LINKS: dict[str, Callable[[Path], str]] = {
    "an absolute link": lambda base: f"{base}/outside",
    "a relative link": lambda base: "../outside",
    "a deep relative link": lambda base: "docs/deep/../../../outside",
    "far above everything": lambda base: "../" * 50 + "etc",
    "the parent": lambda base: "..",
    "the host's root": lambda base: "/",
    "out and in again": lambda base: "../root",
    "out and in again, absolute": lambda base: f"{base}/outside/../root",
    "absolute with dots through the root": lambda base: f"{base}/root/../outside",
    "a name that begins like the root": lambda base: f"{base}/rooted-beside",
    "a name that begins like the root, relative": lambda base: "../rooted-beside",
    "a link to a link out": lambda base: "docs/exit",
    "nothing, outside": lambda base: f"{base}/outside/missing",
    "nothing, outside, relative": lambda base: "../missing",
    "the process's root": lambda base: "/proc/self/root",
    "the process's working directory": lambda base: "/proc/self/cwd",
    "the process's descriptors": lambda base: "/proc/self/fd",
    "a device": lambda base: "/dev/null",
}


@pytest.mark.parametrize("case", OUTSIDE_LINKS)
def test_a_link_out_of_the_root_is_refused_for_every_use(root: ConfinedRoot, base: Path, case: str) -> None:
    (base / "root/docs/exit").symlink_to("../../outside")
    (base / "root/link").symlink_to(OUTSIDE_LINKS[case](base))
    uses: list[Callable[[], object]] = [
        lambda: root.open("link", os.O_RDONLY),
        lambda: root.open("link", os.O_PATH),
        lambda: root.open("link", os.O_WRONLY | os.O_CREAT, 0o600),
        lambda: root.open("link/secret.txt", os.O_RDONLY),
        lambda: root.open("link/secret.txt", os.O_PATH | os.O_NOFOLLOW),
        lambda: root.open("link/new.txt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600),
        lambda: root.open_directory("link"),
        lambda: root.opened_parent("link/secret.txt").__enter__(),
        lambda: root.open_regular("link/secret.txt"),
        lambda: root.make_directories("link/new"),
        lambda: root.make_directories("link"),
    ]
    for use in uses:
        with pytest.raises(PathEscapesRoot) as refusal:
            use()
        assert refusal.value.message.startswith("path resolves outside root boundary: link")
        assert str(base) not in refusal.value.message
        assert refusal.value.private["attempted"].startswith("link")
        assert refusal.value.private["resolved"].startswith("/")
    assert sorted(os.listdir(base / "outside")) == ["docs", "secret.txt"]
    assert sorted(os.listdir(base)) == ["outside", "root", "rooted-beside"]


def test_the_operator_learns_where_a_refused_link_leads(root: ConfinedRoot, base: Path) -> None:
    (base / "root/docs/exit").symlink_to("../../outside")
    with pytest.raises(PathEscapesRoot) as refusal:
        root.open("docs/exit/secret.txt", os.O_RDONLY)
    assert refusal.value.private["resolved"] == f"{base}/outside/secret.txt"


def test_a_link_itself_can_be_looked_at_wherever_it_leads(root: ConfinedRoot, base: Path) -> None:
    (base / "root/exit").symlink_to(base / "outside")
    with root.opened("exit", os.O_PATH | os.O_NOFOLLOW) as fd:
        assert stat.S_ISLNK(os.fstat(fd).st_mode)
        assert root.locate(fd) == "exit"
    with pytest.raises(OSError, match="Too many levels"):
        root.open("exit", os.O_RDONLY | os.O_NOFOLLOW)
    with pytest.raises(NotADirectoryError):
        root.open("exit", confine.READ_DIRECTORY | os.O_NOFOLLOW)
    with pytest.raises(FileExistsError):
        root.open("exit", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


@pytest.mark.parametrize(("links", "opens"), [(40, True), (41, False)])
def test_as_many_links_are_followed_as_linux_follows(root: ConfinedRoot, base: Path, links: int, opens: bool) -> None:
    (base / "root/link0").symlink_to("notes.txt")
    for number in range(1, links):
        (base / f"root/link{number}").symlink_to(f"link{number - 1}")
    if opens:
        assert read(root, f"link{links - 1}") == "notes"
    else:
        with pytest.raises(OSError, match="Too many levels"):
            root.open(f"link{links - 1}", os.O_RDONLY)


def test_loops_end(root: ConfinedRoot, base: Path) -> None:
    (base / "root/self").symlink_to("self")
    (base / "root/ping").symlink_to("pong")
    (base / "root/pong").symlink_to(base / "root/ping")
    (base / "root/grow").symlink_to("grow/grow")
    for path in ("self", "self/x", "ping", "pong/x", "grow", "grow/x"):
        with pytest.raises(OSError, match="Too many levels") as failure:
            root.open(path, os.O_RDONLY)
        assert failure.value.errno == errno.ELOOP


def test_a_link_with_a_trailing_slash_demands_a_directory(root: ConfinedRoot, base: Path) -> None:
    (base / "root/slash").symlink_to("notes.txt/")
    with pytest.raises(NotADirectoryError):
        root.open("slash", os.O_RDONLY)


def test_creating_through_a_link_to_nothing_creates_inside(root: ConfinedRoot, base: Path) -> None:
    (base / "root/later").symlink_to("docs/later.txt")
    with root.opened("later", os.O_WRONLY | os.O_CREAT, 0o600) as fd:
        assert root.locate(fd) == "docs/later.txt"
    (base / "root/never").symlink_to("../outside/new.txt")
    with pytest.raises(PathEscapesRoot):
        root.open("never", os.O_WRONLY | os.O_CREAT, 0o600)
    assert not (base / "outside/new.txt").exists()


@pytest.mark.parametrize("resolver", get_args(Resolver))
@pytest.mark.parametrize("top", ["/proc", "/"])
@pytest.mark.parametrize("link", ["root", "root/etc/passwd", "cwd", "exe", "fd/{fd}"])
def test_a_magic_link_of_proc_is_refused_even_where_its_text_names_the_inside(
    resolver: Resolver, top: str, link: str, base: Path
) -> None:
    with ConfinedRoot(top, resolver=resolver) as root, open(base / "root/notes.txt") as file:
        # By number: "self" is a link too, and only the magic one is in question.
        path = os.path.relpath(f"/proc/{os.getpid()}/{link.format(fd=file.fileno())}", top)
        with pytest.raises(PathEscapesRoot):
            root.open(path, os.O_RDONLY)


@pytest.mark.parametrize("resolver", get_args(Resolver))
def test_the_whole_file_system_may_be_a_root(resolver: Resolver, base: Path) -> None:
    (base / "root/absolute").symlink_to(base / "root/notes.txt")
    with ConfinedRoot("/", resolver=resolver) as root:
        path = normalise(str(base / "root/absolute"))
        assert read(root, path) == "notes"
        with root.opened(path, os.O_RDONLY) as fd:
            assert root.locate(fd) == normalise(str((base / "root/notes.txt").resolve()))


def test_a_regular_file_opens_with_its_status(root: ConfinedRoot, base: Path) -> None:
    (base / "root/link").symlink_to("notes.txt")
    for path in ("notes.txt", "link"):
        with root.opened_regular(path) as (fd, status):
            assert os.read(fd, status.st_size) == b"notes"


def test_a_fifo_is_refused_at_once_even_while_nobody_writes(root: ConfinedRoot, base: Path) -> None:
    os.mkfifo(base / "root/fifo")
    with pytest.raises(NotARegularFile):
        root.open_regular("fifo")


def test_a_socket_is_refused(root: ConfinedRoot, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base / "root")  # A socket's address has room for 107 bytes only.
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        with pytest.raises(NotARegularFile):
            root.open_regular("socket")


@pytest.mark.parametrize("resolver", get_args(Resolver))
def test_a_device_is_refused(resolver: Resolver) -> None:
    with ConfinedRoot("/dev", resolver=resolver) as root, pytest.raises(NotARegularFile):
        root.open_regular("null")


@pytest.mark.parametrize("path", ["", "docs"])
def test_a_directory_is_no_regular_file(root: ConfinedRoot, path: str) -> None:
    with pytest.raises(IsADirectory):
        root.open_regular(path)


def test_a_parent_can_hold_new_entries_and_be_synced(root: ConfinedRoot, base: Path) -> None:
    (base / "root/link").symlink_to("docs")
    with root.opened_parent("link/new.txt") as (fd, name):
        assert name == "new.txt"
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=fd))
        os.fsync(fd)
    assert (base / "root/docs/new.txt").exists()
    with root.opened_parent("notes.txt") as (fd, name):
        assert (root.locate(fd), name) == ("", "notes.txt")


def test_the_last_component_of_a_parent_is_not_followed(root: ConfinedRoot, base: Path) -> None:
    (base / "root/exit").symlink_to(base / "outside")
    with root.opened_parent("exit") as (fd, name):
        os.unlink(name, dir_fd=fd)
    assert not (base / "root/exit").is_symlink()
    assert (base / "outside/secret.txt").read_text() == SECRET


def test_the_root_has_no_parent(root: ConfinedRoot) -> None:
    with pytest.raises(IsADirectory), root.opened_parent(""):
        pass


def test_missing_directories_are_made_and_existing_ones_kept(root: ConfinedRoot, base: Path) -> None:
    (base / "root/link").symlink_to(base / "root/docs")
    for path, place in (("", ""), ("docs", "docs"), ("x/y/z", "x/y/z"), ("x/y", "x/y"), ("link/a/b", "docs/a/b")):
        fd = root.make_directories(path)
        try:
            assert root.locate(fd) == place
            os.listdir(fd)
        finally:
            os.close(fd)
    assert (base / "root/docs/a/b").is_dir()


def test_directories_are_made_to_any_depth(root: ConfinedRoot) -> None:
    path = "/".join(["d"] * 400)
    fd = root.make_directories(path)
    try:
        assert root.locate(fd) == path
    finally:
        os.close(fd)


@pytest.mark.parametrize("path", ["notes.txt", "notes.txt/x/y", "dangling", "dangling/x", "fifo/x"])
def test_something_else_in_the_way_of_a_directory_is_named(root: ConfinedRoot, base: Path, path: str) -> None:
    (base / "root/dangling").symlink_to("nowhere")
    os.mkfifo(base / "root/fifo")
    with pytest.raises(NotADirectory):
        root.make_directories(path)
    assert not (base / "root/nowhere").exists()


def test_a_directory_that_appears_meanwhile_is_used(
    root: ConfinedRoot, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_mkdir = os.mkdir

    def slower_mkdir(name: str, *, dir_fd: int) -> None:
        real_mkdir(name, dir_fd=dir_fd)
        real_mkdir(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", slower_mkdir)
    os.close(root.make_directories("x/y"))
    assert (base / "root/x/y").is_dir()


def test_a_descriptor_is_located_after_its_file_moved(root: ConfinedRoot, base: Path) -> None:
    with root.opened("docs/deep/page.txt", os.O_RDONLY) as fd:
        os.rename(base / "root/docs/deep", base / "root/elsewhere")
        assert root.locate(fd) == "elsewhere/page.txt"
        os.rename(base / "root", base / "renamed-root")
        assert root.locate(fd) == "elsewhere/page.txt"
        os.rename(base / "renamed-root/elsewhere", base / "outside/elsewhere")
        with pytest.raises(PathEscapesRoot) as refusal:
            root.locate(fd)
        assert str(base) not in refusal.value.message


def test_a_deleted_file_is_nowhere_and_a_file_named_deleted_is_somewhere(root: ConfinedRoot, base: Path) -> None:
    (base / "root/gone").write_text("x")
    (base / "root/kept (deleted)").write_text("x")
    with root.opened("gone", os.O_RDONLY) as fd:
        os.link(base / "root/gone", base / "root/second-name")
        os.unlink(base / "root/gone")
        with pytest.raises(PathEscapesRoot):
            root.locate(fd)
        (base / "root/gone (deleted)").write_text("an impostor")
        with pytest.raises(PathEscapesRoot):
            root.locate(fd)
    with root.opened("kept (deleted)", os.O_RDONLY) as fd:
        assert root.locate(fd) == "kept (deleted)"


def test_a_neighbour_that_begins_like_the_root_is_not_inside(root: ConfinedRoot, base: Path) -> None:
    (base / "root-two").mkdir()
    fd = os.open(base / "root-two", os.O_PATH)
    try:
        with pytest.raises(PathEscapesRoot):
            root.locate(fd)
    finally:
        os.close(fd)


LINK_TARGETS = {
    "../notes.txt": "file",
    "deep/page.txt": "file",
    "deep": "directory",
    "..": "directory",
    "{root}": "directory",
    "{root}/notes.txt": "file",
    "fifo": "other",
    "missing": "missing",
    "../missing/x": "missing",
    "../notes.txt/x": "missing",
    "link": "missing",
    "{root}/missing": "missing",
    "n" * 300: "missing",
    "../../outside": "external",
    "../../outside/secret.txt": "external",
    "../../outside/missing": "external",
    "../../root/notes.txt": "external",
    "{root}/../outside/missing": "external",
    "/etc/passwd": "external",
    "/no/such/place": "external",
    "/proc/self/root": "external",
}


@pytest.mark.parametrize("target", LINK_TARGETS)
def test_a_link_is_told_by_what_it_leads_to(root: ConfinedRoot, base: Path, target: str) -> None:
    os.mkfifo(base / "root/docs/fifo")
    (base / "root/docs/link").symlink_to(target.format(root=base / "root"))
    with root.opened_parent("docs/link") as (dir_fd, name):
        assert root.link_target(dir_fd, name, "docs/link") == LINK_TARGETS[target]


def test_a_name_that_is_not_utf8_opens_and_is_shown_with_escapes(root: ConfinedRoot, base: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (base / f"root/{name}").symlink_to(base / "outside")
    with root.opened(name, os.O_PATH | os.O_NOFOLLOW) as fd:
        assert root.locate(fd) == name
    with pytest.raises(PathEscapesRoot) as refusal:
        root.open(name, os.O_RDONLY)
    assert refusal.value.message == "path resolves outside root boundary: caf\\xe9"


def test_a_child_directory_is_never_opened_through_a_link(root: ConfinedRoot, base: Path) -> None:
    (base / "root/link").symlink_to("docs")
    with root.opened("", confine.READ_DIRECTORY) as fd:
        child = open_child_directory(fd, "docs")
        assert os.listdir(child) == ["deep"]
        os.close(child)
        with pytest.raises(NotADirectoryError):
            open_child_directory(fd, "link")
        for name in ("..", "docs/deep", "/"):
            with pytest.raises(InvalidPath):
                open_child_directory(fd, name)


def test_renaming_without_replacing_keeps_what_is_there(root: ConfinedRoot, base: Path) -> None:
    (base / "root/other.txt").write_text("other")
    with root.opened("", confine.READ_DIRECTORY) as top, root.opened("docs", confine.READ_DIRECTORY) as docs:
        with pytest.raises(FileExistsError):
            rename_noreplace(top, "notes.txt", top, "other.txt")
        rename_noreplace(top, "notes.txt", docs, "moved.txt")
        with pytest.raises(FileNotFoundError):
            rename_noreplace(top, "notes.txt", docs, "moved-again.txt")
        with pytest.raises(OSError, match="cannot rename") as failure:
            rename_noreplace(top, "docs", docs, "docs")
        assert failure.value.errno == errno.ENOTSUP
    assert (base / "root/other.txt").read_text() == "other"
    assert (base / "root/docs/moved.txt").read_text() == "notes"


def test_renaming_without_replacing_says_so_where_the_system_cannot(
    root: ConfinedRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confine, "_libc", object())
    with pytest.raises(OSError, match="cannot rename") as failure:
        rename_noreplace(root.fd, "notes.txt", root.fd, "moved.txt")
    assert failure.value.errno == errno.ENOTSUP


def test_an_interrupted_openat2_is_asked_again(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [errno.EINTR, errno.EAGAIN, errno.EAGAIN]
    real_syscall = beneath._syscall

    def disturbed(*arguments: object) -> int:
        if failures:
            ctypes.set_errno(failures.pop())
            return -1
        return real_syscall(*arguments)

    monkeypatch.setattr(beneath, "_syscall", disturbed)
    with ConfinedRoot(str(base / "root"), resolver="openat2") as root:
        assert read(root, "notes.txt") == "notes"
    assert not failures


def test_endless_renames_cannot_stop_an_open(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def always_disturbed(*_: object) -> int:
        ctypes.set_errno(errno.EAGAIN)
        return -1

    monkeypatch.setattr(beneath, "_syscall", always_disturbed)
    with ConfinedRoot(str(base / "root"), resolver="openat2") as root:
        assert read(root, "notes.txt") == "notes"


def test_a_kernel_without_openat2_gets_the_walk(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> int:
        ctypes.set_errno(errno.ENOSYS)
        return -1

    monkeypatch.setattr(beneath, "_syscall", refused)
    beneath.kernel_has_openat2.cache_clear()
    try:
        with ConfinedRoot(str(base / "root")) as root:
            assert root.resolver == "walk"
            assert read(root, "notes.txt") == "notes"
    finally:
        beneath.kernel_has_openat2.cache_clear()


def test_an_entry_that_stops_being_a_link_meanwhile_is_opened_as_what_it_is(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "root/flips").symlink_to(base / "outside")
    real_open = os.open

    def flip_then_open(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        # The look at the link comes right after the open that stumbled over it: that is when it changes.
        if path == "flips" and flags == os.O_PATH | os.O_NOFOLLOW and (base / "root/flips").is_symlink():
            os.unlink(base / "root/flips")
            os.rename(base / "root/docs", base / "root/flips")
        return real_open(path, flags, mode, dir_fd=dir_fd)

    with ConfinedRoot(str(base / "root"), resolver="walk") as root:
        monkeypatch.setattr(os, "open", flip_then_open)
        assert read(root, "flips/deep/page.txt") == "page"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody with fewer rights")
@pytest.mark.parametrize("resolver", get_args(Resolver))
def test_what_the_system_hides_is_neither_opened_nor_described(base: Path, resolver: Resolver) -> None:
    (base / "root/closed").mkdir()
    (base / "root/closed/file").touch()
    (base / "root/link").symlink_to("closed/file")
    (base / "root/closed").chmod(0)
    probe = """
import os, sys
from armarium.foundation.files.confine import ConfinedRoot, READ_DIRECTORY
root = ConfinedRoot(sys.argv[1], resolver=sys.argv[2])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    root.open("link", os.O_RDONLY)
except PermissionError as error:
    print(error.filename)
with root.opened("", READ_DIRECTORY) as fd:
    print(root.link_target(fd, "link", "link"))
"""
    result = subprocess.run(
        [sys.executable, "-c", probe, str(base / "root"), resolver], capture_output=True, text=True, timeout=60
    )
    assert result.stdout.split() == ["link", "other"], result.stderr
