"""Writes and deletes: what is decided under the project's lock, between one look at the facts and one change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armarium.capabilities.store.database import Connection, Database, Row
from armarium.capabilities.store.errors import (
    AlreadyExists,
    Conflict,
    InvalidOffset,
    InvalidPath,
    InvalidQuery,
    IsDirectory,
    NotDirectory,
    NotEmpty,
    NotFound,
    PayloadTooLarge,
    PermissionDenied,
    QuotaExceeded,
)
from armarium.capabilities.store.model import ROOT, Scope, WriteMode
from armarium.capabilities.store.validation import (
    Limits,
    checked_inner_path,
    checked_number,
    checked_path,
    parents_of,
)
from armarium.foundation.sql import queries

SQL = queries("armarium.capabilities.store.sql", "files.sql")
MODES: frozenset[WriteMode] = frozenset({"APPEND", "OVERWRITE", "TRUNCATE"})


@dataclass(frozen=True, slots=True)
class Write:
    """What is to be written, and where in the file."""

    path: str
    content: bytes
    mode: WriteMode = "APPEND"
    offset: int = 0
    create_only: bool = False
    if_version: int | None = None
    """The version the file must have now."""


@dataclass(frozen=True, slots=True)
class Written:
    """A write that is done."""

    bytes_written: int
    version: int
    size: int


@dataclass(frozen=True, slots=True)
class _Change:
    """What a write does to the bytes of a file."""

    start: int | None
    """The byte it begins at; None replaces everything."""
    size: int
    """What the file measures afterwards."""


def checked_write(wanted: Write) -> None:
    """Refuse what can be refused without looking at the file."""
    checked_inner_path(wanted.path)
    checked_number("offset", wanted.offset, 0)
    if wanted.mode not in MODES:
        raise InvalidQuery("mode must be APPEND, OVERWRITE or TRUNCATE")
    if wanted.mode == "TRUNCATE" and wanted.offset:
        raise InvalidOffset("TRUNCATE begins at offset 0", hint="to replace a part, use mode OVERWRITE")
    if wanted.create_only and wanted.if_version is not None:
        raise InvalidQuery("create_only and if_version contradict each other", hint="give one of them")


class Writing:
    """Changes single files, and deletes what lies below a path."""

    def __init__(self, database: Database, limits: Limits, *, allow_root_wipe: bool) -> None:
        self._database = database
        self._limits = limits
        self._allow_root_wipe = allow_root_wipe

    async def write(self, scope: Scope, wanted: Write, credential_ref: str | None) -> Written:
        """Write bytes into a file, which is made if it is not there."""
        async with self._database.changing(scope) as connection:
            return await self.apply(connection, scope, wanted, credential_ref)

    async def apply(self, connection: Connection, scope: Scope, wanted: Write, credential_ref: str | None) -> Written:
        """A write in a transaction that holds the project's lock."""
        facts = await look(connection, scope, wanted.path, *_seams(wanted))
        _check_place(facts, wanted)
        change = _change_of(facts, wanted)
        before: int = facts["size"] or 0
        self._check_size(change.size, facts["project_bytes"] - before + change.size)
        where = (scope.apikey_hash, scope.project, wanted.path, wanted.content)
        if facts["size"] is None:
            queue = (self._limits.searchable, credential_ref)
            version = await connection.fetchval(SQL["create_file"], *where, *queue)
        else:
            how = (change.start, change.size - before, self._limits.versions_kept)
            queue = (self._limits.searchable, credential_ref)
            version = await connection.fetchval(SQL["change_file"], *where, *how, *queue)
        return Written(len(wanted.content), version, change.size)

    def _check_size(self, file_bytes: int, project_bytes: int) -> None:
        if file_bytes > self._limits.max_file_bytes:
            raise PayloadTooLarge(
                f"a file has at most {self._limits.max_file_bytes} bytes", hint="go on in another file"
            )
        if project_bytes > self._limits.max_project_bytes:
            raise QuotaExceeded(
                f"a project has at most {self._limits.max_project_bytes} bytes",
                hint="delete what is not needed any more, or use another project",
            )

    async def delete(self, scope: Scope, path: str, *, recursive: bool, if_version: int | None) -> int:
        """Delete a file, or everything in a directory; how many files that were."""
        self._check_wipe(path, recursive=recursive)
        async with self._database.changing(scope) as connection:
            facts = await look(connection, scope, path)
            is_file = facts["size"] is not None
            if not is_file and not facts["is_directory"]:
                raise NotFound("nothing has this path", hint="list the directory above it with file_list", path=path)
            if not is_file:
                _check_directory_goes(path, recursive=recursive, if_version=if_version)
                await plan_for_many(connection)
            elif if_version is not None:
                check_version(facts, if_version)
            return await delete_range(
                connection, scope, exactly(path) if is_file else below(path), self._limits, queued=True
            )

    def _check_wipe(self, path: str, *, recursive: bool) -> None:
        if checked_path(path) == ROOT and not recursive:
            raise InvalidPath("the root of a project is not a file", hint="give the path of a file or a directory")
        if path == ROOT and not self._allow_root_wipe:
            raise PermissionDenied(
                "a whole project may not be deleted here",
                hint="delete its directories one by one, or ask the operator to set store.allow_root_wipe",
            )


async def look(
    connection: Connection, scope: Scope, path: str, start: int | None = None, end: int | None = None
) -> Row:
    """The facts a change of a path depends on."""
    where = (scope.apikey_hash, scope.project, path)
    facts = await connection.fetchrow(SQL["look"], *where, parents_of(path), start, end)
    assert facts is not None, "the statement always gives a row"
    return facts


async def plan_for_many(connection: Connection) -> None:
    """For statements over whole directories: without statistics, a join row by row was seen to take a minute."""
    await connection.execute("SET LOCAL enable_nestloop = off")


async def delete_range(
    connection: Connection, scope: Scope, paths: tuple[str, str], limits: Limits, *, queued: bool
) -> int:
    """Delete the files of a range of paths; `queued` tells the index, where there is one."""
    how = (limits.versions_kept, queued and limits.searchable)
    return await connection.fetchval(SQL["delete_files"], scope.apikey_hash, scope.project, *paths, *how)


def exactly(path: str) -> tuple[str, str]:
    """The range of one path."""
    return path, path + "\x01"


def below(path: str) -> tuple[str, str]:
    """The range of all paths below a directory."""
    return path + "/", path + "0"


def check_version(facts: Row, expected: int) -> None:
    """Refuse a change of a file that is not in the version its caller knows."""
    if facts["version"] != expected:
        raise Conflict(
            f"the file is in version {facts['version']} now" if facts["version"] else "there is no such file any more",
            hint="read it again, and decide anew",
            current_version=facts["version"],
        )


def _check_directory_goes(path: str, *, recursive: bool, if_version: int | None) -> None:
    if if_version is not None:
        raise IsDirectory("a directory has no version", hint="delete it without if_version", path=path)
    if not recursive:
        raise NotEmpty("the directory has files in it", hint="set recursive to delete them all", path=path)


def _check_place(facts: Row, wanted: Write) -> None:
    if facts["is_directory"]:
        raise IsDirectory("the path is a directory", hint="choose a file inside it", path=wanted.path)
    if facts["lies_below_file"]:
        raise NotDirectory("a part of the path is a file", hint="choose another path", path=wanted.path)
    if wanted.create_only and facts["size"] is not None:
        raise AlreadyExists("the file is there already", hint="read it, or write without create_only", path=wanted.path)
    if wanted.if_version is not None:
        check_version(facts, wanted.if_version)


def _seams(wanted: Write) -> tuple[int | None, int | None]:
    """The first byte that is replaced and the first one that is kept behind it: both must begin a character."""
    if wanted.mode != "OVERWRITE" or not wanted.content or wanted.offset >= 2**30:
        return None, None
    return wanted.offset, wanted.offset + len(wanted.content)


def _change_of(facts: Row, wanted: Write) -> _Change:
    size: int = facts["size"] or 0
    if wanted.mode == "TRUNCATE" or facts["size"] is None:
        if wanted.mode == "OVERWRITE" and wanted.offset:
            raise _beyond(0)
        return _Change(None, len(wanted.content))
    if wanted.mode == "APPEND":
        return _Change(size, size + len(wanted.content))
    if wanted.offset > size:
        raise _beyond(size)
    if _cuts(facts["first_replaced"]) or _cuts(facts["first_kept"]):
        raise InvalidOffset(
            "the write would cut a character of several bytes in two",
            hint="begin and end it between characters: file_read tells in `offset` and `end` where they are",
        )
    return _Change(wanted.offset, max(size, wanted.offset + len(wanted.content)))


def _beyond(size: int) -> InvalidOffset:
    return InvalidOffset(f"the offset lies behind the end: the file has {size} bytes", hint="use APPEND to add to it")


def _cuts(byte: Any) -> bool:
    """Whether a byte goes on with a character that began before it."""
    return bool(byte) and byte[0] & 0xC0 == 0x80
