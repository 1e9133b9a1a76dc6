"""Gives a file the owner, mode, extended attributes and times of another."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

_SET_ID = stat.S_ISUID | stat.S_ISGID


def take_after(fd: int, like: os.stat_result) -> None:
    """Owner and mode of the file that is about to be replaced."""
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
        _chown(fd, like)
    os.fchmod(fd, stat.S_IMODE(like.st_mode))


def keep_attributes(source_fd: int, like: os.stat_result, fd: int) -> None:
    """Everything a moved file or directory keeps. What this user may not set, or the file system has not, is left."""
    mode = stat.S_IMODE(like.st_mode)
    if not _chown(fd, like):
        mode &= ~_SET_ID  # Under another owner these bits would give away that owner's rights.
    with suppress(OSError):
        os.fchmod(fd, mode)
    with suppress(OSError):
        for name in os.listxattr(source_fd):
            with suppress(OSError):
                os.setxattr(fd, name, os.getxattr(source_fd, name))
    # Last, because everything above may change them.
    with suppress(OSError):
        os.utime(fd, ns=(like.st_atime_ns, like.st_mtime_ns))


def keep_link_attributes(like: os.stat_result, dir_fd: int, name: str) -> None:
    """Owner and times of a link itself."""
    with suppress(OSError):
        os.chown(name, like.st_uid, like.st_gid, dir_fd=dir_fd, follow_symlinks=False)
    with suppress(OSError):
        os.utime(name, ns=(like.st_atime_ns, like.st_mtime_ns), dir_fd=dir_fd, follow_symlinks=False)


def _chown(fd: int, like: os.stat_result) -> bool:
    """Without privileges a file of somebody else becomes ours; its group we may at least keep."""
    try:
        os.fchown(fd, like.st_uid, like.st_gid)
    except PermissionError:
        with suppress(PermissionError):
            os.fchown(fd, -1, like.st_gid)
        return False
    return True
