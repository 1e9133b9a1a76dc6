"""The service behind the tools: its roots, threads, locks and events. It repeats calls that could not start."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Literal, TypeVar

import anyio

from armarium.capabilities.sandbox.arguments import SearchArgs, TransferArgs
from armarium.capabilities.sandbox.changes.copies import Transferred
from armarium.capabilities.sandbox.changes.targets import ChangeContext
from armarium.capabilities.sandbox.errors import ResourceBusy
from armarium.capabilities.sandbox.reads.file_content import ReadLimits
from armarium.capabilities.sandbox.roots import Root, RootReplaced, Roots
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.events import Events, FileChanged, FileMoved
from armarium.foundation.files.directory_locks import DirectoryBusy, DirectoryLocks, Identity
from armarium.foundation.identity import Principal
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call

_MAX_REPLACEMENTS = 3

ResultT = TypeVar("ResultT")
SearchT = TypeVar("SearchT", bound=SearchArgs)


class ChangeEvents:
    """Publishes events about files of roots. Cancelling a call does not stop the events about its changes."""

    def __init__(self, events: Events) -> None:
        self._events = events

    async def changed(
        self,
        by: Principal,
        root: Root,
        path: str,
        change: Literal["created", "modified", "removed"],
        *,
        is_directory: bool = False,
    ) -> None:
        with anyio.CancelScope(shield=True):
            ref = root.ref(path)
            await self._events.publish(FileChanged(ref, change, is_directory, by, _host_path(root, ref)))

    async def copied(self, by: Principal, target: Root, done: Transferred) -> None:
        """An entry was created, or a file replaced, at the destination of a copy or move."""
        change = "modified" if done.replaced else "created"
        await self.changed(by, target, done.destination, change, is_directory=done.is_directory)

    async def moved(self, by: Principal, source: Root, path: str, target: Root, done: Transferred) -> None:
        """An entry was moved, completely unless something remains at the source."""
        with anyio.CancelScope(shield=True):  # subscribers must not see a removal alone
            if not done.remaining:
                ref, previous = target.ref(done.destination), source.ref(path)
                host_paths = _host_path(target, ref), _host_path(source, previous)
                await self._events.publish(FileMoved(ref, previous, *host_paths, done.is_directory, by))
            change = "modified" if done.remaining else "removed"
            await self.changed(by, source, path, change, is_directory=done.is_directory)
            await self.copied(by, target, done)


def _host_path(root: Root, ref: FileRef) -> str:
    return f"{root.confined.real_path}/{ref.path.lstrip('/')}"


class _LockQueues:
    """Queues calls that wait for a directory. Only the first one in a queue tries to lock it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._queues: dict[Identity, anyio.Lock] = {}

    async def run(self, busy: DirectoryBusy, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Wait for the call's turn, then repeat it while the directory is locked. Raise after the timeout."""
        deadline = time.monotonic() + self._timeout_s
        if busy.waited_long:
            raise self._error() from None
        lock = self._queues.setdefault(busy.directory, anyio.Lock())
        try:
            with anyio.move_on_after(self._timeout_s) as waiting:
                await lock.acquire()
            if waiting.cancelled_caught:
                raise self._error()
            try:
                while True:
                    try:
                        return await attempt()
                    except DirectoryBusy as again:
                        if again.waited_long or time.monotonic() >= deadline:
                            raise self._error() from None
            finally:
                lock.release()
        finally:
            if not lock.locked():
                self._queues.pop(busy.directory, None)

    def _error(self) -> ResourceBusy:
        message = f"another process has held the directory for {self._timeout_s:g} seconds; nothing was changed"
        return ResourceBusy(message, hint="try again")


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
        self._lock_queues = _LockQueues(lock_seconds)
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
