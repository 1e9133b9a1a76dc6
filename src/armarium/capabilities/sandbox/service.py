"""The service behind the tools: checks permissions, runs the work in threads, publishes events."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

import anyio

from armarium.capabilities.sandbox import results
from armarium.capabilities.sandbox.change_events import ChangeEvents
from armarium.capabilities.sandbox.changes import copies, edits, moves, removal
from armarium.capabilities.sandbox.changes.targets import ChangeContext
from armarium.capabilities.sandbox.errors import ResourceBusy
from armarium.capabilities.sandbox.lock_wait import LockQueues
from armarium.capabilities.sandbox.reads import root_files
from armarium.capabilities.sandbox.reads.file_content import ReadLimits, Window
from armarium.capabilities.sandbox.roots import Root, RootReplaced, Roots
from armarium.capabilities.sandbox.search.glob import NameQuery
from armarium.capabilities.sandbox.search.grep import Query
from armarium.capabilities.sandbox.search.root_search import Scope, glob_root, grep_root
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.events import Events
from armarium.foundation.files.directory_locks import DirectoryBusy, DirectoryLocks
from armarium.foundation.files.names import escape_name
from armarium.foundation.tools import Call

_MAX_REMAINING = 100
_MAX_REPLACEMENTS = 3

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


def retried(
    method: Callable[Concatenate[Sandbox, P], Awaitable[ResultT]],
) -> Callable[Concatenate[Sandbox, P], Awaitable[ResultT]]:
    """Retry a method that changed nothing because a directory was locked or a root was replaced."""

    async def reopening(self: Sandbox, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        for _ in range(_MAX_REPLACEMENTS):
            try:
                return await method(self, *args, **kwargs)
            except RootReplaced as replaced:
                await self.reopen(replaced.root)
        raise ResourceBusy("the directory of the root is replaced again and again", hint="try again")

    @functools.wraps(method)
    async def retrying(self: Sandbox, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        attempt = method
        while True:
            try:
                return await attempt(self, *args, **kwargs)
            except RootReplaced:
                attempt = reopening
            except DirectoryBusy as busy:
                return await self.lock_queues.run(busy, lambda: reopening(self, *args, **kwargs))

    return retrying


class Sandbox:
    """Files and folders of the named roots, and nothing outside them."""

    def __init__(
        self,
        roots: Roots,
        workers: Workers,
        events: Events,
        limits: ReadLimits,
        search_seconds: int,
        lock_seconds: float = 10.0,
    ) -> None:
        self._roots = roots
        self._workers = workers
        self._events = ChangeEvents(events)
        self._limits = limits
        self._search_seconds = search_seconds
        self._locks = DirectoryLocks(long_timeout_s=lock_seconds)
        self.lock_queues = LockQueues(lock_seconds)
        self._reopening = anyio.Lock()

    async def reopen(self, root: Root) -> None:
        """Serve the directory that is now at the path of a root."""
        async with self._reopening:
            # Not in a worker thread: Landlock may deny it the new directory.
            if await anyio.to_thread.run_sync(root.reopen):
                self._workers.renew(*self._roots.granted())
                await self._workers.run("", root.confirm_replaced)

    def _context(self, call: Call, if_match: str | None = None) -> ChangeContext:
        return ChangeContext(if_match, self._locks, call.cancellation)

    def list_roots(self) -> results.RootList:
        """Names and allowed tools; never a host path."""
        roots = [
            results.RootInfo(name=root.name, allowed_tools=root.effective_tools(), read_only=root.read_only)
            for root in self._roots
        ]
        return results.RootList(roots=roots, count=len(roots))

    @retried
    async def list_folder(
        self, call: Call, root_name: str, path: str, limit: int | None, cursor: str | None
    ) -> results.Folder:
        root = self._roots.enter(root_name, "list_folder", path)
        return await self._workers.run(call.caller, root_files.list_folder, root, path, limit, cursor)

    @retried
    async def read_file(
        self, call: Call, root_name: str, path: str, window: Window, *, number_lines: bool
    ) -> results.FileContent:
        root = self._roots.enter(root_name, "read_file", path)
        return await self._workers.run(
            call.caller, root_files.read_file, root, path, window, self._limits, call.cancellation, number_lines
        )

    @retried
    async def read_files(self, call: Call, root_name: str, paths: Sequence[str]) -> results.FileContents:
        root = self._roots.enter(root_name, "read_file", paths[0])
        files, denials = await self._workers.run(
            call.caller, root_files.read_files, root, paths, self._limits, call.cancellation
        )
        call.denials.extend(denials)
        return results.FileContents(root=root.name, files=files, count=len(files))

    @retried
    async def write_file(
        self, call: Call, root_name: str, path: str, content: str, mode: str, if_match: str | None
    ) -> results.Written:
        root = self._roots.enter(root_name, "write_file", path, writing=True)
        context = self._context(call, if_match)
        normal, result = await self._workers.change(call.caller, edits.write_file, root, path, content, mode, context)
        await self._events.changed(call.principal, root, normal, "created" if result["created"] else "modified")
        return result

    @retried
    async def patch_file(
        self, call: Call, root_name: str, path: str, patch: str, if_match: str | None, *, dry_run: bool
    ) -> results.Patched:
        root = self._roots.enter(root_name, "patch_file", path, writing=True)
        context = self._context(call, if_match)
        normal, result = await self._workers.change(call.caller, edits.patch_file, root, path, patch, context, dry_run)
        if not dry_run:
            await self._events.changed(call.principal, root, normal, "created" if result["created"] else "modified")
        return result

    @retried
    async def remove_file(self, call: Call, root_name: str, path: str, if_match: str | None) -> results.Removed:
        root = self._roots.enter(root_name, "remove_file", path, writing=True)
        context = self._context(call, if_match)
        normal = await self._workers.change(call.caller, removal.remove_file, root, path, context)
        await self._events.changed(call.principal, root, normal, "removed")
        return results.Removed(root=root.name, path=escape_name(normal), removed=True)

    @retried
    async def create_folder(self, call: Call, root_name: str, path: str) -> results.FolderCreated:
        root = self._roots.enter(root_name, "create_folder", path, writing=True)
        normal, existed = await self._workers.change(call.caller, edits.create_folder, root, path)
        if not existed:
            await self._events.changed(call.principal, root, normal, "created", is_directory=True)
        return results.FolderCreated(root=root.name, path=escape_name(normal), created=True, existed=existed)

    @retried
    async def remove_folder(self, call: Call, root_name: str, path: str) -> results.Removed:
        root = self._roots.enter(root_name, "remove_folder", path, writing=True)
        context = self._context(call)
        normal, removed = await self._workers.long(call.caller, removal.remove_folder, root, path, context)
        await self._events.changed(call.principal, root, normal, "removed", is_directory=True)
        return results.Removed(root=root.name, path=escape_name(normal), removed=True, entries_removed=removed)

    @retried
    async def stat_file(self, call: Call, root_name: str, path: str, *, include_sha256: bool) -> results.Metadata:
        root = self._roots.enter(root_name, "stat_file", path)
        return await self._workers.run(call.caller, root_files.stat_file, root, path, include_sha256, call.cancellation)

    @retried
    async def hash_file(self, call: Call, root_name: str, path: str, algorithm: str) -> results.Hash:
        root = self._roots.enter(root_name, "hash_file", path)
        return await self._workers.run(call.caller, root_files.hash_file, root, path, algorithm, call.cancellation)

    @retried
    async def permissions_file(self, call: Call, root_name: str, path: str) -> results.Permissions:
        root = self._roots.enter(root_name, "permissions_file", path)
        return await self._workers.run(call.caller, root_files.permissions, root, path)

    @retried
    async def copy(
        self, call: Call, source_root: str, source_path: str, dest_root: str, dest_path: str, if_match: str | None
    ) -> results.Copied:
        from_root = self._roots.enter(source_root, "copy", source_path)
        into_root = self._roots.enter(dest_root, "copy", dest_path, writing=True)
        path, done = await self._workers.transfer(
            call.caller, copies.copy, from_root, source_path, into_root, dest_path, self._context(call, if_match)
        )
        await self._events.copied(call.principal, into_root, done)
        return results.Copied(
            source=str(from_root.ref(path)),
            destination=str(into_root.ref(done.destination)),
            is_directory=done.is_directory,
            size=done.size,
            files_copied=done.files,
            skipped=[escape_name(skipped) for skipped in done.skipped],
        )

    @retried
    async def move(
        self, call: Call, source_root: str, source_path: str, dest_root: str, dest_path: str, if_match: str | None
    ) -> results.Moved:
        from_root = self._roots.enter(source_root, "move", source_path, writing=True)
        into_root = self._roots.enter(dest_root, "move", dest_path, writing=True)
        path, done = await self._workers.transfer(
            call.caller, moves.move, from_root, source_path, into_root, dest_path, self._context(call, if_match)
        )
        await self._events.moved(call.principal, from_root, path, into_root, done)
        result = results.Moved(source=str(from_root.ref(path)), destination=str(into_root.ref(done.destination)))
        if done.remaining:
            result["complete"] = False
            result["remaining_count"] = len(done.remaining)
            result["remaining"] = done.remaining[:_MAX_REMAINING]
        return result

    @retried
    async def grep(self, call: Call, root_name: str, path: str, query: Query, scope: Scope) -> results.Matches:
        root = self._roots.enter(root_name, "grep", path)
        deadline = self._search_deadline(scope)
        return await self._workers.search(call.caller, grep_root, root, path, query, scope, deadline, call.cancellation)

    @retried
    async def glob(self, call: Call, root_name: str, path: str, query: NameQuery, scope: Scope) -> results.FoundFiles:
        root = self._roots.enter(root_name, "glob", path)
        if (query.pattern is None) == (query.regex is None):
            raise InvalidArgument("exactly one of `pattern` or `regex` must be provided")
        deadline = self._search_deadline(scope)
        return await self._workers.search(call.caller, glob_root, root, path, query, scope, deadline, call.cancellation)

    def _search_deadline(self, scope: Scope) -> float:
        """When the search ends. The wait for a thread counts."""
        return time.monotonic() + min(scope.timeout_seconds, self._search_seconds)
