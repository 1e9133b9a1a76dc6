"""The store as its tools see it: who calls is let in, what is asked is checked, and changes are told to the workers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import Protocol

from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import RateLimited, ResourceBusy, SearchDisabled
from armarium.capabilities.store.files.history import FileHistory, Version
from armarium.capabilities.store.files.listings import FileListings, Listing
from armarium.capabilities.store.files.reads import FileReader, Slice
from armarium.capabilities.store.files.renames import FileRenamer
from armarium.capabilities.store.files.requests import Answer, IdempotentRequests, Request, request_of
from armarium.capabilities.store.files.requests import Change as MakeChange
from armarium.capabilities.store.files.writes import FileWriter, Write, Written, checked_write
from armarium.capabilities.store.index.credentials import Credentials
from armarium.capabilities.store.model import FileEntry, Scope, WriteMode
from armarium.capabilities.store.projects import IndexedProject, Projects
from armarium.capabilities.store.search.file_search import SearchResult
from armarium.capabilities.store.settings import StoreSettings
from armarium.capabilities.store.validation import (
    ALL_PROJECTS,
    StoreLimits,
    checked_content,
    checked_inner_path,
    checked_number,
    checked_prefix,
    checked_project,
    checked_query,
)
from armarium.foundation.errors import ArmariumError
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.tools import Call


class ChunkSearch(Protocol):
    """Finds chunks."""

    async def search(
        self, tenant: str, project: str, query: str, path_prefix: str, limit: int, key: str | None
    ) -> SearchResult:
        """The chunks of a tenant's files that fit best; `key` is the caller's own."""
        ...


@dataclass(slots=True)
class _Change:
    """What is to be known at the end of a change."""

    kept: list[str] = field(default_factory=list[str])
    """References to the caller's key, which only a change that is made needs."""
    made_before: bool = False
    """Whether an earlier request with the same id made it."""


class Store:
    """The files of all tenants. Every method begins with who calls, and sees nothing but that tenant's files."""

    def __init__(
        self,
        database: StoreDatabase,
        settings: StoreSettings,
        *,
        search: ChunkSearch | None,
        credentials: Credentials,
        on_committed: Callable[[], None],
        on_mutation: Callable[[str, str], None],
        on_search: Callable[[float], None],
    ) -> None:
        limits = StoreLimits(
            max_payload_bytes=settings.max_payload_bytes,
            max_file_bytes=settings.max_file_bytes,
            max_project_bytes=settings.max_project_bytes,
            versions_kept=settings.history.versions,
            searchable=settings.search.enabled,
        )
        self._limits = limits
        self._search_settings = settings.search
        self._list_limit_default = settings.list_limit_default
        self._rate = RateLimit(settings.rate.calls_per_second, settings.rate.burst, RateLimited)
        self._reader = FileReader(database)
        self._listings = FileListings(database, limit_max=settings.list_limit_max)
        self._projects = Projects(database)
        self._writer = FileWriter(database, limits, allow_root_wipe=settings.allow_root_wipe)
        self._renamer = FileRenamer(limits)
        self._requests = IdempotentRequests(database)
        self._history = FileHistory(database, self._writer)
        self._search = search
        self._credentials = credentials
        self._on_committed = on_committed
        self._on_mutation = on_mutation
        self._on_search = on_search

    async def stat(self, call: Call, project: str, path: str) -> FileEntry | None:
        """The file or directory at a path, or None."""
        return await self._reader.stat(self._admitted(call, project), path)

    async def read(self, call: Call, project: str, path: str, offset: int = 0, length: int = -1) -> Slice:
        """Text of a file."""
        return await self._reader.read(self._admitted(call, project), path, offset, length)

    async def list_entries(self, call: Call, project: str, path: str, depth: int, limit: int | None) -> Listing:
        """What lies below a path."""
        scope = self._admitted(call, project)
        return await self._listings.entries(scope, path, depth, self._list_limit_default if limit is None else limit)

    async def search(self, call: Call, project: str, query: str, path_prefix: str, limit: int | None) -> SearchResult:
        """Chunks that fit a query, of one project or of all."""
        scope = self._admitted(call, project, several=True)
        wanted, prefix = checked_query(query), checked_prefix(path_prefix)
        most = self._search_settings.limit_default if limit is None else checked_number("limit", limit, 1)
        if self._search is None:
            raise SearchDisabled("searching is switched off here", hint="find files with file_list")
        most = min(most, self._search_settings.limit_max)
        started = time.perf_counter()
        found = await self._search.search(scope.apikey_hash, project, wanted, prefix, most, call.credential)
        self._on_search(time.perf_counter() - started)
        return found

    async def indexed_projects(self, call: Call) -> list[IndexedProject]:
        """The caller's projects in which a search can find something."""
        tenant = call.principal.apikey_hash
        self._rate.take(tenant)
        return await self._projects.searched(tenant)

    async def write(
        self,
        call: Call,
        project: str,
        path: str,
        content: str,
        mode: WriteMode = "APPEND",
        offset: int = 0,
        *,
        encoding: str = "utf-8",
        create_only: bool = False,
        if_version: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Write text into a file."""
        async with self._change("file_write") as change:
            scope = self._admitted(call, project)
            checked_inner_path(path)
            written = checked_content(content, encoding, self._limits.max_payload_bytes)
            wanted = Write(path, written, mode, offset, create_only=create_only, if_version=if_version)
            checked_write(wanted)
            request = request_of(
                request_id,
                "file_write",
                {"path": path, "content": content, "mode": mode, "offset": offset}
                | {"create_only": create_only, "if_version": if_version},
            )
            credential_ref = await self._credential(call, scope, change)
            if request is None:
                return await self._writer.write(scope, wanted, credential_ref)

            async def write(connection: Connection) -> Answer:
                return asdict(await self._writer.write_in(connection, scope, wanted, credential_ref))

            return Written(**await self._once(scope, request, write, change))

    async def delete(
        self,
        call: Call,
        project: str,
        path: str,
        *,
        recursive: bool = False,
        if_version: int | None = None,
        request_id: str | None = None,
    ) -> int:
        """Delete a file or a directory; how many files that were."""
        async with self._change("file_delete") as change:
            scope = self._admitted(call, project)
            how = {"recursive": recursive, "if_version": if_version}
            self._writer.check_delete(path, recursive=recursive, if_version=if_version)

            async def delete(connection: Connection) -> Answer:
                deleted = await self._writer.delete_in(
                    connection, scope, path, recursive=recursive, if_version=if_version
                )
                return {"deleted_count": deleted}

            request = request_of(request_id, "file_delete", {"path": path} | how)
            return (await self._once(scope, request, delete, change))["deleted_count"]

    async def rename(
        self,
        call: Call,
        project: str,
        source: str,
        target: str,
        *,
        overwrite: bool = False,
        request_id: str | None = None,
    ) -> int:
        """Move a file or a directory; how many files that were."""
        async with self._change("file_rename") as change:
            scope = self._admitted(call, project)
            checked_inner_path(source)
            checked_inner_path(target)
            asked = {"from_path": source, "to_path": target, "overwrite": overwrite}
            request = request_of(request_id, "file_rename", asked)
            if source == target:
                return 0
            credential_ref = await self._credential(call, scope, change)

            async def rename(connection: Connection) -> Answer:
                moved = await self._renamer.rename_in(
                    connection, scope, source, target, overwrite=overwrite, credential_ref=credential_ref
                )
                return {"moved_count": moved}

            return (await self._once(scope, request, rename, change))["moved_count"]

    async def versions(self, call: Call, project: str, path: str) -> list[Version]:
        """Which versions of a file are kept, newest first."""
        return await self._history.versions(self._admitted(call, project), path)

    async def restore(
        self, call: Call, project: str, path: str, version: int, *, request_id: str | None = None
    ) -> Written:
        """Write an earlier version again."""
        async with self._change("file_restore") as change:
            scope = self._admitted(call, project)
            checked_inner_path(path)
            checked_number("version", version, 1)
            request = request_of(request_id, "file_restore", {"path": path, "version": version})
            credential_ref = await self._credential(call, scope, change)

            async def restore(connection: Connection) -> Answer:
                return asdict(await self._history.restore_in(connection, scope, path, version, credential_ref))

            return Written(**await self._once(scope, request, restore, change))

    async def _once(self, scope: Scope, request: Request | None, change: MakeChange, noted: _Change) -> Answer:
        answer, noted.made_before = await self._requests.once(scope, request, change)
        return answer

    def _admitted(self, call: Call, project: str, *, several: bool = False) -> Scope:
        tenant = call.principal.apikey_hash
        self._rate.take(tenant)
        return Scope(tenant, project if several and project == ALL_PROJECTS else checked_project(project))

    async def _credential(self, call: Call, scope: Scope, change: _Change) -> str | None:
        """Where the caller's key waits for the indexing of a change; noted, in case the change comes to nothing."""
        if not self._limits.searchable:
            return None
        reference = await self._credentials.keep(call.credential, scope)
        if reference is not None:
            change.kept.append(reference)
        return reference

    @asynccontextmanager
    async def _change(self, tool: str) -> AsyncGenerator[_Change]:
        change = _Change()
        status = "INTERNAL"
        try:
            yield change
            status = "ok"
        except ResourceBusy:
            # Nobody knows whether it was made: the keys are left to their time to live.
            status = ResourceBusy.code
            raise
        except ArmariumError as error:
            status = error.code
            await self._discard(change)
            raise
        finally:
            self._on_mutation(tool, status)
        if change.made_before:
            await self._discard(change)
        elif self._limits.searchable:
            self._on_committed()

    async def _discard(self, change: _Change) -> None:
        for reference in change.kept:
            await self._credentials.discard(reference)
