"""The service behind the tools: its roots, threads, locks and events. It repeats calls that could not start."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from armarium.capabilities.sandbox.arguments import SearchArgs, TransferArgs
from armarium.capabilities.sandbox.change_events import ChangeEvents
from armarium.capabilities.sandbox.changes.copies import Transferred
from armarium.capabilities.sandbox.changes.targets import ChangeContext
from armarium.capabilities.sandbox.errors import ResourceBusy
from armarium.capabilities.sandbox.lock_wait import LockQueues
from armarium.capabilities.sandbox.reads.file_content import ReadLimits
from armarium.capabilities.sandbox.roots import Root, RootReplaced, Roots
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.events import Events
from armarium.foundation.files.directory_locks import DirectoryBusy, DirectoryLocks
from armarium.foundation.tools import Call

_MAX_REPLACEMENTS = 3

ResultT = TypeVar("ResultT")
SearchT = TypeVar("SearchT", bound=SearchArgs)


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
        self.roots = roots
        self.workers = workers
        self.events = ChangeEvents(events)
        self.limits = limits
        self._search_seconds = search_seconds
        self._locks = DirectoryLocks(long_timeout_s=lock_seconds)
        self._lock_queues = LockQueues(lock_seconds)
        self._reopening = anyio.Lock()

    async def retried(self, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat a call that changed nothing because a directory was locked or a root was replaced."""

        async def reopening() -> ResultT:
            for _ in range(_MAX_REPLACEMENTS):
                try:
                    return await attempt()
                except RootReplaced as replaced:
                    await self._reopen(replaced.root)
            raise ResourceBusy("the directory of the root is replaced again and again", hint="try again")

        try:
            return await reopening()
        except DirectoryBusy as busy:
            return await self._lock_queues.run(busy, reopening)

    async def _reopen(self, root: Root) -> None:
        """Serve the directory that is now at the path of a root."""
        async with self._reopening:
            # Not in a worker thread: Landlock may deny it the new directory.
            if await anyio.to_thread.run_sync(root.reopen):
                self.workers.renew(*self.roots.granted())
                await self.workers.run("", root.confirm_replaced)

    def context(self, call: Call, if_match: str | None = None) -> ChangeContext:
        """What every step of a change by this call needs."""
        return ChangeContext(if_match, self._locks, call.cancellation)

    async def transfer(
        self,
        call: Call,
        args: TransferArgs,
        tool: str,
        work: Callable[[Root, str, Root, str, ChangeContext], tuple[str, Transferred]],
    ) -> tuple[Root, str, Root, Transferred]:
        """Run a copy or a move. Returns the source's root and normalised path, and what is now in which root."""
        # Copying out of a read-only root does not change it.
        source = self.roots.enter(args.source_root, tool, args.source_path, writing=tool != "copy")
        target = self.roots.enter(args.dest_root, tool, args.dest_path, writing=True)
        context = self.context(call, args.if_match)
        path, done = await self.workers.transfer(
            call.caller, work, source, args.source_path, target, args.dest_path, context
        )
        return source, path, target, done

    async def search(
        self, call: Call, args: SearchT, tool: str, work: Callable[[Root, SearchT, float, Cancellation], ResultT]
    ) -> ResultT:
        """Run a search until its deadline. The wait for a thread counts."""
        root = self.roots.enter(args.root, tool, args.path)
        deadline = time.monotonic() + min(args.timeout_seconds, self._search_seconds)
        return await self.workers.search(call.caller, work, root, args, deadline, call.cancellation)
