"""Reads at paths that callers give: content and hashes of files, directory listings, metadata, permissions."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
import stat
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from armarium.capabilities.sandbox import results
from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.errors import FileTooLarge
from armarium.capabilities.sandbox.reads.file_content import ReadLimits, Window, digest, human_size, read
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.confine import READ_DIRECTORY
from armarium.foundation.files.errors import FileError, PathEscapesRoot
from armarium.foundation.files.names import escape_name, is_staged
from armarium.foundation.tools import render_error

_MAX_TOTAL_BYTES = 16 * 1024 * 1024
"""Limit for all files that one call reads together."""
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
_STATX_MASK_AND_BIRTH = struct.Struct("=I76xqI")
"""The mask, and the seconds and nanoseconds of the birth time, of the kernel's `struct statx`."""
_STATX_BYTES = 256
_EPOCH = date(1970, 1, 1).toordinal()

ENTRY_TYPES: dict[int, results.EntryType] = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
"""The type of an entry by its format in the mode; all others are "other"."""

_statx = getattr(ctypes.CDLL(None), "statx", None)
"""None if the C library does not have it."""


def read_file(
    root: Root, path: str, window: Window, limits: ReadLimits, cancellation: Cancellation, number_lines: bool = False
) -> results.FileContent:
    with checked_path(root, path) as normal:
        window.check()
        with opened_for_reading(root, normal) as (fd, status):
            content = read(fd, status.st_size, window, limits, cancellation, number_lines=number_lines)
    return results.FileContent(root=root.name, path=escape_name(normal), **content)  # pyright: ignore[reportCallIssue] no overlap


def read_files(
    root: Root, paths: Sequence[str], limits: ReadLimits, cancellation: Cancellation
) -> tuple[list[results.FileContent | results.FailedRead], list[FileError]]:
    """Read several files; also return the errors that are denials, for the audit log."""
    files: list[results.FileContent | results.FailedRead] = []
    denials: list[FileError] = []
    room = _MAX_TOTAL_BYTES
    for path in paths:
        expect_bytes(_MAX_TOTAL_BYTES - room)
        try:
            content = read_file(root, path, Window(), limits, cancellation)
            if content["size"] > room:
                raise FileTooLarge(
                    f"the files together are larger than {human_size(_MAX_TOTAL_BYTES)}: {path}",
                    hint="ask for fewer files at once",
                )
            room -= content["size"]
            files.append(content)
        except FileError as error:
            if error.security:
                denials.append(error)
            files.append(results.FailedRead(path=path, error=render_error(error)["error"]))
    return files, denials


def hash_file(root: Root, path: str, algorithm: str, cancellation: Cancellation) -> results.Hash:
    with checked_path(root, path) as normal, opened_for_reading(root, normal) as (fd, status):
        expect_bytes(status.st_size)
        hexadecimal = digest(fd, algorithm, cancellation)
    return results.Hash(
        root=root.name, path=escape_name(normal), algorithm=algorithm, hash=hexadecimal, size=status.st_size
    )


@contextmanager
def opened_for_reading(root: Root, path: str) -> Generator[tuple[int, os.stat_result]]:
    """A regular file whose content the caller may read, with its status."""
    root.require_readable(path)
    with root.confined.opened_regular(path) as (fd, status):
        if root.restricts_reading:
            located = root.confined.locate(fd, last_known=True)
            if located != path:
                root.require_readable(located)
        yield fd, status


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


def list_folder(root: Root, path: str, limit: int | None, cursor: str | None) -> results.Folder:
    """The children of a directory in alphabetical order, at most `limit` of them, after `cursor`."""
    with checked_path(root, path, what="directory") as normal, root.confined.opened(normal, READ_DIRECTORY) as fd:
        here = root.confined.locate(fd) if root.ignore else normal
        root.require_visible(here, is_directory=True)
        with os.scandir(fd) as children:
            found = [child for child in children if not is_staged(child.name)]
        if root.ignore is not None:
            hides, prefix = root.hides, f"{here}/" if here else ""
            found = [each for each in found if not hides(prefix + each.name, each.is_dir(follow_symlinks=False))]
        found.sort(key=lambda child: child.name)
        behind = os.fsdecode(unquote_to_bytes(cursor)) if cursor else ""
        page = [child for child in found if child.name > behind]
        more = limit is not None and len(page) > limit
        page = page[:limit]
        entries = [entry for child in page if (entry := _entry(root, fd, normal, child)) is not None]
    folder = results.Folder(
        root=root.name, path=escape_name(normal), entries=entries, count=len(entries), total=len(found)
    )
    if more:
        folder["next_cursor"] = quote(os.fsencode(page[-1].name))
    return folder


def _entry(root: Root, fd: int, directory: str, child: os.DirEntry[str]) -> results.Entry | None:
    try:
        status = child.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    entry = results.Entry(
        name=escape_name(child.name),
        type=ENTRY_TYPES.get(stat.S_IFMT(status.st_mode), "other"),
        size=status.st_size,
        modified_at=iso_time(status.st_mtime_ns),
    )
    if entry["type"] == "symlink":
        path = f"{directory}/{child.name}" if directory else child.name
        kind = root.confined.link_target(fd, child.name, path)
        entry["target_type"] = "missing" if _leads_to_hidden(root, path, kind) else kind
    return entry


def _leads_to_hidden(root: Root, path: str, kind: results.TargetType) -> bool:
    if root.ignore is None or kind in ("external", "missing"):
        return False
    try:
        return root.hides(root.resolved(path), kind == "directory")
    except (OSError, PathEscapesRoot):
        return True


def stat_file(root: Root, path: str, include_sha256: bool, cancellation: Cancellation) -> results.Metadata:
    """Metadata of the entry itself, for a link also of its target, and on request the hash of a file."""
    with checked_path(root, path) as normal:
        with root.confined.opened(normal, os.O_PATH | os.O_NOFOLLOW) as fd:
            status = os.fstat(fd)
            kind = ENTRY_TYPES.get(stat.S_IFMT(status.st_mode), "other")
            if root.ignore:
                root.require_visible(root.confined.locate(fd, last_known=True), is_directory=kind == "directory")
            born = _birth_time_ns(fd)
        found = results.Metadata(
            root=root.name,
            path=escape_name(normal),
            name=escape_name(normal.rpartition("/")[2]) or root.name,
            type=kind,
            size=status.st_size,
            is_directory=kind == "directory",
            is_symlink=kind == "symlink",
            modified_at=iso_time(status.st_mtime_ns),
        )
        if born is not None:
            found["created_at"] = iso_time(born)
        if kind == "symlink":
            found["target"] = _target(root, normal)
        if include_sha256 and "file" in (kind, found.get("target", {}).get("type")):
            with opened_for_reading(root, normal) as (fd, status):
                expect_bytes(status.st_size)
                found["sha256"] = digest(fd, "sha256", cancellation)
    return found


def _target(root: Root, path: str) -> results.LinkTarget:
    with root.confined.opened_parent(path) as (parent_fd, name):
        kind = root.confined.link_target(parent_fd, name, path)
    if kind == "external":
        return results.LinkTarget(type=kind)
    if kind == "missing" or _leads_to_hidden(root, path, kind):
        return results.LinkTarget(type="missing")
    try:
        with root.confined.opened(path, os.O_PATH) as fd:
            status = os.fstat(fd)
            real = root.confined.locate(fd, last_known=True)
    except (OSError, PathEscapesRoot):
        return results.LinkTarget(type="missing")
    return results.LinkTarget(
        type=kind,
        path=escape_name(real),
        size=status.st_size,
        is_directory=stat.S_ISDIR(status.st_mode),
        modified_at=iso_time(status.st_mtime_ns),
    )


def permissions(root: Root, path: str) -> results.Permissions:
    with checked_path(root, path) as normal, root.confined.opened(normal, os.O_PATH | os.O_NOFOLLOW) as fd:
        status = os.fstat(fd)
        if root.ignore:
            root.require_visible(root.confined.locate(fd, last_known=True), is_directory=stat.S_ISDIR(status.st_mode))
    return results.Permissions(
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
    result = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx is None or _statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, result) != 0:
        return None
    mask, seconds, nanoseconds = _STATX_MASK_AND_BIRTH.unpack_from(result)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None
