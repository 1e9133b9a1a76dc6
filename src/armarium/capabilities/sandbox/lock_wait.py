"""Retries calls that met a locked directory or a replaced root, without occupying a thread while they wait."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Concatenate, ParamSpec, Protocol, TypeVar

import anyio

from armarium.capabilities.sandbox.errors import ResourceBusy
from armarium.capabilities.sandbox.roots import Root, RootReplaced
from armarium.foundation.files.directory_locks import DirectoryBusy, Identity

_MAX_REPLACEMENTS = 3

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class LockQueues:
    """Queues calls that wait for a directory. Only the first one in a queue tries to lock it."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._queues: dict[Identity, tuple[anyio.Lock, list[None]]] = {}

    async def run(self, directory: Identity, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Wait for the call's turn, then repeat it while the directory is locked. Raise after the timeout."""
        deadline = time.monotonic() + self._timeout_s
        with self._queue(directory) as lock:
            with anyio.move_on_after(self._timeout_s) as waiting:
                await lock.acquire()
            if waiting.cancelled_caught:
                raise self.busy()
            try:
                while True:
                    try:
                        return await attempt()
                    except DirectoryBusy as busy:
                        if busy.waited_long or time.monotonic() >= deadline:
                            raise self.busy() from None
            finally:
                lock.release()

    def busy(self) -> ResourceBusy:
        """The error after the timeout."""
        return ResourceBusy(
            f"another process has held the directory for {self._timeout_s:g} seconds; nothing was changed",
            hint="try again",
        )

    @contextmanager
    def _queue(self, directory: Identity) -> Generator[anyio.Lock]:
        lock, waiting = self._queues.setdefault(directory, (anyio.Lock(), []))
        waiting.append(None)
        try:
            yield lock
        finally:
            waiting.pop()
            if not waiting:
                del self._queues[directory]


class RetryableService(Protocol):
    """A service with methods that can be retried."""

    lock_queues: LockQueues

    async def reopen(self, root: Root) -> None:
        """Open a root whose directory was replaced."""
        ...


SelfT = TypeVar("SelfT", bound=RetryableService)


def retried(
    method: Callable[Concatenate[SelfT, P], Awaitable[ResultT]],
) -> Callable[Concatenate[SelfT, P], Awaitable[ResultT]]:
    """Retry a method that changed nothing because a directory was locked or a root was replaced."""

    async def reopening(self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        for _ in range(_MAX_REPLACEMENTS):
            try:
                return await method(self, *args, **kwargs)
            except RootReplaced as replaced:
                await self.reopen(replaced.root)
        raise ResourceBusy("the directory of the root is replaced again and again", hint="try again")

    async def queue(busy: DirectoryBusy, self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        if busy.waited_long:
            raise self.lock_queues.busy() from None
        return await self.lock_queues.run(busy.directory, lambda: reopening(self, *args, **kwargs))

    @functools.wraps(method)
    async def retrying(self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        try:
            return await method(self, *args, **kwargs)
        except RootReplaced:
            pass
        except DirectoryBusy as busy:
            return await queue(busy, self, *args, **kwargs)
        try:
            return await reopening(self, *args, **kwargs)
        except DirectoryBusy as busy:
            return await queue(busy, self, *args, **kwargs)

    return retrying
