"""Writes and deletes. What stands in the way of a write is found by the database, under the project's lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase, lock_key
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
    StoreLimits,
    below,
    checked_inner_path,
    checked_number,
    checked_path,
    exactly,
    parents_of,
)
from armarium.foundation.errors import ArmariumError
from armarium.foundation.sql import queries

SQL = queries("armarium.capabilities.store.database.sql", "files.sql")
_LARGEST_OFFSET = 2**30
_LARGEST_VERSION = 2**63 - 1
_NO_WAIT_MS = 1
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


def checked_write(wanted: Write) -> None:
    """Refuse what can be refused without looking at the file."""
    checked_inner_path(wanted.path)
    checked_number("offset", wanted.offset, 0)
    if wanted.if_version is not None:
        checked_number("if_version", wanted.if_version, 1)
    if wanted.mode not in MODES:
        raise InvalidQuery("mode must be APPEND, OVERWRITE or TRUNCATE")
    if wanted.mode == "TRUNCATE" and wanted.offset:
        raise InvalidOffset("TRUNCATE begins at offset 0", hint="to replace a part, use mode OVERWRITE")
    if wanted.create_only and wanted.if_version is not None:
        raise InvalidQuery("create_only and if_version contradict each other", hint="give one of them")


class FileWriter:
    """Changes single files, and deletes what lies below a path."""

    def __init__(self, database: StoreDatabase, limits: StoreLimits, *, allow_root_wipe: bool) -> None:
        self._database = database
        self._limits = limits
        self._allow_root_wipe = allow_root_wipe

    async def write(self, scope: Scope, wanted: Write, credential_ref: str | None) -> Written:
        """Write bytes into a file, which is made if it is not there."""
        row = await self._database.fetchrow_locked(
            scope, SQL["write_file"], *self._arguments(scope, wanted, credential_ref)
        )
        return self._written(row, wanted)

    async def write_in(
        self, connection: Connection, scope: Scope, wanted: Write, credential_ref: str | None
    ) -> Written:
        """A write in a transaction that holds the project's lock already."""
        arguments = (*self._arguments(scope, wanted, credential_ref), lock_key(scope), _NO_WAIT_MS)
        row = await connection.fetchrow(SQL["write_file"], *arguments)
        assert row is not None, "the statement always gives a row"
        return self._written(row, wanted)

    def _arguments(self, scope: Scope, wanted: Write, credential_ref: str | None) -> tuple[Any, ...]:
        limits = self._limits
        return (
            scope.apikey_hash,
            scope.project,
            wanted.path,
            parents_of(wanted.path),
            wanted.content,
            wanted.mode,
            # No file is so long, nor changed so often: the answer is the same as for the number given.
            min(wanted.offset, _LARGEST_OFFSET),
            wanted.create_only,
            wanted.if_version if wanted.if_version is None else min(wanted.if_version, _LARGEST_VERSION),
            limits.max_file_bytes,
            limits.max_project_bytes,
            limits.versions_kept,
            limits.searchable,
            credential_ref,
        )

    def _written(self, row: Row, wanted: Write) -> Written:
        if row["refusal"] is not None:
            raise self._refused(row, wanted)
        return Written(len(wanted.content), row["version"], row["size"])

    def _refused(self, row: Row, wanted: Write) -> ArmariumError:
        """The error for what the database says stands in the way."""
        match row["refusal"]:
            case "is_directory":
                return IsDirectory("the path is a directory", hint="choose a file inside it", path=wanted.path)
            case "lies_below_file":
                return NotDirectory("a part of the path is a file", hint="choose another path", path=wanted.path)
            case "exists":
                hint = "read it, or write without create_only"
                return AlreadyExists("the file is there already", hint=hint, path=wanted.path)
            case "other_version":
                return other_version(row["version"])
            case "behind_end":
                size = row["size"] or 0
                hint = "use APPEND to add to it"
                return InvalidOffset(f"the offset lies behind the end: the file has {size} bytes", hint=hint)
            case "cuts_character":
                return InvalidOffset(
                    "the write would cut a character of several bytes in two",
                    hint="begin and end it between characters: file_read tells in `offset` and `end` where they are",
                )
            case "file_too_large":
                most = self._limits.max_file_bytes
                return PayloadTooLarge(f"a file has at most {most} bytes", hint="go on in another file")
            case "project_full":
                return QuotaExceeded(
                    f"a project has at most {self._limits.max_project_bytes} bytes",
                    hint="delete what is not needed any more, or use another project",
                )
            case unknown:
                raise AssertionError(f"the database refused a write for a reason we do not know: {unknown}")

    async def delete_in(
        self, connection: Connection, scope: Scope, path: str, *, recursive: bool, if_version: int | None
    ) -> int:
        """Delete a file, or everything in a directory, in a transaction that holds the project's lock; how many files
        that were."""
        facts = await look(connection, scope, path)
        is_file = facts["size"] is not None
        if not is_file and not facts["is_directory"]:
            raise NotFound("nothing has this path", hint="list the directory above it with file_list", path=path)
        if not is_file:
            _check_directory_goes(path, recursive=recursive, if_version=if_version)
            await plan_for_many(connection)
        elif if_version not in (None, facts["version"]):
            raise other_version(facts["version"])
        return await delete_range(
            connection, scope, exactly(path) if is_file else below(path), self._limits, queued=True
        )

    def check_delete(self, path: str, *, recursive: bool, if_version: int | None) -> None:
        """Refuse what can be refused without looking."""
        self._check_wipe(path, recursive=recursive)
        if if_version is not None:
            checked_number("if_version", if_version, 1)

    def _check_wipe(self, path: str, *, recursive: bool) -> None:
        if checked_path(path) == ROOT and not recursive:
            raise InvalidPath("the root of a project is not a file", hint="give the path of a file or a directory")
        if path == ROOT and not self._allow_root_wipe:
            raise PermissionDenied(
                "a whole project may not be deleted here",
                hint="delete its directories one by one, or ask the operator to set store.allow_root_wipe",
            )


async def look(connection: Connection, scope: Scope, path: str) -> Row:
    """What is at a path."""
    facts = await connection.fetchrow(SQL["inspect_path"], scope.apikey_hash, scope.project, path, *below(path))
    assert facts is not None, "the statement always gives a row"
    return facts


async def plan_for_many(connection: Connection) -> None:
    """For statements over whole directories: without statistics, a join row by row was seen to take a minute."""
    await connection.execute("SET LOCAL enable_nestloop = off")


async def delete_range(
    connection: Connection, scope: Scope, paths: tuple[str, str], limits: StoreLimits, *, queued: bool
) -> int:
    """Delete the files of a range of paths; `queued` tells the index, where there is one."""
    how = (limits.versions_kept, queued and limits.searchable)
    return await connection.fetchval(SQL["delete_files"], scope.apikey_hash, scope.project, *paths, *how)


def other_version(version: int | None) -> Conflict:
    """The refusal of a change of a file that is not in the version its caller knows."""
    return Conflict(
        f"the file is in version {version} now" if version else "there is no such file any more",
        hint="read it again, and decide anew",
        current_version=version,
    )


def _check_directory_goes(path: str, *, recursive: bool, if_version: int | None) -> None:
    if if_version is not None:
        raise IsDirectory("a directory has no version", hint="delete it without if_version", path=path)
    if not recursive:
        raise NotEmpty("the directory has files in it", hint="set recursive to delete them all", path=path)
