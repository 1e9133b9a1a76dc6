"""Earlier versions of files: listing and restoring them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import IsDirectory, NotFound
from armarium.capabilities.store.files.writes import SQL, FileWriter, Write, Written, inspect_path
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.validation import checked_inner_path

_MOST_VERSIONS = 1000
_LARGEST_VERSION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Version:
    """A current or earlier version of a file."""

    version: int
    size: int
    written_at: datetime
    replaced_at: datetime | None
    """When it was overwritten or deleted; None for the current version."""


class FileHistory:
    """Lists and restores earlier versions."""

    def __init__(self, database: StoreDatabase, writer: FileWriter) -> None:
        self._database = database
        self._writer = writer

    async def versions(self, scope: Scope, path: str) -> list[Version]:
        """The stored versions of a file, newest first, also of a deleted file."""
        where = (scope.apikey_hash, scope.project, checked_inner_path(path))
        async with self._database.read_transaction(scope.apikey_hash) as connection:
            rows = await connection.fetch(SQL["versions"], *where, _MOST_VERSIONS)
            if not rows:
                facts = await inspect_path(connection, scope, path)
                if facts["is_directory"]:
                    raise IsDirectory("a directory has no versions", hint="give the path of a file in it", path=path)
                raise NotFound("no file has, or recently had, this path", hint="find it with file_list", path=path)
        return [Version(row["version"], row["size"], row["written_at"], row["replaced_at"]) for row in rows]

    async def restore_in(
        self, connection: Connection, scope: Scope, path: str, version: int, credential_ref: str | None
    ) -> Written:
        """Write the content of an earlier version, in a transaction that holds the project's lock."""
        where = (scope.apikey_hash, scope.project, path)
        content = await connection.fetchval(SQL["version_content"], *where, min(version, _LARGEST_VERSION))
        if content is None:
            facts = await inspect_path(connection, scope, path)
            if facts["version"] == version:
                return Written(0, version, facts["size"])
            raise NotFound("this version is not stored", hint="list the stored versions with file_history", path=path)
        return await self._writer.write_in(connection, scope, Write(path, content, "TRUNCATE"), credential_ref)
