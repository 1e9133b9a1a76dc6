"""Keeps every path of a call inside its root: names are cleaned here, and opened here as descriptors."""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, Self

from armarium.foundation.files.beneath import LeadsOutside, host_path, kernel_has_openat2, openat2, walk
from armarium.foundation.files.errors import (
    InvalidPath,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
    PathEscapesRoot,
)
from armarium.foundation.files.names import NotAnEscape, escape_name, unescape_name

Resolver = Literal["openat2", "walk"]
LinkTarget = Literal["file", "directory", "other", "external", "missing"]

READ_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
MAX_PATH_BYTES = 4095  # PATH_MAX counts the closing NUL.
MAX_NAME_BYTES = 255

_LONGEST_ESCAPED = 4 * MAX_PATH_BYTES  # every byte as `\xNN`
_RENAME_NOREPLACE = 1
_DELETED = " (deleted)"
# Where openat2 stops, the walk knows more: an absolute link may still lead inside (EXDEV), a magic link is an escape
# and not a loop (ELOOP), and renames next to a ".." do not disturb it (EAGAIN).
_ASK_THE_WALK = frozenset({errno.EXDEV, errno.ELOOP, errno.EAGAIN})
# What opening a socket, or a device without a driver, answers.
_NOTHING_TO_READ = frozenset({errno.ENXIO, errno.ENODEV})

_libc = ctypes.CDLL(None, use_errno=True)


def normalise(path: str) -> str:
    """The path relative to the root, "" for the root itself: "/" is the root, and `..` is resolved by name alone.

    The caller may have written bytes that are not UTF-8 as `escape_name` does; the answer is a name of the file system.
    """
    if (
        len(path) <= MAX_NAME_BYTES
        and path.isascii()
        and path[:1] not in ("", "/", ".")
        and "/." not in path
        and "//" not in path
        and path[-1] != "/"
        and "\0" not in path
        and "\\x" not in path
    ):
        return path
    return _normalise_with_care(path)


def _normalise_with_care(path: str) -> str:
    # The length in characters first: encoding and splitting a path of megabytes would be work for nothing.
    if len(path) > _LONGEST_ESCAPED:
        raise _invalid(path, f"path is longer than {MAX_PATH_BYTES} bytes")
    path = _unescaped(path)
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise _invalid(path, f"path is longer than {MAX_PATH_BYTES} bytes")
    if "\0" in path:
        raise _invalid(path, "path contains a null byte")
    kept: list[str] = []
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not kept:
                raise _escapes(path, resolved=posixpath.normpath(path.lstrip("/")))
            kept.pop()
            continue
        if len(os.fsencode(name)) > MAX_NAME_BYTES:
            raise _invalid(path, f"path has a name longer than {MAX_NAME_BYTES} bytes")
        kept.append(name)
    return "/".join(kept)


def _unescaped(path: str) -> str:
    try:
        return unescape_name(path)
    except NotAnEscape as error:
        raise _invalid(path, f"path contains characters that no file name can hold: {error}") from None


def _invalid(path: str, reason: str) -> InvalidPath:
    # The path itself stays out of the message: it may be huge, and it may not even be encodable.
    return InvalidPath(reason, private={"attempted": path[:MAX_NAME_BYTES].encode(errors="backslashreplace").decode()})


def _escapes(path: str, *, resolved: str) -> PathEscapesRoot:
    return PathEscapesRoot(
        f"path resolves outside root boundary: {escape_name(path)}",
        private={"attempted": escape_name(path), "resolved": escape_name(resolved)},
    )


class ConfinedRoot:
    """One directory, and everything that may be opened below it.

    Methods take paths as `normalise` returns them and follow links that stay inside. Whatever leads outside raises
    `PathEscapesRoot`; other failures are the operating system's own `OSError`, naming the path relative to the root.
    Every descriptor returned is the caller's to close, and is not inherited by child processes.
    """

    def __init__(self, path: str, *, resolver: Resolver | None = None, follow_links: bool = True) -> None:
        self.fd = -1  # `close` is called also when the open below fails
        self.fd = os.open(path, os.O_PATH | os.O_DIRECTORY) if follow_links else _open_without_links(path)
        self.real_path = host_path(self.fd)
        status = os.fstat(self.fd)
        self.identity = (status.st_dev, status.st_ino)
        self.resolver: Resolver = resolver or ("openat2" if kernel_has_openat2() else "walk")
        # An operator may have written absolute links by the name in the settings, itself perhaps a link.
        self._own_names = (self.real_path, os.path.abspath(path))

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        # A root that was replaced stays open until the last call that works in it has ended.
        self.close()

    def reopened(self) -> ConfinedRoot:
        """The directory that is at this root's place now. No link on the way is followed: it may be an agent's."""
        fresh = ConfinedRoot(self.real_path, resolver=self.resolver, follow_links=False)
        fresh._own_names = self._own_names
        return fresh

    @property
    def descriptor_path(self) -> str:
        """A path to the open directory itself, whatever is at its place by now."""
        return f"/proc/self/fd/{self.fd}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Open a normalised path ("" is the root); to look at an entry itself, ask for `O_PATH | O_NOFOLLOW`."""
        if "\0" in path:  # C would silently open the part before it.
            raise _invalid(path, "path contains a null byte")
        if self.resolver == "openat2":
            try:
                return openat2(self.fd, path, flags, mode)
            except OSError as error:
                if error.errno not in _ASK_THE_WALK:
                    raise
        try:
            return walk(self.fd, self._own_names, path, flags, mode)
        except LeadsOutside as way_out:
            raise _escapes(path, resolved=way_out.resolved) from None

    @contextmanager
    def opened(self, path: str, flags: int, mode: int = 0) -> Generator[int]:
        """`open`, closed at the end of the block."""
        fd = self.open(path, flags, mode)
        try:
            yield fd
        finally:
            os.close(fd)

    def open_directory(self, path: str) -> int:
        """A directory to list."""
        return self.open(path, READ_DIRECTORY)

    def open_parent(self, path: str) -> tuple[int, str]:
        """The directory that holds the entry, good for fsync and every `dir_fd=` call, and the entry's own name.

        The entry is not touched and need not exist; a link stays the link. The root has no parent that may be opened,
        so "" raises `IsADirectory`.
        """
        parent, _, name = path.rpartition("/")
        if not name:
            raise IsADirectory("path is the root directory itself")
        return self.open_directory(parent), name

    @contextmanager
    def opened_parent(self, path: str) -> Generator[tuple[int, str]]:
        """`open_parent`, closed at the end of the block."""
        fd, name = self.open_parent(path)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def open_regular(self, path: str) -> tuple[int, os.stat_result]:
        """A regular file to read and its status; anything else is refused without waiting for it."""
        try:
            fd = self.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError as error:
            if error.errno in _NOTHING_TO_READ:
                raise _not_regular(path) from None
            raise
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode):
            return fd, status
        os.close(fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectory(f"is a directory: {escape_name(path) or '/'}")
        raise _not_regular(path)

    @contextmanager
    def opened_regular(self, path: str) -> Generator[tuple[int, os.stat_result]]:
        """`open_regular`, closed at the end of the block."""
        fd, status = self.open_regular(path)
        try:
            yield fd, status
        finally:
            os.close(fd)

    def make_directories(self, path: str, made: list[str] | None = None) -> int:
        """Create the directory and those above it where they are missing, and open it to list.

        Others may create the same directories meanwhile. A file, or a link to nothing, in the way is `NotADirectory`.
        The paths of those that this call created are added to `made`.
        """
        existing, missing = path, list[str]()
        while True:
            try:
                fd = self.open_directory(existing)
                break
            except FileNotFoundError:
                if not existing:
                    raise
                existing, _, name = existing.rpartition("/")
                missing.append(name)
            except NotADirectoryError:
                raise NotADirectory(f"not a directory: {escape_name(existing)}") from None
        while missing:
            name = missing.pop()
            existing = f"{existing}/{name}" if existing else name
            fd = self._make_child(fd, name, existing, made)
        return fd

    def remove_empty(self, paths: Sequence[str]) -> None:
        """Remove directories, the last first, that are still empty; `make_directories` told which it had made."""
        for path in reversed(paths):
            with suppress(OSError, PathEscapesRoot), self.opened_parent(path) as (parent_fd, name):
                os.rmdir(name, dir_fd=parent_fd)

    def _make_child(self, parent_fd: int, name: str, path: str, made: list[str] | None) -> int:
        """Create one directory if it is missing and open it; the parent's descriptor is closed either way."""
        try:
            with suppress(FileExistsError):  # Somebody was faster; what they made is judged by opening it.
                os.mkdir(name, dir_fd=parent_fd)
                if made is not None:
                    made.append(path)
            return open_child_directory(parent_fd, name)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise NotADirectory(f"not a directory: {escape_name(path)}", name=escape_name(name)) from None
            raise
        finally:
            os.close(parent_fd)

    def locate(self, fd: int, *, last_known: bool = False) -> str:
        """Where a descriptor really is, relative to the root; a file deleted or moved out raises `PathEscapesRoot`.

        With `last_known` a file that was deleted, or replaced by a rename, since it was opened is told by its old name.
        """
        # Both places are asked for now: an operator may have moved the root itself since it was opened.
        there, base = host_path(fd), host_path(self.fd)
        prefix = base if base.endswith("/") else base + "/"
        if there == base:
            return ""
        inside = there.startswith(prefix)
        if inside and there.endswith(_DELETED) and not self._is_at(there[len(prefix) :], fd):
            # Asked again, because only of a file without names it is sure that the mark is not part of the name.
            gone = last_known and os.fstat(fd).st_nlink == 0
            there = host_path(fd).removesuffix(_DELETED)
            inside = gone and there.startswith(prefix)
        if not inside:
            raise PathEscapesRoot("path resolves outside root boundary", private={"resolved": escape_name(there)})
        return there[len(prefix) :]

    def _is_at(self, path: str, fd: int) -> bool:
        """Whether this very file stands at the path; tells a file whose name ends in "(deleted)" from a deleted one."""
        try:
            with self.opened(path, os.O_PATH | os.O_NOFOLLOW) as found:
                return os.path.samestat(os.fstat(found), os.fstat(fd))
        except (OSError, PathEscapesRoot):
            return False

    def link_target(self, dir_fd: int, name: str, path: str) -> LinkTarget:
        """What the link `name` in `dir_fd`, whose path is `path`, leads to.

        Outside is "external" whether or not something is there: the difference would already tell of the outside. A
        loop leads nowhere and is "missing"; what the operating system will not let us see is "other".
        """
        try:
            fd = self._follow(dir_fd, name, path)
        except PathEscapesRoot:
            return "external"
        except PermissionError:
            return "other"
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
                return "missing"
            raise
        try:
            mode = os.fstat(fd).st_mode
        finally:
            os.close(fd)
        if stat.S_ISDIR(mode):
            return "directory"
        return "file" if stat.S_ISREG(mode) else "other"

    def _follow(self, dir_fd: int, name: str, path: str) -> int:
        # Most links stay in their own directory: one short step, and right even while a directory above is renamed.
        try:
            if self.resolver == "openat2":
                return openat2(dir_fd, name, os.O_PATH)
            return walk(dir_fd, (), name, os.O_PATH)
        except LeadsOutside:
            pass
        except OSError as error:
            if error.errno not in _ASK_THE_WALK:
                raise
        return self.open(path, os.O_PATH)


def _not_regular(path: str) -> NotARegularFile:
    return NotARegularFile(f"not a regular file: {escape_name(path)}", hint="FIFOs, sockets and devices cannot be read")


def _open_without_links(path: str) -> int:
    """An absolute path as it is written: a link anywhere on it is refused."""
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY)
    for name in path.split("/"):
        if name:
            try:
                below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
            finally:
                os.close(fd)
            fd = below
    return fd


def open_child_directory(dir_fd: int, name: str) -> int:
    """A directory inside another, to list; never through a link."""
    if "/" in name or name == "..":
        raise _invalid(name, "a single name was expected")
    return os.open(name, READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)


def rename_noreplace(src_fd: int, src: str, dst_fd: int, dst: str) -> None:
    """Rename an entry in one step unless the new name is taken (`FileExistsError`).

    ENOTSUP: this file system or C library cannot, or a directory was to move into itself, which many file systems
    report the same way. A caller that can do with a look before a plain rename may fall back to that.
    """
    try:
        renameat2 = _libc.renameat2
    except AttributeError:
        raise _cannot_rename_noreplace(dst) from None
    if renameat2(src_fd, os.fsencode(src), dst_fd, os.fsencode(dst), _RENAME_NOREPLACE) == 0:
        return
    failure = ctypes.get_errno()
    if failure in (errno.ENOSYS, errno.EINVAL):
        raise _cannot_rename_noreplace(dst)
    raise OSError(failure, os.strerror(failure), dst)


def _cannot_rename_noreplace(dst: str) -> OSError:
    return OSError(errno.ENOTSUP, "cannot rename without the risk of replacing", dst)
