"""Reads and writes the server's own files: private directories, atomic replacement, regular files only."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

_OWNER_ONLY = 0o700
_DEFAULT_STATE = "~/.local/state/armarium"


def user_state_directory() -> Path:
    """The directory of this user's own state, unless settings name another one."""
    home = os.environ.get("XDG_STATE_HOME")
    return Path(home) / "armarium" if home else Path(_DEFAULT_STATE).expanduser()


def user_state_directories() -> list[Path]:
    """Where servers of this user can have their state: another one may run without XDG_STATE_HOME."""
    # Unlike that of `Path`, this `expanduser` accepts a user without a home.
    return list(dict.fromkeys((user_state_directory(), Path(os.path.expanduser(_DEFAULT_STATE)))))


def make_private_directory(directory: Path) -> None:
    """Create a directory and its missing parents, each accessible to its owner only. Existing ones stay unchanged.
    `mkdir(parents=True, mode=…)` gives the parents whatever mode the umask leaves."""
    for each in reversed([directory, *directory.parents]):
        if not each.exists():
            each.mkdir(mode=_OWNER_ONLY, exist_ok=True)


@contextmanager
def fresh_file(path: Path, content: bytes, *, mode: int = 0o600) -> Generator[Path]:
    """A synced temporary file beside a path, to be renamed or linked to it. It does not outlive the block."""
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield fresh
    finally:
        fresh.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file atomically and durably."""
    with fresh_file(path, content, mode=mode) as fresh:
        os.replace(fresh, path)


def create_once(path: Path, content: bytes) -> None:
    """Create a private file and its directory. If several processes do so at once, all of them find the same file."""
    make_private_directory(path.parent)
    # link() does not replace.
    with fresh_file(path, content) as fresh, suppress(FileExistsError):
        os.link(fresh, path)


def file_version(path: Path) -> tuple[int, ...] | None:
    """A value that changes whenever the file does; None if it cannot be found."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_mode


@contextmanager
def exclusive_lock(directory: Path) -> Generator[None]:
    """Let one process at a time create files in the directory."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def make_way(path: Path) -> None:
    """Remove anything at the path that is not a regular file."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(path)
    elif not stat.S_ISREG(mode):
        os.unlink(path)


def open_regular(path: Path) -> FileIO:
    """Open a regular file for reading. Raise `OSError` for anything else: opening a pipe would block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path.name} is not a file")
        return FileIO(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
