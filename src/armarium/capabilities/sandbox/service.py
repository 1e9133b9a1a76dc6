"""The service behind the tools: its roots, threads, locks and events. It repeats calls that could not start."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import anyio

from armarium.capabilities.sandbox.arguments import SearchArgs, TransferArgs
from armarium.capabilities.sandbox.changes.copies import Transferred
from armarium.capabilities.sandbox.changes.targets import ChangeContext
from armarium.capabilities.sandbox.errors import ResourceBusy
from armarium.capabilities.sandbox.reads.file_content import ReadLimits
from armarium.capabilities.sandbox.roots import Root, RootReplaced, Roots
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.events import Events, FileChanged, FileMoved
from armarium.foundation.files.directory_locks import DirectoryBusy, DirectoryLocks, Identity
from armarium.foundation.refs import FileRef
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Call, ToolSpec

_MAX_REPLACEMENTS = 3

ResultT = TypeVar("ResultT")
SearchT = TypeVar("SearchT", bound=SearchArgs)


@dataclass(frozen=True, slots=True)
class ChangeEvents:
    """Publishes events about files of roots. Cancelling a call does not stop the events about its changes."""

    events: Events

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
            await self.events.publish(FileChanged(ref, change, is_directory, by, _host_path(root, ref)))

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
                await self.events.publish(FileMoved(ref, previous, *host_paths, done.is_directory, by))
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


@dataclass(eq=False)
class Sandbox:
    """Files and folders of the named roots, and nothing outside them."""

    roots: Roots
    workers: Workers
    events: ChangeEvents
    limits: ReadLimits
    search_seconds: int
    lock_seconds: float = 10.0
    max_upload_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        self._locks = DirectoryLocks(long_timeout_s=self.lock_seconds)
        self._lock_queues = _LockQueues(self.lock_seconds)
        self._reopening = anyio.Lock()

    def for_caller(self, principal: Principal) -> Sandbox:
        """The same sandbox with only the roots that the caller may use."""
        view = object.__new__(Sandbox)
        # Every call makes a view, and `copy` takes four times as long.
        vars(view).update(vars(self), roots=self.roots.for_caller(principal))
        return view

    def require_resources(self, principal: Principal, tool: ToolSpec, arguments: Mapping[str, Any]) -> None:
        """Raise unless the caller may use the roots that the arguments name."""
        for argument, name in arguments.items():
            if argument.endswith("root") and isinstance(name, str):
                self.roots.for_caller(principal).require_known(name)

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

    def restrictions(self, listed: Json) -> Json:
        """For the metadata of `list_roots`: what may not be written in the roots of its answer, and what not read."""
        names = {each["name"] for each in listed["roots"]}
        roots = [root for root in self.roots if root.name in names]
        lists = {
            "armarium/deny_write": {root.name: root.denied.patterns for root in roots if root.denied},
            "armarium/hide_credentials": {root.name: root.credentials.patterns for root in roots if root.credentials},
        }
        return {name: patterns for name, patterns in lists.items() if patterns}

    async def transfer(
        self,
        call: Call,
        args: TransferArgs,
        tool: str,
        work: Callable[[Root, str, Root, str, ChangeContext], tuple[str, Transferred]],
    ) -> tuple[Root, str, Root, Transferred]:
        """Run a copy or a move. Returns the source's root and normalised path, and what is now in which root."""
        # Moving reads, too. Copying out of a read-only root does not change it.
        self.roots.enter(args.source_root, tool, args.source_path)
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
        deadline = time.monotonic() + min(args.timeout_seconds, self.search_seconds)
        return await self.workers.search(call.caller, work, root, args, deadline, call.cancellation)
