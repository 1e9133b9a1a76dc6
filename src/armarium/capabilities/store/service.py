"""The store's service: enforces rate limits, validates arguments, runs file operations, and wakes the workers."""

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
from armarium.capabilities.store.files.listings import FileListings, IndexedProject, Listing
from armarium.capabilities.store.files.reads import FileReader, Slice
from armarium.capabilities.store.files.renames import FileRenamer
from armarium.capabilities.store.files.requests import Answer, Change, IdempotentRequests, Request, request_of
from armarium.capabilities.store.files.writes import FileWriter, Write, Written, checked_write
from armarium.capabilities.store.index.credentials import Credentials
from armarium.capabilities.store.model import FileEntry, Scope, WriteMode
from armarium.capabilities.store.search.file_search import SearchResult
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


@dataclass(frozen=True, slots=True)
class StoreRules:
    """What callers may do, and the defaults of their calls."""

    limits: StoreLimits
    calls_per_second: float
    burst: int
    list_limit_default: int = 256
    list_limit_max: int = 1000
    search_limit_default: int = 5
    search_limit_max: int = 20
    allow_root_wipe: bool = False


class ChunkSearch(Protocol):
    """Searches indexed files."""

    async def search(
        self, tenant: str, project: str, query: str, path_prefix: str, limit: int, key: str | None
    ) -> SearchResult:
        """The best chunks of the tenant's files; `key` is the caller's API key."""
        ...


@dataclass(slots=True)
class _Mutation:
    """The state of a change while it is made."""

    references: list[str] = field(default_factory=list[str])
    """References to the caller's key, stored for the index jobs of the change."""
    repeated: bool = False
    """Whether an earlier request with the same id already made the change."""


class Store:
    """The files of all tenants. Every method takes the call first, and accesses only the files of its tenant."""

    def __init__(
        self,
        database: StoreDatabase,
        rules: StoreRules,
        *,
        search: ChunkSearch | None,
        credentials: Credentials,
        on_committed: Callable[[], None],
        on_mutation: Callable[[str, str], None],
        on_search: Callable[[float], None],
    ) -> None:
        self._rules = rules
        self._limits = rules.limits
        self._rate_limit = RateLimit(rules.calls_per_second, rules.burst, RateLimited)
        self._reader = FileReader(database)
        self._listings = FileListings(database, limit_max=rules.list_limit_max)
        self._writer = FileWriter(database, rules.limits, allow_root_wipe=rules.allow_root_wipe)
        self._renamer = FileRenamer(rules.limits)
        self._requests = IdempotentRequests(database)
        self._history = FileHistory(database, self._writer)
        self._search = search
        self._credentials = credentials
        self._on_committed = on_committed
        self._on_mutation = on_mutation
        self._on_search = on_search

    async def stat(self, call: Call, project: str, path: str) -> FileEntry | None:
        """The file or directory at a path, or None if the path does not exist."""
        return await self._reader.stat(self._admitted(call, project), path)

    async def read(self, call: Call, project: str, path: str, offset: int = 0, length: int = -1) -> Slice:
        """The text of a file, or of a byte range of it."""
        return await self._reader.read(self._admitted(call, project), path, offset, length)

    async def list_entries(self, call: Call, project: str, path: str, depth: int, limit: int | None) -> Listing:
        """The files and directories below a path."""
        scope = self._admitted(call, project)
        limit = self._rules.list_limit_default if limit is None else limit
        return await self._listings.entries(scope, path, depth, limit)

    async def search(self, call: Call, project: str, query: str, path_prefix: str, limit: int | None) -> SearchResult:
        """The best chunks for a query, in one project or in all projects of the caller."""
        scope = self._admitted(call, project, several=True)
        wanted, prefix = checked_query(query), checked_prefix(path_prefix)
        most = self._rules.search_limit_default if limit is None else checked_number("limit", limit, 1)
        if self._search is None:
            raise SearchDisabled("search is disabled on this server", hint="find files with file_list")
        most = min(most, self._rules.search_limit_max)
        started = time.perf_counter()
        found = await self._search.search(scope.apikey_hash, project, wanted, prefix, most, call.credential)
        self._on_search(time.perf_counter() - started)
        return found

    async def indexed_projects(self, call: Call) -> list[IndexedProject]:
        """The caller's projects that contain indexed files."""
        tenant = call.principal.apikey_hash
        self._rate_limit.take(tenant)
        return await self._listings.indexed_projects(tenant)

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
        """Write text to a file."""
        async with self._mutation("file_write") as mutation:
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
            credential_ref = await self._credential(call, scope, mutation)
            if request is None:
                return await self._writer.write(scope, wanted, credential_ref)

            async def write(connection: Connection) -> Answer:
                return asdict(await self._writer.write_in(connection, scope, wanted, credential_ref))

            return Written(**await self._once(scope, request, write, mutation))

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
        """Delete a file or a directory. Returns the number of deleted files."""
        async with self._mutation("file_delete") as mutation:
            scope = self._admitted(call, project)
            how = {"recursive": recursive, "if_version": if_version}
            self._writer.check_delete(path, recursive=recursive, if_version=if_version)

            async def delete(connection: Connection) -> Answer:
                deleted = await self._writer.delete_in(
                    connection, scope, path, recursive=recursive, if_version=if_version
                )
                return {"deleted_count": deleted}

            request = request_of(request_id, "file_delete", {"path": path} | how)
            return (await self._once(scope, request, delete, mutation))["deleted_count"]

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
        """Move a file or a directory. Returns the number of moved files."""
        async with self._mutation("file_rename") as mutation:
            scope = self._admitted(call, project)
            checked_inner_path(source)
            checked_inner_path(target)
            asked = {"from_path": source, "to_path": target, "overwrite": overwrite}
            request = request_of(request_id, "file_rename", asked)
            if source == target:
                return 0
            credential_ref = await self._credential(call, scope, mutation)

            async def rename(connection: Connection) -> Answer:
                moved = await self._renamer.rename_in(
                    connection, scope, source, target, overwrite=overwrite, credential_ref=credential_ref
                )
                return {"moved_count": moved}

            return (await self._once(scope, request, rename, mutation))["moved_count"]

    async def versions(self, call: Call, project: str, path: str) -> list[Version]:
        """The stored versions of a file, newest first."""
        return await self._history.versions(self._admitted(call, project), path)

    async def restore(
        self, call: Call, project: str, path: str, version: int, *, request_id: str | None = None
    ) -> Written:
        """Write the content of an earlier version again."""
        async with self._mutation("file_restore") as mutation:
            scope = self._admitted(call, project)
            checked_inner_path(path)
            checked_number("version", version, 1)
            request = request_of(request_id, "file_restore", {"path": path, "version": version})
            credential_ref = await self._credential(call, scope, mutation)

            async def restore(connection: Connection) -> Answer:
                return asdict(await self._history.restore_in(connection, scope, path, version, credential_ref))

            return Written(**await self._once(scope, request, restore, mutation))

    async def _once(self, scope: Scope, request: Request | None, change: Change, mutation: _Mutation) -> Answer:
        answer, mutation.repeated = await self._requests.run_once(scope, request, change)
        return answer

    def _admitted(self, call: Call, project: str, *, several: bool = False) -> Scope:
        tenant = call.principal.apikey_hash
        self._rate_limit.take(tenant)
        return Scope(tenant, project if several and project == ALL_PROJECTS else checked_project(project))

    async def _credential(self, call: Call, scope: Scope, mutation: _Mutation) -> str | None:
        """Store the caller's key for the index jobs of a change. Returns the reference to it."""
        if not self._limits.searchable:
            return None
        reference = await self._credentials.keep(call.credential, scope)
        if reference is not None:
            mutation.references.append(reference)
        return reference

    @asynccontextmanager
    async def _mutation(self, tool: str) -> AsyncGenerator[_Mutation]:
        mutation = _Mutation()
        status = "INTERNAL"
        try:
            yield mutation
            status = "ok"
        except ResourceBusy:
            # The change may have been committed, so its keys are not removed: they expire.
            status = ResourceBusy.code
            raise
        except ArmariumError as error:
            status = error.code
            await self._discard(mutation)
            raise
        finally:
            self._on_mutation(tool, status)
        if mutation.repeated:
            await self._discard(mutation)
        elif self._limits.searchable:
            self._on_committed()

    async def _discard(self, mutation: _Mutation) -> None:
        for reference in mutation.references:
            await self._credentials.discard(reference)
