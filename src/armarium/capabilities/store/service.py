"""The store's service: enforces rate limits, validates arguments, runs file operations, and wakes the workers."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from functools import partial

from armarium.capabilities.store import arguments, model, validation
from armarium.capabilities.store.access import StoreAccess
from armarium.capabilities.store.database.pool import Connection
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import RateLimited, ResourceBusy, SearchDisabled
from armarium.capabilities.store.files import listings, reads
from armarium.capabilities.store.files.requests import AnswerT, Request, request_of, run_once
from armarium.capabilities.store.files.writes import FileWriter, Write, checked_write, purge_history
from armarium.capabilities.store.index.credentials import Credentials
from armarium.capabilities.store.search.file_search import FileSearch
from armarium.capabilities.store.settings import StoreSettings
from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.errors import ArmariumError
from armarium.foundation.security.access import READ, WRITE
from armarium.foundation.tools import Call
from armarium.retrieval.sources import Collection


@dataclass(slots=True)
class _Mutation:
    reference: str | None = None
    """Reference to the caller's key, stored for the index jobs of the change."""
    repeated: bool = False
    """Whether an earlier request with the same id already made the change."""


@dataclass(eq=False)
class Store:
    """The files of all tenants. Every method takes the call first, and accesses only the files of its tenant.

    The methods that take `args` are the tools; their docstrings are the descriptions that a model reads.
    """

    database: StoreDatabase
    settings: StoreSettings
    _: KW_ONLY
    file_search: FileSearch | None
    credentials: Credentials | None
    on_committed: Callable[[], None]
    on_mutation: Callable[[str, str], None]
    on_search: Callable[[float], None]
    access: StoreAccess = field(default_factory=StoreAccess)

    def __post_init__(self) -> None:
        rate = self.settings.rate
        self._rate_limit = RateLimit(rate.calls_per_second, rate.burst, RateLimited)
        self._writer = FileWriter(self.database, self.settings)

    async def stat(self, call: Call, args: arguments.AtPath) -> model.Stat:
        """Get the metadata of a path: a FILE with its size in bytes, times and `version`, a DIRECTORY, or `exists`
        false, which is not an error. A directory exists while files are below it: its size is 0, it has no creation
        time, and `updated_at` is that of the newest file below (in very large ones, among the first by path)."""
        return await reads.stat_path(self.database, self.admitted(call, args.project), args.path)

    async def read(self, call: Call, args: arguments.ReadArgs) -> model.Content:
        """Read a text file, or the bytes [`offset`, `offset` + `length`) of it. Offsets count bytes, as in file_search.
        A slice contains only complete characters: partial ones at its ends are left out, and `offset` and `end` in the
        result are the bytes returned. Continue at `end` until it equals `size`; nothing is lost or repeated. A slice
        shorter than its first character returns that character. Beyond the end the content is "". Use file_search or
        file_list first if you do not know the path."""
        scope = self.admitted(call, args.project)
        return await reads.read_slice(self.database, scope, args.path, args.offset, args.length)

    async def list_entries(self, call: Call, args: arguments.ListArgs) -> model.Entries:
        """List files and directories below a path, sorted bytewise by path. `depth` 1 lists the direct children, 2 one
        level more; 0 returns only the path itself. `has_more` means that `limit` truncated the list: list a
        subdirectory, or use a larger limit. A project without files has an empty root."""
        scope = self.admitted(call, args.project)
        path = "" if args.path == "/" else args.path
        limit = self.settings.list_limit_default if args.limit is None else args.limit
        limit_max = self.settings.list_limit_max
        return await listings.list_entries(self.database, scope, path, args.depth, limit, limit_max=limit_max)

    async def search(self, call: Call, args: arguments.SearchArgs) -> model.Chunks:
        """Search the files of a project by meaning and by words. Returns the best chunks first, each with its file and
        its byte range, which file_read accepts as `offset` and `length` to read around it. A new file is found a moment
        after the write; a deleted file is never found."""
        return await self.find_chunks(call, args.project, args.query, args.path_prefix, args.limit)

    async def find_chunks(
        self, call: Call, project: str, query: str, path_prefix: str = "", limit: int | None = None
    ) -> model.Chunks:
        """The best chunks for a query, in one project or in all projects of the caller."""
        tenant = self.admitted_tenant(call)
        if project != validation.ALL_PROJECTS:
            self.access.require(call.principal, READ, validation.checked_project(project))
        wanted, prefix = validation.checked_query(query), validation.checked_prefix(path_prefix)
        rules = self.settings.search
        most = rules.limit_default if limit is None else validation.checked_number("limit", limit, 1)
        if self.file_search is None:
            raise SearchDisabled("search is disabled on this server", hint="find files with file_list")
        started = time.perf_counter()
        most, hidden = min(most, rules.limit_max), self.access.hidden_from(call.principal)
        found = await self.file_search.search(tenant, project, wanted, prefix, most, call.credential, hidden)
        self.on_search(time.perf_counter() - started)
        return found

    async def indexed_projects(self, call: Call) -> list[Collection]:
        """The caller's projects that contain indexed files and that they may read, as collections to search."""
        if not self.access.whole.admits(call.principal, READ):
            return []
        hidden = self.access.hidden_from(call.principal)
        return await listings.indexed_projects(self.database, self.admitted_tenant(call), hidden)

    @property
    def max_chunks(self) -> int:
        return self.settings.search.limit_max

    async def modification_times(
        self, call: Call, project: str, paths: Iterable[str]
    ) -> tuple[dict[str, datetime], bool]:
        """When files that were found were modified, and whether changes of the project wait for their index. A part of
        a search, so it does not count as a call."""
        scope = model.Scope(call.principal.apikey_hash, validation.checked_project(project))
        return await listings.modification_times(self.database, scope, paths)

    async def write(self, call: Call, args: arguments.WriteArgs) -> model.Written:
        """Write text to a file of a project; the file and its directories are created as needed. `mode` APPEND (the
        default) adds to the end, TRUNCATE replaces the whole file, OVERWRITE replaces bytes from `offset` on and keeps
        the rest; it must begin and end between characters. To detect changes since you read the file, pass its
        `version` as `if_version`; to never replace a file, set `create_only`. file_restore undoes a write. The text is
        searchable a moment later."""
        async with self._mutation("file_write") as mutation:
            scope = self.admitted(call, args.project, WRITE)
            validation.checked_inner_path(args.path)
            content = validation.checked_content(args.content, args.content_encoding, self.settings.max_payload_bytes)
            wanted = Write(args.path, content, args.mode, args.offset, args.create_only, args.if_version)
            checked_write(wanted)
            request = request_of("file_write", args)
            reference = await self._keep_credential(call, scope, mutation)
            if request is None:
                return await self._writer.write(scope, wanted, reference)
            change = partial(self._writer.write_in, scope, wanted, reference)
            return await self._once(mutation, scope, request, change)

    async def delete(self, call: Call, args: arguments.DeleteArgs) -> model.Deleted:
        """Delete a file, or with `recursive` a directory and all files in it. file_restore restores a single file. The
        root of a project ("") can only be deleted if the operator allows it."""
        async with self._mutation("file_delete") as mutation:
            scope = self.admitted(call, args.project, WRITE)
            self._writer.check_delete(args)
            request = request_of("file_delete", args)
            return await self._once(mutation, scope, request, partial(self._writer.delete_in, scope, args))

    async def purge(self, call: Call, args: arguments.PurgeArgs) -> model.Purged:
        """Delete for good what is kept of a path and everything below it besides the current files: earlier versions
        and deleted files. They cannot be restored; current files stay. This makes room if a write fails with
        QUOTA_EXCEEDED. To delete a file for good, delete it first."""
        async with self._mutation("file_purge"):
            scope = self.admitted(call, args.project, WRITE)
            return await purge_history(self.database, scope, validation.checked_path(args.path))

    async def rename(self, call: Call, args: arguments.RenameArgs) -> model.Renamed:
        """Rename or move a file, or a directory with everything in it, atomically. Only a file can replace another
        file, with `overwrite`; a directory needs an unused path. Earlier versions move too."""
        async with self._mutation("file_rename") as mutation:
            scope = self.admitted(call, args.project, WRITE)
            validation.checked_inner_path(args.from_path)
            validation.checked_inner_path(args.to_path)
            request = request_of("file_rename", args)
            if args.from_path == args.to_path:
                return {"moved_count": 0}
            reference = await self._keep_credential(call, scope, mutation)
            return await self._once(mutation, scope, request, partial(self._writer.rename_in, scope, args, reference))

    async def list_versions(self, call: Call, args: arguments.AtPath) -> model.Versions:
        """List the stored versions of a file, newest first, with size and times; `current` marks the present content.
        Works for deleted files too. Restore one with file_restore."""
        return await reads.list_versions(self.database, self.admitted(call, args.project), args.path)

    async def restore(self, call: Call, args: arguments.RestoreArgs) -> model.Written:
        """Write the content of an earlier `version` of a file again, as listed by file_history; works for deleted files
        too. This creates a new version, so nothing is lost. Restoring the current version has no effect."""
        async with self._mutation("file_restore") as mutation:
            scope = self.admitted(call, args.project, WRITE)
            validation.checked_inner_path(args.path)
            validation.checked_number("version", args.version, 1)
            request = request_of("file_restore", args)
            reference = await self._keep_credential(call, scope, mutation)
            return await self._once(mutation, scope, request, partial(self._writer.restore_in, scope, args, reference))

    async def _once(
        self,
        mutation: _Mutation,
        scope: model.Scope,
        request: Request | None,
        change: Callable[[Connection], Awaitable[AnswerT]],
    ) -> AnswerT:
        answer, mutation.repeated = await run_once(self.database, scope, request, change)
        return answer

    def admitted_tenant(self, call: Call) -> str:
        """Count a call that is about all projects of its tenant. Raises if the caller may not make it."""
        self.access.require(call.principal, READ)
        self._rate_limit.take(call.principal.apikey_hash)
        return call.principal.apikey_hash

    def admitted(self, call: Call, project: str, role: str = READ) -> model.Scope:
        """Count a call about a project. Raises if the caller may not make it."""
        self._rate_limit.take(call.principal.apikey_hash)
        scope = model.Scope(call.principal.apikey_hash, validation.checked_project(project))
        self.access.require(call.principal, role, scope.project)
        return scope

    async def _keep_credential(self, call: Call, scope: model.Scope, mutation: _Mutation) -> str | None:
        """Store the caller's key for the index jobs of a change. Returns the reference to it."""
        if self.credentials is not None:
            mutation.reference = await self.credentials.keep(call.credential, scope)
        return mutation.reference

    @asynccontextmanager
    async def _mutation(self, tool: str) -> AsyncGenerator[_Mutation]:
        mutation = _Mutation()
        status = "INTERNAL"
        try:
            yield mutation
            status = "ok"
        except ResourceBusy:
            # The change may have been committed, so its key is not removed: it expires.
            status = ResourceBusy.code
            raise
        except ArmariumError as error:
            status = error.code
            await self._discard(mutation)
            raise
        finally:
            self.on_mutation(tool, status)
        if mutation.repeated:
            await self._discard(mutation)
        elif self.settings.search.enabled:
            self.on_committed()

    async def _discard(self, mutation: _Mutation) -> None:
        if self.credentials is not None and mutation.reference is not None:
            await self.credentials.discard(mutation.reference)
