"""Directory listings, metadata and permissions of entries."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import stat
import struct
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.results import (
    Entry,
    EntryType,
    Folder,
    LinkTarget,
    Metadata,
    Permissions,
    TargetType,
)
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.files.confine import READ_DIRECTORY
from armarium.foundation.files.errors import PathEscapesRoot
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_names import is_staged

_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_MASK_AND_BIRTH = struct.Struct("=I76xqI")
"""The mask, and the seconds and nanoseconds of the birth time, of the kernel's `struct statx`."""
_STATX_BYTES = 256
_EPOCH = date(1970, 1, 1).toordinal()

_libc = ctypes.CDLL(None, use_errno=True)


def iso_time(nanoseconds: int) -> str:
    """A file time as ISO 8601 in UTC with microseconds."""
    # datetime takes five times as long, and a listing may have ten thousand entries.
    seconds, fraction = divmod(nanoseconds, 1_000_000_000)
    day, second = divmod(seconds, 86_400)
    minute, second = divmod(second, 60)
    return f"{_date(day)}T{minute // 60:02d}:{minute % 60:02d}:{second:02d}.{fraction // 1000:06d}Z"


@lru_cache(maxsize=4096)
def _date(day: int) -> str:
    # File systems can store years that Python cannot represent: use the nearest one.
    return date.fromordinal(max(1, min(_EPOCH + day, date.max.toordinal()))).isoformat()


def entry_type(mode: int) -> EntryType:
    """The contract's type for an entry of this mode."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def list_folder(root: Root, path: str, limit: int | None, cursor: str | None) -> Folder:
    """The children of a directory in alphabetical order, at most `limit` of them, after `cursor`."""
    with checked_path(root, path, what="directory") as normal, root.confined.opened(normal, READ_DIRECTORY) as fd:
        here = root.confined.locate(fd) if root.ignore else normal
        root.require_visible(here, is_directory=True)
        with os.scandir(fd) as children:
            found = [child for child in children if not _hidden(root, here, child)]
        found.sort(key=lambda child: child.name)
        behind = os.fsdecode(unquote_to_bytes(cursor)) if cursor else ""
        page = [child for child in found if child.name > behind]
        more = limit is not None and len(page) > limit
        page = page[:limit]
        entries = [entry for child in page if (entry := _entry(root, fd, normal, child)) is not None]
    folder = Folder(root=root.name, path=escape_name(normal), entries=entries, count=len(entries), total=len(found))
    if more:
        folder["next_cursor"] = quote(os.fsencode(page[-1].name))
    return folder


def _hidden(root: Root, directory: str, child: os.DirEntry[str]) -> bool:
    if is_staged(child.name):
        return True
    if root.ignore is None:
        return False
    path = f"{directory}/{child.name}" if directory else child.name
    return root.ignore.hides(path, child.is_dir(follow_symlinks=False))


def _entry(root: Root, fd: int, directory: str, child: os.DirEntry[str]) -> Entry | None:
    try:
        status = child.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    entry = Entry(
        name=escape_name(child.name),
        type=entry_type(status.st_mode),
        size=status.st_size,
        modified_at=iso_time(status.st_mtime_ns),
    )
    if entry["type"] == "symlink":
        path = f"{directory}/{child.name}" if directory else child.name
        kind = root.confined.link_target(fd, child.name, path)
        entry["target_type"] = "missing" if _leads_to_hidden(root, path, kind) else kind
    return entry


def _leads_to_hidden(root: Root, path: str, kind: TargetType) -> bool:
    """Whether a link leads to an entry that the ignore list hides."""
    if root.ignore is None or kind in ("external", "missing"):
        return False
    try:
        return root.ignore.hides(root.resolved(path), kind == "directory")
    except (OSError, PathEscapesRoot):
        return True


def metadata(root: Root, path: str) -> Metadata:
    """Metadata of the entry itself, and for a link also of its target."""
    with root.confined.opened(path, os.O_PATH | os.O_NOFOLLOW) as fd:
        status = os.fstat(fd)
        if root.ignore:
            root.require_visible(root.confined.locate(fd, last_known=True), is_directory=stat.S_ISDIR(status.st_mode))
        born = _birth_time_ns(fd)
    result = Metadata(
        root=root.name,
        path=escape_name(path),
        name=escape_name(path.rpartition("/")[2]) or root.name,
        type=entry_type(status.st_mode),
        size=status.st_size,
        is_directory=stat.S_ISDIR(status.st_mode),
        is_symlink=stat.S_ISLNK(status.st_mode),
        modified_at=iso_time(status.st_mtime_ns),
    )
    if born is not None:
        result["created_at"] = iso_time(born)
    if result["is_symlink"]:
        result["target"] = _target(root, path)
    return result


def _target(root: Root, path: str) -> LinkTarget:
    with root.confined.opened_parent(path) as (parent_fd, name):
        kind = root.confined.link_target(parent_fd, name, path)
    if kind == "external":
        return LinkTarget(type=kind)
    if kind == "missing" or _leads_to_hidden(root, path, kind):
        return LinkTarget(type="missing")
    try:
        with root.confined.opened(path, os.O_PATH) as fd:
            status = os.fstat(fd)
            real = root.confined.locate(fd, last_known=True)
    except (OSError, PathEscapesRoot):
        return LinkTarget(type="missing")
    return LinkTarget(
        type=kind,
        path=escape_name(real),
        size=status.st_size,
        is_directory=stat.S_ISDIR(status.st_mode),
        modified_at=iso_time(status.st_mtime_ns),
    )


def permissions(root: Root, path: str) -> Permissions:
    """Owner, group and mode of the entry itself."""
    with checked_path(root, path) as normal, root.confined.opened(normal, os.O_PATH | os.O_NOFOLLOW) as fd:
        status = os.fstat(fd)
        if root.ignore:
            root.require_visible(root.confined.locate(fd, last_known=True), is_directory=stat.S_ISDIR(status.st_mode))
    return Permissions(
        root=root.name,
        path=escape_name(normal),
        owner=_account_name(pwd.getpwuid, status.st_uid),
        group=_account_name(grp.getgrgid, status.st_gid),
        mode=f"{stat.S_IMODE(status.st_mode):04o}",
        mode_string=stat.filemode(status.st_mode),
    )


@lru_cache(maxsize=512)
def _account_name(look_up: Callable[[int], pwd.struct_passwd | grp.struct_group], number: int) -> str:
    try:
        return look_up(number)[0]
    except (KeyError, OSError):
        return str(number)


def _birth_time_ns(fd: int) -> int | None:
    """Creation time, if the file system stores it. On Linux `os.stat` does not return it."""
    try:
        statx = _libc.statx
    except AttributeError:
        return None
    result = ctypes.create_string_buffer(_STATX_BYTES)
    if statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, result) != 0:
        return None
    mask, seconds, nanoseconds = _STATX_MASK_AND_BIRTH.unpack_from(result)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None
