"""Copies owner, mode, extended attributes and times from one entry to another."""

from __future__ import annotations

import os
import stat
from contextlib import suppress

_SET_ID = stat.S_ISUID | stat.S_ISGID


def copy_owner_and_mode(fd: int, like: os.stat_result) -> None:
    """Set the owner and mode of the file that is going to be replaced."""
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (like.st_uid, like.st_gid):
        _chown(fd, like)
    os.fchmod(fd, stat.S_IMODE(like.st_mode))


def keep_attributes(source_fd: int, like: os.stat_result, fd: int) -> None:
    """Set everything that a moved file or directory keeps. Skip what this user may not set or the file system lacks."""
    mode = stat.S_IMODE(like.st_mode)
    if not _chown(fd, like):
        mode &= ~_SET_ID  # Under another owner these bits would grant that owner's rights.
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
    """Set the owner and times of a link itself."""
    with suppress(OSError):
        os.chown(name, like.st_uid, like.st_gid, dir_fd=dir_fd, follow_symlinks=False)
    with suppress(OSError):
        os.utime(name, ns=(like.st_atime_ns, like.st_mtime_ns), dir_fd=dir_fd, follow_symlinks=False)


def _chown(fd: int, like: os.stat_result) -> bool:
    """Set owner and group; without privileges only the group, if possible. Returns whether the owner was set."""
    try:
        os.fchown(fd, like.st_uid, like.st_gid)
    except PermissionError:
        with suppress(PermissionError):
            os.fchown(fd, -1, like.st_gid)
        return False
    return True
