"""Writes and deletions. The database checks each write for conflicts, under the project's lock."""

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
    """The arguments of a write."""

    path: str
    content: bytes
    mode: WriteMode = "APPEND"
    offset: int = 0
    create_only: bool = False
    if_version: int | None = None
    """The version that the file must have."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write."""

    bytes_written: int
    version: int
    size: int


def checked_write(wanted: Write) -> None:
    """Validate the arguments of a write that do not depend on the file."""
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
    """Writes files, and deletes files and directories."""

    def __init__(self, database: StoreDatabase, limits: StoreLimits, *, allow_root_wipe: bool) -> None:
        self._database = database
        self._limits = limits
        self._allow_root_wipe = allow_root_wipe

    async def write(self, scope: Scope, wanted: Write, credential_ref: str | None) -> Written:
        """Write bytes to a file, which is created if it does not exist."""
        row = await self._database.fetchrow_locked(
            scope, SQL["write_file"], *self._arguments(scope, wanted, credential_ref)
        )
        return self._written(row, wanted)

    async def write_in(
        self, connection: Connection, scope: Scope, wanted: Write, credential_ref: str | None
    ) -> Written:
        """Like `write`, in a transaction that holds the project's lock."""
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
            # Clamped to the range of the column; the result is the same, since no file is that large.
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
        """The error for a refusal of the database."""
        match row["refusal"]:
            case "is_directory":
                return IsDirectory("the path is a directory", hint="choose a file inside it", path=wanted.path)
            case "lies_below_file":
                return NotDirectory("a part of the path is a file", hint="choose another path", path=wanted.path)
            case "exists":
                hint = "read it, or write without create_only"
                return AlreadyExists("the file already exists", hint=hint, path=wanted.path)
            case "other_version":
                return other_version(row["version"])
            case "behind_end":
                size = row["size"] or 0
                hint = "use APPEND to add to it"
                return InvalidOffset(f"the offset is beyond the end: the file has {size} bytes", hint=hint)
            case "cuts_character":
                return InvalidOffset(
                    "the write would split a multi-byte character",
                    hint="begin and end it between characters: file_read reports such positions in `offset` and `end`",
                )
            case "file_too_large":
                most = self._limits.max_file_bytes
                return PayloadTooLarge(f"a file has at most {most} bytes", hint="continue in another file")
            case "project_full":
                return QuotaExceeded(
                    f"a project has at most {self._limits.max_project_bytes} bytes",
                    hint="delete files, or use another project",
                )
            case unknown:
                raise AssertionError(f"unknown refusal: {unknown}")

    async def delete_in(
        self, connection: Connection, scope: Scope, path: str, *, recursive: bool, if_version: int | None
    ) -> int:
        """Delete a file or a directory, in a transaction that holds the project's lock. Returns the number of deleted
        files."""
        facts = await inspect_path(connection, scope, path)
        is_file = facts["size"] is not None
        if not is_file and not facts["is_directory"]:
            raise NotFound("nothing has this path", hint="list the parent directory with file_list", path=path)
        if not is_file:
            _check_directory_goes(path, recursive=recursive, if_version=if_version)
            await plan_for_many(connection)
        elif if_version not in (None, facts["version"]):
            raise other_version(facts["version"])
        return await delete_range(
            connection, scope, exactly(path) if is_file else below(path), self._limits, queued=True
        )

    def check_delete(self, path: str, *, recursive: bool, if_version: int | None) -> None:
        """Validate the arguments of a deletion that do not depend on the file."""
        self._check_wipe(path, recursive=recursive)
        if if_version is not None:
            checked_number("if_version", if_version, 1)

    def _check_wipe(self, path: str, *, recursive: bool) -> None:
        if checked_path(path) == ROOT and not recursive:
            raise InvalidPath("the root of a project is not a file", hint="give the path of a file or a directory")
        if path == ROOT and not self._allow_root_wipe:
            raise PermissionDenied(
                "deleting a whole project is not allowed on this server",
                hint="delete its directories one by one, or ask the operator to set store.allow_root_wipe",
            )


async def inspect_path(connection: Connection, scope: Scope, path: str) -> Row:
    """The size and version of the file at a path, and whether the path is a directory."""
    facts = await connection.fetchrow(SQL["inspect_path"], scope.apikey_hash, scope.project, path, *below(path))
    assert facts is not None, "the statement always gives a row"
    return facts


async def plan_for_many(connection: Connection) -> None:
    """Disable nested loops for statements over directories: without statistics, such a join took a minute."""
    await connection.execute("SET LOCAL enable_nestloop = off")


async def delete_range(
    connection: Connection, scope: Scope, paths: tuple[str, str], limits: StoreLimits, *, queued: bool
) -> int:
    """Delete the files in a range of paths. With `queued`, also queue index jobs if search is enabled."""
    how = (limits.versions_kept, queued and limits.searchable)
    return await connection.fetchval(SQL["delete_files"], scope.apikey_hash, scope.project, *paths, *how)


def other_version(version: int | None) -> Conflict:
    """The error for a file whose version is not the expected one."""
    return Conflict(
        f"the current version of the file is {version}" if version else "the file no longer exists",
        hint="read the file again before changing it",
        current_version=version,
    )


def _check_directory_goes(path: str, *, recursive: bool, if_version: int | None) -> None:
    if if_version is not None:
        raise IsDirectory("a directory has no version", hint="delete it without if_version", path=path)
    if not recursive:
        raise NotEmpty("the directory contains files", hint="set recursive to delete them all", path=path)
