"""The way to one server: connected when first needed, given up when it fails, then tried again apart from any call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager

import anyio
from anyio.abc import TaskGroup

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import (
    GatewayError,
    UpstreamBusy,
    UpstreamProtocol,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from armarium.capabilities.gateway.upstreams.attempts import Attempts
from armarium.capabilities.gateway.upstreams.connection import Connection
from armarium.capabilities.gateway.upstreams.errors import gone
from armarium.capabilities.gateway.upstreams.pulse import Pulse
from armarium.capabilities.gateway.upstreams.scrubber import Scrubber
from armarium.capabilities.gateway.upstreams.types import HealthState, UpstreamLimits
from armarium.foundation.circuit_breaker import CircuitBreaker

_FAULTS_OF_THE_SERVER = (UpstreamUnavailable, UpstreamTimeout, UpstreamProtocol)
"""What counts against it; a refusal, or an answer of any size, shows that it is well. Deadlines are judged apart."""


class Link:
    """At most one connection at a time, shared by all who call; told how each call went, it decides who may try."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: UpstreamLimits,
        scrubber: Scrubber,
        tasks: TaskGroup,
        *,
        on_tools_changed: Callable[[], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called whenever `state` may have changed."""
        self._spec = spec
        self._limits = limits
        self._scrubber = scrubber
        self._tasks = tasks
        self._on_tools_changed = on_tools_changed
        self._on_change = on_change
        self._breaker = CircuitBreaker(limits.breaker_failures, limits.breaker_open_s, anyio.current_time)
        self._attempts = Attempts(anyio.current_time)
        self._pulse = Pulse(lambda: self.connection, limits.ping_s, tasks, anyio.current_time)
        self._retired: set[Connection] = set()
        self._closing = anyio.Event()
        self._noise = 0
        self.connection: Connection | None = None
        """The one in use, or being opened."""
        self.connections = 0
        """How many there have been."""
        self.last_error: GatewayError | None = None
        """Why the last attempt failed; None once one succeeds."""

    @property
    def state(self) -> HealthState:
        """How the server is, as far as is known."""
        connection = self.connection
        # First, for a trial changes nothing for callers and is no news until it has succeeded.
        if not self._breaker.admits():
            return "open"
        if connection is not None and not connection.opened.is_set():
            return "connecting"
        if self.last_error is not None:
            return "failing"
        return "ready" if connection is not None and connection.usable else "idle"

    @property
    def refused_for_s(self) -> float | None:
        """How long calls are refused without trying, when they are."""
        return max(self._breaker.retry_in_s or 0.0, self._pause_s) or None

    @property
    def noise(self) -> int:
        """Messages that were not MCP, of all connections."""
        return self._noise + (self.connection.noise if self.connection else 0)

    def check_open(self) -> None:
        """Raise where a call is not to be tried."""
        name = self._spec.name
        if self._closing.is_set():
            raise UpstreamUnavailable(f"`{name}` is no longer served", server=name)
        self._check_admitted()
        if self.connection is not None and self.connection.is_overdue:
            raise UpstreamUnavailable(f"`{name}` is still starting", hint="try again in a moment", server=name)

    def pinged_before(self, deadline_s: float) -> AbstractContextManager[None]:
        """Have the server pinged if the block lasts until shortly before the deadline, for `ran_out` to judge by."""
        return self._pulse.taken_before(deadline_s)

    async def connected(self, *, trial: bool = False) -> Connection:
        """The connection, opened by whoever comes first and shared by all who wait for it."""
        connection = self.connection
        if connection is None or (connection.opened.is_set() and not connection.usable):
            self._retire()
            # Whoever waited for their turn while the server failed does not try it again.
            if not trial:
                self._check_admitted()
            connection = Connection(self._spec, self._limits, self._scrubber, self._on_tools_changed)
            self.connection = connection
            self.connections += 1
            self._tasks.start_soon(self._own, connection)
            self._on_change()
        await connection.opened.wait()
        if not connection.usable:
            raise connection.failure or gone(self._spec.name)
        return connection

    def went_well(self) -> None:
        """A call was answered."""
        self._breaker.succeeded()
        self._pulse.felt()
        self.last_error = None
        self._on_change()

    def went_wrong(self, error: GatewayError) -> None:
        """A call failed; not every failure is the server's."""
        if isinstance(error, _FAULTS_OF_THE_SERVER):
            self.last_error = error
            if self._breaker.failed():
                self._begin_break()
            self._on_change()
        elif not isinstance(error, UpstreamBusy):
            self.went_well()

    def ran_out(self, error: GatewayError, deadline_s: float) -> None:
        """A deadline has passed. If the server answers pings, the call was slow, and nobody else is to pay for that."""
        if isinstance(error, UpstreamBusy):
            # It was never sent: the calls that have their turn judge the server by their own deadlines.
            return
        self.last_error = error
        if self.connection is not None and not self.connection.opened.is_set():
            self.connection.was_waited_for = True
        elif self._pulse.is_missing(deadline_s) and self._breaker.gone():
            self._begin_break()
        self._on_change()

    def stop(self) -> None:
        """Let nobody in any more; who is in may go on."""
        self._closing.set()

    async def close(self) -> None:
        """End every connection."""
        connections = [*self._retired, *([self.connection] if self.connection else [])]
        for connection in connections:
            connection.stop()
        for connection in connections:
            await connection.ended.wait()

    def _check_admitted(self) -> None:
        if self._breaker.admits() and not self._pause_s:
            return
        retry_in_s = self.refused_for_s or 0.0
        raise UpstreamUnavailable(
            f"`{self._spec.name}` failed and is left alone for {retry_in_s:.0f} s more",
            hint="try again then",
            server=self._spec.name,
            retry_in_s=round(retry_in_s, 1),
        )

    async def _own(self, connection: Connection) -> None:
        started_at = anyio.current_time()
        await connection.run()
        self._noise += connection.noise
        self._retired.discard(connection)
        if connection.server_info is not None:
            self._attempts.succeeded()
        else:
            self.last_error = connection.failure
            self._attempts.failed(anyio.current_time() - started_at)
        if self.connection is connection:
            self.connection = None
        if isinstance(connection.failure, UpstreamTimeout) and self._breaker.gone():
            # It had all the time there is to connect; nobody else is to spend as much on finding out.
            self._begin_break()
        self._on_change()

    def _begin_break(self) -> None:
        self._retire()
        self._tasks.start_soon(self._mend)

    def _retire(self) -> None:
        """Use the connection no more, for it may be what fails: the trial after the break starts a new one."""
        connection, self.connection = self.connection, None
        if connection is not None and not connection.ended.is_set():
            self._retired.add(connection)
            connection.stop()

    async def _mend(self) -> None:
        """After each break try the server with a new connection and a ping, so that no caller has to wait for it."""
        while not self._breaker.admits():
            with anyio.move_on_after(self.refused_for_s or 0.0):
                await self._closing.wait()
            if self._closing.is_set():
                return
            self._breaker.tried(await self._is_well())
            if self._breaker.admits():
                self.last_error = None
            else:
                self._retire()
            self._on_change()

    async def _is_well(self) -> bool:
        try:
            return await (await self.connected(trial=True)).answers(self._limits.ping_s)
        except GatewayError as error:
            self.last_error = error
            return False

    @property
    def _pause_s(self) -> float:
        return self._attempts.pause_s if self.connection is None else 0.0
