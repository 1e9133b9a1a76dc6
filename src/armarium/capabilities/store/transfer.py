"""Files out of the store and into it: a tar archive, one file at a time, so that it does not matter how many."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, TypeVar, cast

from anyio import to_thread

from armarium.capabilities.store.arguments import WriteArgs
from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import (
    AlreadyExists,
    InvalidPath,
    InvalidQuery,
    NotFound,
    PayloadTooLarge,
    StoreError,
)
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


class ArchiveUnusable(StoreError):
    """The archive cannot be written, or it cannot be read to its end. What was taken in until then stays."""

    code = "ARCHIVE_UNUSABLE"


@dataclass(frozen=True, slots=True)
class Skipped:
    """A member of an archive that was not taken in, and why."""

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
    """Write a tenant's files to `out`, of one project or with "*" of all, as they are at one moment; counts them. An
    archive that could not be finished has no end, so nobody takes it for a whole one."""
    wanted = project if project == ALL_PROJECTS else checked_project(project)
    async with database.write_transaction(tenant) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        # Whoever reads the other end of a pipe may take a break.
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        projects = [row["project"] for row in await connection.fetch(_SQL["projects_with_files"], tenant)]
        chosen = projects if wanted == ALL_PROJECTS else [each for each in projects if each == wanted]
        if not chosen:
            raise NotFound("there are no files to export", hint="check the project and the caller")
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
        # As it is, a pipe that broke would be taken for a broken connection to the database.
        raise ArchiveUnusable(f"the archive cannot be written: {error.strerror or type(error).__name__}") from error


@dataclass(frozen=True, slots=True)
class Import:
    """Takes an archive in for one caller. Each member is a write of its own, so it can be run again after a break."""

    store: Store
    database: StoreDatabase
    call: Call
    project: str | None
    """The project for all members; None: the first directory of each member."""
    overwrite: bool
    max_file_bytes: int
    on_skipped: Callable[[Skipped], None]

    async def run(self, source: BinaryIO) -> Imported:
        """Take in every member; those that cannot be stored are skipped and told."""
        if self.project is not None:
            checked_project(self.project)
        done = Imported()
        entries = tar_entries(source, Budget(), max_header_bytes=_MAX_HEADER_BYTES, require_end=True)
        while (entry := await _read(lambda: next(entries, None))) is not None:
            if entry.is_directory:
                continue
            try:
                await self._take_in(entry, done)
            except StoreError as error:
                if error.retryable or isinstance(error, ArchiveUnusable):
                    raise
                done.skipped += 1
                self.on_skipped(Skipped(entry.name, error.code, error.message))
        return done

    async def _take_in(self, entry: RawEntry, done: Imported) -> None:
        if entry.problem is not None:
            raise InvalidQuery("it is a link, a device or a sparse file, and only plain files can be stored")
        scope, path = self._place_of(entry.name)
        if entry.size_bytes > self.max_file_bytes:
            raise PayloadTooLarge(f"a file has at most {self.max_file_bytes} bytes")
        content = await _read(entry.read)
        if (same := await self._is_there(scope, path, content)) is True:
            done.unchanged += 1
            return
        if same is False and not self.overwrite:
            raise AlreadyExists("a file with other content is there already")
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise InvalidQuery("it is not UTF-8, and only text can be stored") from None
        wanted = WriteArgs(
            project=scope.project, path=path, content=text, mode="TRUNCATE", create_only=not self.overwrite
        )
        await self.store.write(self.call, wanted)
        done.written, done.bytes = done.written + 1, done.bytes + len(content)

    def _place_of(self, name: str) -> tuple[Scope, str]:
        directory, slash, rest = name.removeprefix("./").partition("/")
        if not slash or directory in {"", ".", ".."}:
            raise InvalidPath("it does not lie in a directory that is named like a project")
        project = self.project or checked_project(directory)
        return Scope(self.call.principal.apikey_hash, project), checked_inner_path("/" + rest)

    async def _is_there(self, scope: Scope, path: str, content: bytes) -> bool | None:
        """Whether the file has this content already; None when there is no such file."""
        digest = hashlib.sha256(content).digest()
        async with self.database.read_transaction(scope.apikey_hash) as connection:
            return await connection.fetchval(_SQL["has_content"], *scope, path, len(content), digest)


async def _read(step: Callable[[], _ResultT]) -> _ResultT:
    """Read on in a thread: what comes from a pipe may take its time."""
    try:
        return await to_thread.run_sync(step, abandon_on_cancel=True)
    except ArchiveError as error:
        raise ArchiveUnusable(
            "the archive cannot be read: it is no tar archive, or cut off, or damaged",
            hint="what was taken in stays; the same command goes on with a whole one",
            private={"error": str(error)},
        ) from error
