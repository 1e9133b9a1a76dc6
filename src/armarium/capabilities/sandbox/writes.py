"""Changes single files so that a crash leaves the old file or the new one, and two callers never mix theirs."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from armarium.capabilities.sandbox import patch as patches
from armarium.capabilities.sandbox.errors import AlreadyExists, Conflict, FileTooLarge, NotFound, PermissionDenied
from armarium.capabilities.sandbox.reading import digest, human_size
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.files.confine import rename_noreplace
from armarium.foundation.files.errors import IsADirectory, NotARegularFile
from armarium.foundation.limits import Pulse

MAX_PATCHED_BYTES = 64 * 1024 * 1024
_COPY_BLOCK = 8 * 1024 * 1024
_NEW_FILE_MODE = 0o666

Fill = Callable[[int], None]
"""Writes a file's content into an open descriptor."""


class FileLocks:
    """Lets one caller at a time read and replace a file. A fixed set of locks serves all files."""

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(256)]

    @contextmanager
    def holding(self, *places: tuple[int, str]) -> Generator[None]:
        """Hold the files named by (directory descriptor, name)."""
        indexes = {hash((os.fstat(fd).st_dev, os.fstat(fd).st_ino, name)) % len(self._locks) for fd, name in places}
        with ExitStack() as held:
            # Always in the same order, so that two moves in opposite directions cannot wait for each other.
            for index in sorted(indexes):
                held.enter_context(self._locks[index])
            yield


@dataclass(slots=True)
class Place:
    """Where a write really goes: a directory, a name in it, and what stands there now."""

    dir_fd: int
    name: str
    path: str
    current: os.stat_result | None


@dataclass(frozen=True, slots=True)
class Replaced:
    """What a write left behind."""

    size: int
    created: bool
    sha256: str


@contextmanager
def place_for_writing(root: Root, path: str, locks: FileLocks, *, make_parents: bool) -> Generator[Place]:
    """Find where to write, through links that stay inside, and keep others from writing there meanwhile."""
    real = _real_path(root, path)
    parent, _, name = real.rpartition("/")
    if not name:
        raise IsADirectory("path is the root directory itself")
    if root.ignore:
        root.require_visible(root.whereabouts(real))
    dir_fd = root.confined.make_directories(parent) if make_parents else root.confined.open_directory(parent)
    try:
        if root.ignore:
            directory = root.confined.locate(dir_fd)
            root.require_visible(f"{directory}/{name}" if directory else name)
        with locks.holding((dir_fd, name)):
            yield Place(dir_fd, name, real, _status_of_regular(dir_fd, name, path))
    finally:
        os.close(dir_fd)


def _real_path(root: Root, path: str) -> str:
    """Where the path leads once links are followed; the path itself when nothing is there yet."""
    try:
        with root.confined.opened(path, os.O_PATH) as fd:
            # Another writer may replace the file at this very moment; its name stays the place to write to.
            return root.confined.locate(fd, last_known=True)
    except FileNotFoundError:
        return path


def has_parent(root: Root, path: str) -> bool:
    """Whether the directory that would hold the file exists."""
    try:
        with root.confined.opened(path.rpartition("/")[0], os.O_PATH | os.O_DIRECTORY):
            return True
    except FileNotFoundError:
        return False


def _status_of_regular(dir_fd: int, name: str, path: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectory(f"is a directory: {path}")
    if stat.S_ISLNK(status.st_mode):
        raise NotFound(f"link leads to nothing: {path}", hint="remove the link first, or write to another path")
    if not stat.S_ISREG(status.st_mode):
        raise NotARegularFile(f"not a regular file: {path}")
    return status


def write(place: Place, content: bytes, mode: str, path: str, pulse: Pulse) -> Replaced:
    """Overwrite, append or create; the answer's size is what was written, its hash that of the whole file."""
    if mode == "create_only" and place.current is not None:
        raise _already_exists(path)
    _require_writable(place, path)

    def fill(fd: int) -> None:
        if mode == "append" and place.current is not None:
            with _opened(place) as old:
                copy_content(old, fd, pulse)
                os.lseek(fd, 0, os.SEEK_END)
        _write_all(fd, content)

    replace_file(place.dir_fd, place.name, fill, like=place.current, exclusive=mode == "create_only", shown=path)
    if mode == "append" and place.current is not None:
        with _opened(place) as new:
            return Replaced(len(content), False, digest(new, "sha256", pulse))
    return Replaced(len(content), place.current is None, sha256(content))


def patched(place: Place, diff: bytes, path: str, *, reveal: bool) -> tuple[bytes | None, patches.Patched]:
    """The file's content and what the diff makes of it; nothing is written. Errors quote the file only if `reveal`."""
    before: bytes | None = None
    if place.current is not None:
        if place.current.st_size > MAX_PATCHED_BYTES:
            raise FileTooLarge(
                f"file too large to patch (size: {human_size(place.current.st_size)}, "
                f"limit: {human_size(MAX_PATCHED_BYTES)}): {path}"
            )
        with _opened(place) as fd:
            before = _read_all(fd)
    return before, patches.apply_patch(before, diff, reveal=reveal)


def sha256(content: bytes) -> str:
    """The hash that `if_match` compares."""
    return hashlib.sha256(content).hexdigest()


def replace_with(place: Place, content: bytes, path: str) -> None:
    """Put new content in the file's place."""
    _require_writable(place, path)
    replace_file(place.dir_fd, place.name, lambda fd: _write_all(fd, content), like=place.current, shown=path)


def require_match(dir_fd: int, name: str, if_match: str | None, path: str, pulse: Pulse) -> None:
    """Raise `Conflict` unless the file still has the hash the caller saw."""
    if if_match is None:
        return
    current: str | None = None
    with suppress(FileNotFoundError):
        if stat.S_ISREG(os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=dir_fd)
            try:
                current = digest(fd, "sha256", pulse)
            finally:
                os.close(fd)
    if current != if_match.lower():
        raise Conflict(
            f"file has changed since it was read: {path}" if current else f"no such file to match: {path}",
            hint="read the file again and decide anew",
            current_sha256=current,
        )


def replace_file(
    dir_fd: int,
    name: str,
    fill: Fill,
    *,
    like: os.stat_result | None,
    new_mode: int = _NEW_FILE_MODE,
    exclusive: bool = False,
    shown: str,
) -> None:
    """Write a new file beside the old one and rename it into place, with the old one's mode and owner."""
    temporary = f".armarium-{secrets.token_hex(8)}.tmp"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600 if like else new_mode, dir_fd=dir_fd)
    try:
        try:
            fill(fd)
            if like is not None:
                _take_after(fd, like)
            os.fsync(fd)
        finally:
            os.close(fd)
        if exclusive:
            _rename_if_free(dir_fd, temporary, name, shown)
        else:
            os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=dir_fd)
        raise
    os.fsync(dir_fd)


def _take_after(fd: int, like: os.stat_result) -> None:
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
        # Without privileges a file of somebody else becomes ours; its group we may at least keep.
        try:
            os.fchown(fd, like.st_uid, like.st_gid)
        except PermissionError:
            with suppress(PermissionError):
                os.fchown(fd, -1, like.st_gid)
    os.fchmod(fd, stat.S_IMODE(like.st_mode))


def _rename_if_free(dir_fd: int, temporary: str, name: str, path: str) -> None:
    try:
        rename_noreplace(dir_fd, temporary, dir_fd, name)
    except FileExistsError:
        raise _already_exists(path) from None
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        try:
            os.link(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
        except FileExistsError:
            raise _already_exists(path) from None
        os.unlink(temporary, dir_fd=dir_fd)


def _already_exists(path: str) -> AlreadyExists:
    return AlreadyExists(f"file already exists: {path}; use overwrite mode to replace")


def _require_writable(place: Place, path: str) -> None:
    # Renaming over a file needs no right to write it; the caller would expect one.
    if place.current is not None and not os.access(place.name, os.W_OK, dir_fd=place.dir_fd, effective_ids=True):
        raise PermissionDenied(f"the file is write-protected: {path}")


def copy_content(source: int, target: int, pulse: Pulse) -> int:
    """Copy from one descriptor to another, in the kernel where it can; returns the bytes copied."""
    copied = 0
    try:
        while count := os.copy_file_range(source, target, _COPY_BLOCK, copied, copied):
            copied += count
            pulse.beat(copied)
    except OSError as error:
        if copied or error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    if copied:
        return copied
    # Nothing came: an empty file, or a file system that cannot; reading tells which.
    while block := os.pread(source, _COPY_BLOCK, copied):
        os.pwrite(target, block, copied)
        copied += len(block)
        pulse.beat(copied)
    return copied


@contextmanager
def _opened(place: Place) -> Generator[int]:
    fd = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place.dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    while part := os.read(fd, _COPY_BLOCK):
        parts.append(part)
    return b"".join(parts)


def _write_all(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]
