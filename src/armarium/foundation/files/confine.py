"""Confines paths to a root directory: normalises them, and opens them as descriptors."""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, Self

from armarium.foundation.files.beneath import (
    LeadsOutside,
    closed_after,
    host_path,
    identity_of,
    kernel_has_openat2,
    openat2,
    walk,
)
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
_OPEN_ROOT = os.O_PATH | os.O_DIRECTORY
MAX_PATH_BYTES = 4095  # PATH_MAX includes the terminating NUL.
MAX_NAME_BYTES = 255

_LONGEST_ESCAPED = 4 * MAX_PATH_BYTES  # every byte as `\xNN`
_RENAME_NOREPLACE = 1
_DELETED = " (deleted)"
# After these errors of openat2 the walk is more precise: an absolute link may still lead inside (EXDEV), a magic link
# is an escape and not a loop (ELOOP), and renames next to a ".." do not affect it (EAGAIN).
_RETRY_WITH_WALK = frozenset({errno.EXDEV, errno.ELOOP, errno.EAGAIN})
# Errors of opening a socket, or a device without a driver.
_NOTHING_TO_READ = frozenset({errno.ENXIO, errno.ENODEV})

_libc = ctypes.CDLL(None, use_errno=True)


def normalise(path: str) -> str:
    """The path relative to the root, "" for the root itself. "/" is the root, and `..` is resolved lexically. Escapes
    of `escape_name` are decoded: the result is a path of the file system."""
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
    return _normalise_slowly(path)


def _normalise_slowly(path: str) -> str:
    # Check the number of characters first, to avoid encoding and splitting megabytes.
    if len(path) > _LONGEST_ESCAPED:
        raise _invalid(path, f"path is longer than {MAX_PATH_BYTES} bytes")
    try:
        path = unescape_name(path)
    except NotAnEscape as error:
        raise _invalid(path, f"path contains characters that no file name can hold: {error}") from None
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


def _invalid(path: str, reason: str) -> InvalidPath:
    # The message does not contain the path: it may be huge, or impossible to encode.
    return InvalidPath(reason, private={"attempted": path[:MAX_NAME_BYTES].encode(errors="backslashreplace").decode()})


def _escapes(path: str, *, resolved: str) -> PathEscapesRoot:
    return PathEscapesRoot(
        f"path resolves outside root boundary: {escape_name(path)}",
        private={"attempted": escape_name(path), "resolved": escape_name(resolved)},
    )


class ConfinedRoot:
    """A directory that confines all paths opened through it. Methods take paths as returned by `normalise` and follow
    links that stay inside. A path that leads outside raises `PathEscapesRoot`; other failures are an `OSError` with the
    path relative to the root. The caller must close every returned descriptor. Child processes do not inherit them."""

    def __init__(self, path: str, *, resolver: Resolver | None = None, follow_links: bool = True) -> None:
        self.fd = -1  # `close` is also called if the open below fails
        self.fd = os.open(path, _OPEN_ROOT) if follow_links else open_without_links(path, _OPEN_ROOT)
        self.real_path = host_path(self.fd)
        self.identity = identity_of(self.fd)
        self.resolver: Resolver = resolver or ("openat2" if kernel_has_openat2() else "walk")
        # Absolute links may use the path in the settings, which may itself be a link.
        self._own_names = (self.real_path, os.path.abspath(path))

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        # A replaced root stays open until the last call that uses it has ended.
        self.close()

    def reopened(self) -> ConfinedRoot:
        """The directory that is now at this root's path. Links are not followed: an agent may have created them."""
        fresh = ConfinedRoot(self.real_path, resolver=self.resolver, follow_links=False)
        fresh._own_names = self._own_names
        return fresh

    @property
    def descriptor_path(self) -> str:
        """A path to the open directory itself, even if it was moved or replaced."""
        return f"/proc/self/fd/{self.fd}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Open a normalised path ("" is the root). `O_PATH | O_NOFOLLOW` opens an entry itself."""
        if "\0" in path:  # C would open the part before it.
            raise _invalid(path, "path contains a null byte")
        if self.resolver == "openat2":
            try:
                return openat2(self.fd, path, flags, mode)
            except OSError as error:
                if error.errno not in _RETRY_WITH_WALK:
                    raise
        try:
            return walk(self.fd, self._own_names, path, flags, mode)
        except LeadsOutside as way_out:
            raise _escapes(path, resolved=way_out.resolved) from None

    @contextmanager
    def opened(self, path: str, flags: int, mode: int = 0) -> Generator[int]:
        """`open`, closed at the end of the block."""
        with closed_after(self.open(path, flags, mode)) as fd:
            yield fd

    def open_directory(self, path: str) -> int:
        return self.open(path, READ_DIRECTORY)

    @contextmanager
    def opened_parent(self, path: str) -> Generator[tuple[int, str]]:
        """The parent directory of an entry, open for fsync and `dir_fd=`, and the name of the entry. The entry need not
        exist, and a link is not followed. The parent of the root cannot be opened, so "" raises `IsADirectory`."""
        parent, _, name = path.rpartition("/")
        if not name:
            raise IsADirectory("path is the root directory itself")
        with closed_after(self.open_directory(parent)) as fd:
            yield fd, name

    def open_regular(self, path: str) -> tuple[int, os.stat_result]:
        """Open a regular file for reading. Returns it with its status. Raise for anything else, without blocking."""
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
        with closed_after(fd):
            yield fd, status

    def make_directories(self, path: str, made: list[str] | None = None) -> int:
        """Create a directory and its missing parents, and open it for listing. Other processes may create the same
        directories concurrently. A file or a broken link on the path raises `NotADirectory`. The paths of the created
        directories are added to `made`."""
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
        """Remove the directories that are still empty, the last first; see `made` of `make_directories`."""
        for path in reversed(paths):
            with suppress(OSError, PathEscapesRoot), self.opened_parent(path) as (parent_fd, name):
                os.rmdir(name, dir_fd=parent_fd)

    def _make_child(self, parent_fd: int, name: str, path: str, made: list[str] | None) -> int:
        """Create a directory if it is missing, and open it. Always closes the descriptor of the parent."""
        try:
            with suppress(FileExistsError):  # Another process created it; opening it checks what it is.
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
        """The current path of a descriptor, relative to the root. Raise `PathEscapesRoot` if it is deleted or outside.
        With `last_known`, the result for a file that was deleted or replaced since it was opened is its last path."""
        # Read both paths now: an operator may have moved the root itself since it was opened.
        there, base = host_path(fd), host_path(self.fd)
        prefix = base if base.endswith("/") else base + "/"
        if there == base:
            return ""
        inside = there.startswith(prefix)
        if inside and there.endswith(_DELETED) and not self._is_at(there[len(prefix) :], fd):
            # Read it again: only for a file without links the mark is certainly not part of the name.
            gone = last_known and os.fstat(fd).st_nlink == 0
            there = host_path(fd).removesuffix(_DELETED)
            inside = gone and there.startswith(prefix)
        if not inside:
            raise PathEscapesRoot("path resolves outside root boundary", private={"resolved": escape_name(there)})
        return there[len(prefix) :]

    def _is_at(self, path: str, fd: int) -> bool:
        """Whether the descriptor is the file at the path, to detect names that really end in "(deleted)"."""
        try:
            with self.opened(path, os.O_PATH | os.O_NOFOLLOW) as found:
                return os.path.samestat(os.fstat(found), os.fstat(fd))
        except (OSError, PathEscapesRoot):
            return False

    def link_target(self, dir_fd: int, name: str, path: str) -> LinkTarget:
        """The type of the target of the link `name` in `dir_fd`, whose path is `path`. A target outside is "external"
        whether or not it exists, because that would reveal something about the outside. A loop is "missing", and a
        target without permission is "other"."""
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
        with closed_after(fd):
            mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            return "directory"
        return "file" if stat.S_ISREG(mode) else "other"

    def _follow(self, dir_fd: int, name: str, path: str) -> int:
        # Most links stay in their directory: this is fast, and correct even while a parent directory is renamed.
        try:
            if self.resolver == "openat2":
                return openat2(dir_fd, name, os.O_PATH)
            return walk(dir_fd, (), name, os.O_PATH)
        except LeadsOutside:
            pass
        except OSError as error:
            if error.errno not in _RETRY_WITH_WALK:
                raise
        return self.open(path, os.O_PATH)


def _not_regular(path: str) -> NotARegularFile:
    return NotARegularFile(f"not a regular file: {escape_name(path)}", hint="FIFOs, sockets and devices cannot be read")


def open_without_links(path: str, flags: int, dir_fd: int | None = None) -> int:
    """Open a directory by an absolute path, or one below `dir_fd`. Raise if there is a link anywhere on it."""
    fd = os.open("/" if dir_fd is None else ".", flags, dir_fd=dir_fd)
    for name in filter(None, path.split("/")):
        with closed_after(fd):
            fd = os.open(name, flags | os.O_NOFOLLOW, dir_fd=fd)
    return fd


def open_child_directory(dir_fd: int, name: str) -> int:
    """Open a child directory for listing. Links are not followed."""
    if "/" in name or name == "..":
        raise _invalid(name, "a single name was expected")
    return os.open(name, READ_DIRECTORY | os.O_NOFOLLOW, dir_fd=dir_fd)


def rename_noreplace(src_fd: int, src: str, dst_fd: int, dst: str) -> None:
    """Rename an entry atomically unless the new name exists (`FileExistsError`). ENOTSUP means that the file system or
    C library does not support it, or that a directory would move into itself, which many file systems report the same
    way. The caller may fall back to a check and a plain rename."""
    failure = errno.ENOSYS
    if (renameat2 := getattr(_libc, "renameat2", None)) is not None:
        if renameat2(src_fd, os.fsencode(src), dst_fd, os.fsencode(dst), _RENAME_NOREPLACE) == 0:
            return
        failure = ctypes.get_errno()
    if failure in (errno.ENOSYS, errno.EINVAL):
        raise OSError(errno.ENOTSUP, "cannot rename without the risk of replacing", dst)
    raise OSError(failure, os.strerror(failure), dst)
