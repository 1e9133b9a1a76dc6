"""Earlier versions of files: listing and restoring them."""

from __future__ import annotations

from armarium.capabilities.store.arguments import RestoreArgs
from armarium.capabilities.store.database.pool import Connection, Row
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import IsDirectory, NotFound
from armarium.capabilities.store.files.writes import LARGEST_VERSION, SQL, FileWriter, Write, inspect_path
from armarium.capabilities.store.model import KeptVersion, Scope, Versions, Written
from armarium.capabilities.store.validation import checked_inner_path
from armarium.foundation.telemetry import timestamp

_MOST_VERSIONS = 1000


async def list_versions(database: StoreDatabase, scope: Scope, path: str) -> Versions:
    """The stored versions of a file, newest first, also of a deleted file."""
    checked_inner_path(path)
    async with database.read_transaction(scope.apikey_hash) as connection:
        rows = await connection.fetch(SQL["versions"], *scope, path, _MOST_VERSIONS)
        if not rows:
            facts = await inspect_path(connection, scope, path)
            if facts["is_directory"]:
                raise IsDirectory("a directory has no versions", hint="give the path of a file in it", path=path)
            raise NotFound("no file has, or recently had, this path", hint="find it with file_list", path=path)
    return {"versions": [_kept_version(row) for row in rows]}


def _kept_version(row: Row) -> KeptVersion:
    replaced_at = row["replaced_at"]
    kept: KeptVersion = {
        "version": row["version"],
        "size": row["size"],
        "current": replaced_at is None,
        "written_at": timestamp(row["written_at"]),
    }
    if replaced_at is not None:
        kept["replaced_at"] = timestamp(replaced_at)
    return kept


async def restore_version(
    connection: Connection, writer: FileWriter, scope: Scope, args: RestoreArgs, credential_ref: str | None
) -> Written:
    """Write the content of an earlier version, in a transaction that holds the project's lock."""
    path, version = args.path, args.version
    content = await connection.fetchval(SQL["version_content"], *scope, path, min(version, LARGEST_VERSION))
    if content is None:
        facts = await inspect_path(connection, scope, path)
        if facts["version"] == version:
            return {"bytes_written": 0, "version": version, "size": facts["size"]}
        raise NotFound("this version is not stored", hint="list the stored versions with file_history", path=path)
    return await writer.write_in(connection, scope, Write(path, content, "TRUNCATE"), credential_ref)
