"""Repeats calls that met a locked directory or a replaced root, without keeping a thread while they wait."""

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

_MOST_REPLACEMENTS = 3

P = ParamSpec("P")
ResultT = TypeVar("ResultT")


class Turns:
    """Of the calls that wait for a directory, one at a time tries to lock it, in the order in which they came."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._queues: dict[Identity, tuple[anyio.Lock, list[None]]] = {}

    async def run(self, directory: Identity, attempt: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Repeat a call that gives up soon while the directory is locked, until it is done or the time is up."""
        until = time.monotonic() + self._limit_s
        with self._queue(directory) as lock:
            with anyio.move_on_after(self._limit_s) as waiting:
                await lock.acquire()
            if waiting.cancelled_caught:
                raise self.busy()
            try:
                while True:
                    try:
                        return await attempt()
                    except DirectoryBusy as busy:
                        if busy.waited_long or time.monotonic() >= until:
                            raise self.busy() from None
            finally:
                lock.release()

    def busy(self) -> ResourceBusy:
        """What a caller is told whose time is up."""
        return ResourceBusy(
            f"another process has held the directory for {self._limit_s:g} seconds; nothing was changed",
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


class Patient(Protocol):
    """What has methods that are repeated."""

    turns: Turns

    async def follow(self, root: Root) -> None:
        """Open a root again that was replaced."""
        ...


SelfT = TypeVar("SelfT", bound=Patient)


def repeated(
    method: Callable[Concatenate[SelfT, P], Awaitable[ResultT]],
) -> Callable[Concatenate[SelfT, P], Awaitable[ResultT]]:
    """Repeat a method that changed nothing because a directory was locked, or because a root was replaced."""

    async def once(self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        for _ in range(_MOST_REPLACEMENTS):
            try:
                return await method(self, *args, **kwargs)
            except RootReplaced as replaced:
                await self.follow(replaced.root)
        raise ResourceBusy("the directory of the root is replaced again and again", hint="try again")

    async def wait(busy: DirectoryBusy, self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        if busy.waited_long:
            raise self.turns.busy() from None
        return await self.turns.run(busy.directory, lambda: once(self, *args, **kwargs))

    @functools.wraps(method)
    async def again(self: SelfT, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        try:
            return await method(self, *args, **kwargs)
        except RootReplaced:
            pass
        except DirectoryBusy as busy:
            return await wait(busy, self, *args, **kwargs)
        try:
            return await once(self, *args, **kwargs)
        except DirectoryBusy as busy:
            return await wait(busy, self, *args, **kwargs)

    return again
