"""Writes, deletions, renames, restores and purges, each under the project's lock. The database checks writes for
conflicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from armarium.capabilities.store import errors, validation
from armarium.capabilities.store.arguments import DeleteArgs, RenameArgs, RestoreArgs
from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase, lock_key
from armarium.capabilities.store.files.reads import inspect_path
from armarium.capabilities.store.model import ROOT, Deleted, Purged, Renamed, Scope, WriteMode, Written
from armarium.capabilities.store.settings import StoreSettings
from armarium.foundation.errors import ArmariumError
from armarium.foundation.sql import queries

SQL = queries("armarium.capabilities.store.database.sql", "files.sql")
_PURGE_SQL = queries("armarium.capabilities.store.database.sql", "purge.sql")
ROWS_AT_ONCE = 500
"""Of a purge."""
_LARGEST_OFFSET = 2**30
_LARGEST_VERSION = 2**63 - 1
_NO_WAIT_MS = 1


@dataclass(frozen=True, slots=True)
class Write:
    path: str
    content: bytes
    mode: WriteMode = "APPEND"
    offset: int = 0
    create_only: bool = False
    if_version: int | None = None
    """The version that the file must have."""


def checked_write(wanted: Write) -> None:
    """Validate the arguments of a write that do not depend on the file."""
    validation.checked_number("offset", wanted.offset, 0)
    if wanted.if_version is not None:
        validation.checked_number("if_version", wanted.if_version, 1)
    if wanted.mode == "TRUNCATE" and wanted.offset:
        raise errors.InvalidOffset("TRUNCATE begins at offset 0", hint="to replace a part, use mode OVERWRITE")
    if wanted.create_only and wanted.if_version is not None:
        raise errors.InvalidQuery("create_only and if_version contradict each other", hint="give one of them")


class FileWriter:
    def __init__(self, database: StoreDatabase, settings: StoreSettings) -> None:
        self._database = database
        self._settings = settings

    async def write(self, scope: Scope, wanted: Write, credential_ref: str | None) -> Written:
        arguments = self._arguments(scope, wanted, credential_ref)
        row = await self._database.fetchrow_locked(scope, SQL["write_file"], *arguments)
        return self._written(row, wanted)

    async def write_in(
        self, scope: Scope, wanted: Write, credential_ref: str | None, connection: Connection
    ) -> Written:
        """Like `write`, in a transaction that holds the project's lock."""
        arguments = (*self._arguments(scope, wanted, credential_ref), lock_key(scope), _NO_WAIT_MS)
        [row] = await connection.fetch(SQL["write_file"], *arguments)
        return self._written(row, wanted)

    def _arguments(self, scope: Scope, wanted: Write, credential_ref: str | None) -> tuple[Any, ...]:
        settings = self._settings
        return (
            *scope,
            wanted.path,
            validation.parents_of(wanted.path),
            wanted.content,
            wanted.mode,
            # Clamped to the range of the column; the result is the same, since no file is that large.
            min(wanted.offset, _LARGEST_OFFSET),
            wanted.create_only,
            wanted.if_version if wanted.if_version is None else min(wanted.if_version, _LARGEST_VERSION),
            settings.max_file_bytes,
            settings.max_project_bytes,
            settings.history.versions,
            settings.search.enabled,
            credential_ref,
            settings.max_projects,
        )

    def _written(self, row: Row, wanted: Write) -> Written:
        if row["refusal"] is not None:
            raise self._refused(row, wanted)
        return {"bytes_written": len(wanted.content), "version": row["version"], "size": row["size"]}

    def _refused(self, row: Row, wanted: Write) -> ArmariumError:
        match row["refusal"]:
            case "is_directory":
                return errors.IsDirectory("the path is a directory", hint="choose a file inside it", path=wanted.path)
            case "lies_below_file":
                return errors.NotDirectory("a part of the path is a file", hint="choose another path", path=wanted.path)
            case "exists":
                hint = "read it, or write without create_only"
                return errors.AlreadyExists("the file already exists", hint=hint, path=wanted.path)
            case "other_version":
                return _other_version(row["version"])
            case "behind_end":
                size = row["size"] or 0
                hint = "use APPEND to add to it"
                return errors.InvalidOffset(f"the offset is beyond the end: the file has {size} bytes", hint=hint)
            case "cuts_character":
                return errors.InvalidOffset(
                    "the write would split a multi-byte character",
                    hint="begin and end it between characters: file_read reports such positions in `offset` and `end`",
                )
            case "file_too_large":
                most = self._settings.max_file_bytes
                return errors.PayloadTooLarge(f"a file has at most {most} bytes", hint="continue in another file")
            case "project_full":
                files, others = row["file_bytes"], row["other_bytes"]
                return errors.QuotaExceeded(
                    f"a project keeps at most {self._settings.max_project_bytes} bytes; this one has {files} bytes of "
                    f"files, and {others} of earlier versions, deleted files and requests",
                    hint="make room with file_purge, delete files and purge them, or use another project",
                )
            case "too_many_projects":
                return errors.QuotaExceeded(
                    f"a caller has at most {self._settings.max_projects} projects",
                    hint="use an existing project, or delete the files of one and purge it with file_purge",
                )
            case unknown:
                raise AssertionError(f"unknown refusal: {unknown}")

    async def delete_in(self, scope: Scope, args: DeleteArgs, connection: Connection) -> Deleted:
        """Delete a file or a directory, in a transaction that holds the project's lock."""
        facts = await inspect_path(connection, scope, args.path)
        is_file = facts["size"] is not None
        if not is_file:
            _check_directory_goes(args, facts)
            await _plan_for_many(connection)
        elif args.if_version not in (None, facts["version"]):
            raise _other_version(facts["version"])
        paths = validation.exactly(args.path) if is_file else validation.below(args.path)
        return {"deleted_count": await self._delete_range(connection, scope, paths, queued=True)}

    def check_delete(self, args: DeleteArgs) -> None:
        """Validate the arguments of a deletion that do not depend on the file."""
        if validation.checked_path(args.path) == ROOT and not args.recursive:
            hint = "give the path of a file or a directory"
            raise errors.InvalidPath("the root of a project is not a file", hint=hint)
        if args.path == ROOT and not self._settings.allow_root_wipe:
            raise errors.PermissionDenied(
                "deleting a whole project is not allowed on this server",
                hint="delete its directories one by one, or ask the operator to set store.allow_root_wipe",
            )
        if args.if_version is not None:
            validation.checked_number("if_version", args.if_version, 1)

    async def rename_in(
        self, scope: Scope, args: RenameArgs, credential_ref: str | None, connection: Connection
    ) -> Renamed:
        """Move a file or a directory without copying contents, in a transaction that holds the project's lock."""
        source, target = args.from_path, args.to_path
        [facts] = await connection.fetch(SQL["inspect_move"], *scope, source, target, validation.parents_of(target))
        _check_move(facts, source, target, overwrite=args.overwrite)
        if facts["target_is_file"]:
            # The index job of the rename also removes the index of the replaced file.
            await self._delete_range(connection, scope, validation.exactly(target), queued=False)
        if facts["source_version"] is None:
            await _plan_for_many(connection)
        paths = validation.exactly(source) if facts["source_version"] else validation.below(source)
        how = (source, target, self._settings.search.enabled, credential_ref)
        return {"moved_count": await connection.fetchval(SQL["move_files"], *scope, *paths, *how)}

    async def restore_in(
        self, scope: Scope, args: RestoreArgs, credential_ref: str | None, connection: Connection
    ) -> Written:
        """Write the content of an earlier version, in a transaction that holds the project's lock."""
        where = (*scope, args.path, min(args.version, _LARGEST_VERSION))
        content = await connection.fetchval(SQL["version_content"], *where)
        if content is not None:
            return await self.write_in(scope, Write(args.path, content, "TRUNCATE"), credential_ref, connection)
        facts = await inspect_path(connection, scope, args.path)
        if facts["version"] != args.version:
            hint = "list the stored versions with file_history"
            raise errors.NotFound("this version is not stored", hint=hint, path=args.path)
        return {"bytes_written": 0, "version": args.version, "size": facts["size"]}

    async def _delete_range(self, connection: Connection, scope: Scope, paths: tuple[str, str], *, queued: bool) -> int:
        """Delete the files in a range of paths. With `queued`, also queue index jobs if search is enabled."""
        how = (self._settings.history.versions, queued and self._settings.search.enabled)
        return await connection.fetchval(SQL["delete_files"], *scope, *paths, *how)


async def purge_history(database: StoreDatabase, scope: Scope, path: str) -> Purged:
    """Purge everything at and below a path that is not a current file; with the root, also the records of a project
    without files. In batches, so that nobody waits long for the project's lock."""
    purged: Purged = {"purged_files": 0, "purged_versions": 0, "purged_bytes": 0}
    for paths in (validation.exactly(path), validation.below(path)):
        while await _purge_batch(database, scope, paths, purged):
            pass
    if path == ROOT:
        async with database.project_transaction(scope) as connection:
            await connection.execute(_PURGE_SQL["lock_projects"], scope.apikey_hash)
            await connection.execute(_PURGE_SQL["forget_project"], *scope)
    return purged


async def _purge_batch(database: StoreDatabase, scope: Scope, paths: tuple[str, str], purged: Purged) -> bool:
    """Purge some rows in a range of paths, and count them. Returns whether more may be left."""
    async with database.project_transaction(scope) as connection:
        rows = await connection.fetch(_PURGE_SQL["deleted_files"], *scope, *paths, ROWS_AT_ONCE)
        files = [row["id"] for row in rows]
        await connection.execute(_PURGE_SQL["lock_index_of_deleted"], scope.apikey_hash, files)
        freed = await connection.fetchrow(_PURGE_SQL["purge_history"], *scope, *paths, ROWS_AT_ONCE, files)
        assert freed is not None, "the statement always gives a row"
        has_more = ROWS_AT_ONCE in (len(files), freed["purged_versions"])
        if not has_more:
            await connection.execute(_PURGE_SQL["purge_open_jobs"], *scope, *paths)
    purged["purged_files"] += freed["purged_files"]
    purged["purged_versions"] += freed["purged_versions"]
    purged["purged_bytes"] += freed["purged_bytes"]
    return has_more


async def _plan_for_many(connection: Connection) -> None:
    """Disable nested loops for statements over directories: without statistics, such a join took a minute."""
    await connection.execute("SET LOCAL enable_nestloop = off")


def _other_version(version: int | None) -> errors.Conflict:
    return errors.Conflict(
        f"the current version of the file is {version}" if version else "the file no longer exists",
        hint="read the file again before changing it",
        current_version=version,
    )


def _check_directory_goes(args: DeleteArgs, facts: Row) -> None:
    if not facts["is_directory"]:
        raise errors.NotFound("nothing has this path", hint="list the parent directory with file_list", path=args.path)
    if args.if_version is not None:
        raise errors.IsDirectory("a directory has no version", hint="delete it without if_version", path=args.path)
    if not args.recursive:
        raise errors.NotEmpty("the directory contains files", hint="set recursive to delete them all", path=args.path)


def _check_move(facts: Row, source: str, target: str, *, overwrite: bool) -> None:
    is_file = facts["source_version"] is not None
    if not is_file and not facts["files_below"]:
        raise errors.NotFound("nothing has this path", hint="list the parent directory with file_list", path=source)
    if not is_file and target.startswith(source + "/"):
        raise errors.InvalidPath("a directory cannot be moved into itself", path=target)
    if not is_file and facts["longest_below"] - len(source) + len(target) > validation.MAX_PATH_LENGTH:
        raise errors.InvalidPath(
            f"a path in the directory would exceed {validation.MAX_PATH_LENGTH} characters", path=target
        )
    if facts["target_lies_below_file"]:
        raise errors.NotDirectory("a part of the new path is a file", hint="choose another path", path=target)
    if facts["target_is_directory"]:
        raise errors.AlreadyExists(
            "the new path is a directory", hint="choose a path inside it, or a new one", path=target
        )
    if facts["target_is_file"] and not (overwrite and is_file):
        hint = "set overwrite to replace it" if is_file else "a directory cannot replace a file"
        raise errors.AlreadyExists("a file with the new path already exists", hint=hint, path=target)
