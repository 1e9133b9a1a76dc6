"""A TCP proxy on loopback that can stop forwarding, as a hung host does: connections stay open, and nothing comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import SocketAttribute, SocketStream

_CUT = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class StallingProxy:
    """Forwards until it is told to stop, or until a client says a word it waits for."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._flowing = anyio.Event()
        self._flowing.set()
        self._word: bytes | None = None
        self.port = 0

    def stall(self) -> None:
        """Forward nothing from now on."""
        self._flowing = anyio.Event()

    def stall_at(self, word: bytes) -> None:
        """Stop with the message of a client that has this word in it."""
        self._word = word

    @property
    def stalled(self) -> bool:
        return not self._flowing.is_set()

    def resume(self) -> None:
        """Forward what waits, and what comes."""
        self._word = None
        self._flowing.set()

    async def serve(self, client: SocketStream) -> None:
        """One connection, to its end."""
        async with client:
            await self._flowing.wait()
            try:
                target = await anyio.connect_tcp("127.0.0.1", self._target_port)
            except OSError:
                return
            async with target, anyio.create_task_group() as both:
                both.start_soon(self._pump, client, target, True, both.cancel_scope)
                both.start_soon(self._pump, target, client, False, both.cancel_scope)

    async def _pump(self, source: SocketStream, sink: SocketStream, listening: bool, both: anyio.CancelScope) -> None:
        try:
            while True:
                part = await source.receive()
                if listening and self._word is not None and self._word in part:
                    self.stall()
                await self._flowing.wait()
                await sink.send(part)
        except _CUT:
            both.cancel()


@asynccontextmanager
async def stalling_proxy(target_port: int) -> AsyncGenerator[StallingProxy]:
    """A proxy to a port of this machine, on a port of its own."""
    proxy = StallingProxy(target_port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy.port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.serve)
        try:
            yield proxy
        finally:
            tasks.cancel_scope.cancel()
