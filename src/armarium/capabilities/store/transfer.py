"""Exports files to a tar archive and imports them, one file at a time, so that memory does not limit their number."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeVar, cast

from anyio import to_thread

from armarium.capabilities.store import errors
from armarium.capabilities.store.arguments import WriteArgs
from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.model import ROOT, Scope
from armarium.capabilities.store.service import Store
from armarium.capabilities.store.validation import ALL_PROJECTS, checked_inner_path, checked_project
from armarium.foundation.archives.entries import ArchiveError, Budget, RawEntry
from armarium.foundation.archives.tar import tar_entries
from armarium.foundation.schema import Json
from armarium.foundation.sql import queries
from armarium.foundation.tools import Call

_SQL = queries("armarium.capabilities.store.database.sql", "transfer.sql")
_END_OF_ARCHIVE = bytes(2 * tarfile.BLOCKSIZE)
_MAX_HEADER_BYTES = 1024 * 1024
_ResultT = TypeVar("_ResultT")


class ArchiveUnusable(errors.StoreError, code="ARCHIVE_UNUSABLE"):
    """The archive cannot be written, or it cannot be read to its end. Files that were imported until then remain."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A member of an archive that was not imported, and why."""

    member: str
    code: str
    reason: str


@dataclass(slots=True)
class Imported:
    written: int = 0
    unchanged: int = 0
    """Files that were there already, with the same content."""
    skipped: int = 0
    bytes: int = 0
    """In the files that were written."""


async def export_files(database: StoreDatabase, tenant: str, project: str, out: BinaryIO) -> Json:
    """Write a snapshot of a tenant's files to `out`: those of one project, or with "*" of all. Returns their number and
    size. An archive that could not be finished has no end mark, so that programs reject it."""
    wanted = project if project == ALL_PROJECTS else checked_project(project)
    async with database.write_transaction(tenant) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # The reader of a pipe may pause for any time.
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        projects = [row["project"] for row in await connection.fetch(_SQL["projects_with_files"], tenant)]
        chosen = projects if wanted == ALL_PROJECTS else [each for each in projects if each == wanted]
        if not chosen:
            raise errors.NotFound("there are no files to export", hint="check the project and the caller")
        files = size = 0
        for each in chosen:
            files_here, size_here = await _export_project(connection, Scope(tenant, each), out)
            files, size = files + files_here, size + size_here
        await _written(out, _END_OF_ARCHIVE)
    return {"projects": len(chosen), "files": files, "bytes": size}


async def _export_project(connection: Connection, scope: Scope, out: BinaryIO) -> tuple[int, int]:
    files, size, path = 0, 0, ROOT
    while file := await connection.fetchrow(_SQL["next_file"], *scope, path):
        path, content = cast(str, file["path"]), cast(bytes, file["content"])
        header = tarfile.TarInfo(scope.project + path)
        header.size, header.mtime, header.mode = len(content), int(file["updated_at"].timestamp()), 0o600
        padding = bytes(-len(content) % tarfile.BLOCKSIZE)
        await _written(out, header.tobuf(tarfile.PAX_FORMAT), content, padding)
        files, size = files + 1, size + len(content)
    return files, size


async def _written(out: BinaryIO, *parts: bytes) -> None:
    try:
        await to_thread.run_sync(out.writelines, parts)
    except OSError as error:
        # Otherwise a broken pipe would be reported as a broken connection to the database.
        raise ArchiveUnusable(f"the archive cannot be written: {error.strerror or type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Import:
    """Imports an archive for one caller. Each member is a separate write, so an interrupted import can be repeated."""

    call: Call
    project: str | None
    """The project for all members; None: the first directory of each member."""
    overwrite: bool
    max_file_bytes: int
    on_skipped: Callable[[Skipped], None]

    async def run(self, source: BinaryIO, store: Store, database: StoreDatabase) -> Imported:
        """Import every member. Those that cannot be stored are skipped and reported."""
        if self.project is not None:
            checked_project(self.project)
        done = Imported()
        entries = tar_entries(source, Budget(), max_header_bytes=_MAX_HEADER_BYTES, require_end=True)
        while (entry := await _read(lambda: next(entries, None))) is not None:
            if entry.is_directory:
                continue
            try:
                await self._import(entry, done, store, database)
            except errors.StoreError as error:
                if error.retryable or isinstance(error, ArchiveUnusable):
                    raise
                done.skipped += 1
                self.on_skipped(Skipped(entry.name, error.code, error.message))
        return done

    async def _import(self, entry: RawEntry, done: Imported, store: Store, database: StoreDatabase) -> None:
        if entry.problem is not None:
            raise errors.InvalidQuery("it is a link, a device or a sparse file, and only plain files can be stored")
        scope, path = self._place_of(entry.name)
        if entry.size_bytes > self.max_file_bytes:
            raise errors.PayloadTooLarge(f"a file has at most {self.max_file_bytes} bytes")
        content = await _read(entry.read)
        digest = hashlib.sha256(content).digest()
        async with database.read_transaction(scope.apikey_hash) as connection:
            # None: there is no such file.
            same = await connection.fetchval(_SQL["has_content"], *scope, path, len(content), digest)
        if same is True:
            done.unchanged += 1
            return
        if same is False and not self.overwrite:
            raise errors.AlreadyExists("a file with other content is there already")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise errors.InvalidQuery("it is not UTF-8, and only text can be stored") from None
        wanted = WriteArgs(
            project=scope.project, path=path, content=text, mode="TRUNCATE", create_only=not self.overwrite
        )
        await store.write(self.call, wanted)
        done.written, done.bytes = done.written + 1, done.bytes + len(content)

    def _place_of(self, name: str) -> tuple[Scope, str]:
        directory, slash, rest = name.removeprefix("./").partition("/")
        if not slash or directory in {"", ".", ".."}:
            raise errors.InvalidPath("it does not lie in a directory that is named like a project")
        project = self.project or checked_project(directory)
        return Scope(self.call.principal.apikey_hash, project), checked_inner_path("/" + rest)


async def _read(step: Callable[[], _ResultT]) -> _ResultT:
    """Run a step in a thread: a pipe may deliver slowly."""
    try:
        return await to_thread.run_sync(step, abandon_on_cancel=True)
    except ArchiveError as error:
        raise ArchiveUnusable(
            "the archive cannot be read: it is no tar archive, or cut off, or damaged",
            hint="what was taken in stays; the same command goes on with a whole one",
            private={"error": str(error)},
        ) from error
