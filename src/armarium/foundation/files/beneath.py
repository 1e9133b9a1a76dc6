"""Opens a path beneath a directory descriptor without leaving it, with `openat2` or component by component."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from functools import cache

Identity = tuple[int, int]

_SYS_OPENAT2 = 437  # the same on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_OPEN_HOW = struct.Struct("=QQQ")
_PROC_SUPER_MAGIC = 0x9FA0

MAX_LINKS = 40
"""How many links one resolution may follow; Linux has the same bound."""
_MAX_SWAPS = 10_000
_MAX_TRIES = 64
"""How often `openat2` is repeated when a concurrent rename affects a `..`."""

_OPEN_LINK = os.O_PATH | os.O_NOFOLLOW
_ENCODING = sys.getfilesystemencoding()
_ENCODING_ERRORS = sys.getfilesystemencodeerrors()

_libc = ctypes.CDLL(None, use_errno=True)
# No argtypes on purpose: passing ints and bytes directly is a third faster than with converters.
_syscall = _libc.syscall


class LeadsOutside(Exception):
    """Following the path would leave the directory. Only operators may see the target, `resolved`."""

    def __init__(self, resolved: str) -> None:
        super().__init__("path leads outside")
        self.resolved = resolved


@contextmanager
def closed_after(fd: int) -> Generator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def identity_of(fd: int) -> Identity:
    """Identifies an open file, whatever its name."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


@cache
def kernel_has_openat2() -> bool:
    """Whether `openat2` works here: old kernels lack it, and some container profiles deny it."""
    with closed_after(os.open("/", os.O_PATH | os.O_DIRECTORY)) as slash:
        try:
            os.close(openat2(slash, "", os.O_PATH | os.O_DIRECTORY))
        except OSError:
            return False
        return True


@cache
def _open_how(flags: int, mode: int) -> bytes:
    creates = flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE
    # Unlike open(), openat2 rejects a mode if nothing is created.
    return _OPEN_HOW.pack(flags | os.O_CLOEXEC, mode if creates else 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)


def openat2(dir_fd: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path` beneath `dir_fd` ("" is the directory itself). The kernel denies leaving it with EXDEV."""
    encoded = path.encode(_ENCODING, _ENCODING_ERRORS) or b"."
    how = _open_how(flags, mode)
    for _ in range(_MAX_TRIES):
        fd: int = _syscall(_SYS_OPENAT2, dir_fd, encoded, how, 24)
        if fd >= 0:
            return fd
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    raise _os_error(ctypes.get_errno(), path)


def walk(dir_fd: int, own_names: Iterable[str], path: str, flags: int, mode: int = 0) -> int:
    """Open `path` beneath `dir_fd` one component at a time, resolving every link in user space.

    Each component is opened `O_NOFOLLOW` from the descriptor before it, so an entry swapped for a link is seen as a
    link, and `..` goes back to a descriptor still held, never to wherever the directory was moved to. `own_names` are
    absolute paths of the directory: an absolute link to something below one of them continues from the directory.

    Two differences from `openat2` remain: every link inside procfs is refused, not only its magic ones, and a
    descriptor is held for each component, so a thousand of them can meet the process's limit (EMFILE).
    """
    pending = _components(path)[::-1]
    held: list[int] = []
    links = swaps = 0
    try:
        while pending:
            name = pending.pop()
            here = held[-1] if held else dir_fd
            if name in ("", "."):
                continue
            if name == "..":
                if not held:
                    raise LeadsOutside(_lexically(here, "..", pending))
                os.close(held.pop())
                continue
            # A link target with a trailing slash requires a directory, and open() creates none.
            if pending == [""] and flags & os.O_CREAT:
                raise _os_error(errno.EISDIR, path)
            try:
                if not pending:
                    return _open_last(here, name, flags, mode)
                held.append(os.open(name, _OPEN_LINK | os.O_DIRECTORY, dir_fd=here))
                continue
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR) or (not pending and flags & os.O_NOFOLLOW):
                    raise
                target = _read_link(here, name, pending, error)
            if target is None:
                # It was a link a moment ago, so it is being replaced concurrently: try again, up to a limit.
                swaps += 1
                if swaps > _MAX_SWAPS:
                    raise _os_error(errno.ELOOP, path)
                pending.append(name)
                continue
            links += 1
            if links > MAX_LINKS:
                raise _os_error(errno.ELOOP, path)
            if target.startswith("/"):
                below = _components_below(own_names, target)
                if below is None:
                    raise LeadsOutside(_lexically(here, target, pending))
                _close_all(held)
                pending += below[::-1]
            else:
                pending += _components(target)[::-1]
        return os.open(".", flags, mode, dir_fd=held[-1] if held else dir_fd)
    except OSError as error:
        raise _os_error(error.errno or errno.EIO, path) from None
    finally:
        _close_all(held)


def _open_last(here: int, name: str, flags: int, mode: int) -> int:
    fd = os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=here)
    # O_PATH opens a link itself where other opens fail, but the caller asked for its target.
    if flags & os.O_PATH and not flags & os.O_NOFOLLOW and stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise _os_error(errno.ELOOP, name)
    return fd


def _read_link(here: int, name: str, pending: list[str], error: OSError) -> str | None:
    """The target of the link that caused `error`, read from an open descriptor so that it cannot be replaced. None if
    it is no longer a link."""
    with closed_after(os.open(name, _OPEN_LINK, dir_fd=here)) as fd:
        kind = os.fstat(fd).st_mode
        if stat.S_ISLNK(kind):
            target = os.readlink("", dir_fd=fd)
            # A link in procfs may lead to an open file or another process's root, whatever its text is.
            if _is_procfs(fd):
                raise LeadsOutside(_lexically(here, target, pending))
            return target
    if error.errno == errno.ELOOP or stat.S_ISDIR(kind):
        return None
    raise error


def _is_procfs(fd: int) -> bool:
    statfs = ctypes.create_string_buffer(512)
    if _libc.fstatfs(fd, statfs) != 0:
        raise _os_error(ctypes.get_errno(), "")
    return ctypes.c_long.from_buffer(statfs).value == _PROC_SUPER_MAGIC


def _components(path: str) -> list[str]:
    """The components of a path or link target. A last "" or "." stays, because it requires a directory."""
    names = path.split("/")
    kept = [name for name in names if name not in ("", ".")]
    return [*kept, names[-1]] if kept and names[-1] in ("", ".") else kept


def _components_below(own_names: Iterable[str], target: str) -> list[str] | None:
    names = _components(target)
    for own_name in own_names:
        above = _components(own_name)
        if names[: len(above)] == above:
            return names[len(above) :]
    return None


def host_path(fd: int) -> str:
    """The current host path of a descriptor, from the kernel."""
    return os.readlink(f"/proc/self/fd/{fd}")


def _lexically(here: int, target: str, pending: list[str]) -> str:
    # By text only: resolving it would access files outside.
    return os.path.normpath(os.path.join(host_path(here), target, *pending[::-1]))


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


def _close_all(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())
