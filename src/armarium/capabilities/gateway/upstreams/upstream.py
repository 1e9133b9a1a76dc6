"""One server behind the gateway: connected when first needed, guarded by a breaker, each call with a deadline."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup

from armarium.capabilities.gateway.errors import (
    GatewayError,
    UpstreamBusy,
    UpstreamProtocol,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from armarium.capabilities.gateway.server_files import ServerSpec
from armarium.capabilities.gateway.upstreams.answers import (
    CallResult,
    HealthState,
    OnProgress,
    UpstreamHealth,
    UpstreamLimits,
    UpstreamTool,
)
from armarium.capabilities.gateway.upstreams.attempts import Attempts
from armarium.capabilities.gateway.upstreams.breaker import Breaker
from armarium.capabilities.gateway.upstreams.connection import Connection
from armarium.capabilities.gateway.upstreams.faults import SessionLost, gone
from armarium.capabilities.gateway.upstreams.secrets import Secrets

_log = logging.getLogger(__name__)

OnToolsChanged = Callable[[str], Awaitable[None]]
OnHealth = Callable[[UpstreamHealth], Awaitable[None]]

_FAULTS_OF_THE_SERVER = (UpstreamUnavailable, UpstreamTimeout, UpstreamProtocol)
"""What counts against it; a refusal, or an answer of any size, shows that it is well."""


class Upstream:
    """A server, called as if it were always there."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: UpstreamLimits,
        tasks: TaskGroup,
        *,
        on_tools_changed: OnToolsChanged | None = None,
        on_health: OnHealth | None = None,
    ) -> None:
        self.spec = spec
        self._limits = limits
        self._tasks = tasks
        self._on_tools_changed = on_tools_changed
        self._on_health = on_health
        self._secrets = Secrets(spec)
        self._breaker = Breaker(limits.breaker_failures, limits.breaker_open_s, anyio.current_time)
        self._attempts = Attempts(anyio.current_time)
        self._turns = anyio.Semaphore(limits.concurrency)
        self._connection: Connection | None = None
        self._retired: set[Connection] = set()
        self._last_error: GatewayError | None = None
        self._told_state: HealthState = "idle"
        self._closing = False
        self._idle = anyio.Event()
        self._in_flight = self._calls = self._failures = self._connections = self._noise = 0

    @property
    def name(self) -> str:
        """The name its file gives it."""
        return self.spec.name

    def health(self) -> UpstreamHealth:
        """How it is now."""
        connection = self._connection
        info = connection.server_info if connection else None
        return UpstreamHealth(
            server=self.name,
            state=self._state(),
            last_error=self._last_error.message if self._last_error else None,
            last_error_code=self._last_error.code if self._last_error else None,
            retry_in_s=self._refused_for_s(),
            in_flight=self._in_flight,
            calls=self._calls,
            failures=self._failures,
            connections=self._connections,
            noise=self._noise + (connection.noise if connection else 0),
            tools=len(connection.tools) if connection and connection.usable else None,
            server_name=info[0] if info else None,
            server_version=info[1] if info else None,
            pid=connection.pid if connection else None,
        )

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> CallResult:
        """Call a tool and wait for its answer; a `GatewayError` when there is none."""
        deadline_s = timeout_s or self.spec.timeouts.call_s or self._limits.call_timeout_s
        async with self._guarded(deadline_s):
            with self._secrets.held(arguments):
                try:
                    return await (await self._connected()).call(tool, arguments, on_progress)
                except SessionLost:
                    # The server was started anew and did nothing of the call, so it can be made again.
                    return await (await self._connected()).call(tool, arguments, on_progress)

    async def tools(self, *, timeout_s: float | None = None) -> list[UpstreamTool]:
        """What it offers, as listed when it was connected or last told us of a change."""
        if self._connection is not None and self._connection.usable:
            return list(self._connection.tools)
        async with self._guarded(timeout_s or self._limits.discover_timeout_s):
            return list((await self._connected()).tools)

    async def close(self, drain_s: float = 0.0) -> None:
        """Take no more calls, let those in flight finish within the time, and end the connection."""
        self._closing = True
        with anyio.move_on_after(drain_s):
            while self._in_flight:
                if self._idle.is_set():
                    self._idle = anyio.Event()
                await self._idle.wait()
        connections = [*self._retired, *([self._connection] if self._connection else [])]
        for connection in connections:
            connection.stop()
        for connection in connections:
            await connection.ended.wait()

    @asynccontextmanager
    async def _guarded(self, deadline_s: float) -> AsyncGenerator[None]:
        """A turn within the deadline, if there is one to be had; the breaker learns how it went."""
        self._refuse_early()
        self._in_flight += 1
        self._calls += 1
        has_turn = False
        try:
            with anyio.fail_after(deadline_s):
                async with self._turns:
                    has_turn = True
                    yield
            self._went_well()
        except TimeoutError:
            error = self._out_of_time(deadline_s, has_turn)
            self._went_wrong(error)
            raise error from None
        except GatewayError as error:
            self._went_wrong(error)
            raise
        except BaseException:
            # Cancelled by its caller, which says nothing about the server.
            self._breaker.forgotten()
            raise
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    def _refuse_early(self) -> None:
        if self._closing:
            raise UpstreamUnavailable(f"`{self.name}` is no longer served", server=self.name)
        if self._in_flight >= self._limits.concurrency + self._limits.waiting:
            raise UpstreamBusy(f"too many calls wait for `{self.name}`", hint="try again later", server=self.name)
        if self._pause_s() or not self._breaker.admits():
            raise self._left_alone()

    def _left_alone(self) -> UpstreamUnavailable:
        retry_in_s = self._refused_for_s() or 0.0
        return UpstreamUnavailable(
            f"`{self.name}` failed and is left alone for {retry_in_s:.0f} s more",
            hint="try again then",
            server=self.name,
            retry_in_s=round(retry_in_s, 1),
        )

    def _out_of_time(self, deadline_s: float, has_turn: bool) -> GatewayError:
        if not has_turn:
            return UpstreamBusy(
                f"`{self.name}` was busy with other calls for {deadline_s:g} s",
                hint="try again later",
                server=self.name,
            )
        return UpstreamTimeout(
            f"`{self.name}` did not answer within {deadline_s:g} s", hint="try again, or ask for less", server=self.name
        )

    def _went_well(self) -> None:
        self._breaker.succeeded()
        self._last_error = None
        self._tell_health()

    def _went_wrong(self, error: GatewayError) -> None:
        self._failures += 1
        if isinstance(error, UpstreamBusy):
            self._breaker.forgotten()
        elif isinstance(error, _FAULTS_OF_THE_SERVER):
            self._last_error = error
            if self._breaker.failed():
                self._retire()
        else:
            self._last_error = None
            self._breaker.succeeded()
        self._tell_health()

    async def _connected(self) -> Connection:
        """The connection, opened by whoever comes first and shared by all who wait for it."""
        connection = self._connection
        if connection is None or (connection.opened.is_set() and not connection.usable):
            self._retire()
            # Whoever waited for their turn while an attempt failed does not make another.
            if self._pause_s():
                raise self._left_alone()
            connection = self._connection = Connection(self.spec, self._limits, self._secrets, self._tools_have_changed)
            self._connections += 1
            self._tasks.start_soon(self._own, connection)
            self._tell_health()
        await connection.opened.wait()
        if not connection.usable:
            raise connection.failure or gone(self.name)
        return connection

    async def _own(self, connection: Connection) -> None:
        started_at = anyio.current_time()
        await connection.run()
        self._noise += connection.noise
        self._retired.discard(connection)
        if connection.server_info is not None:
            self._attempts.succeeded()
        else:
            self._last_error = connection.failure
            self._attempts.failed(anyio.current_time() - started_at)
        if self._connection is connection:
            self._connection = None
        self._tell_health()

    def _retire(self) -> None:
        """Use the connection no more, for it may be what fails: the trial after the break starts a new one."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.ended.is_set():
            self._retired.add(connection)
            connection.stop()

    async def _tools_have_changed(self) -> None:
        if self._on_tools_changed is not None:
            await _contained(self._on_tools_changed, self.name)

    def _state(self) -> HealthState:
        connection = self._connection
        if connection is not None and not connection.opened.is_set():
            return "connecting"
        if self._breaker.state != "closed":
            return "open"
        if self._last_error is not None:
            return "failing"
        return "ready" if connection is not None and connection.usable else "idle"

    def _refused_for_s(self) -> float | None:
        return max(self._breaker.retry_in_s or 0.0, self._pause_s()) or None

    def _pause_s(self) -> float:
        return self._attempts.pause_s if self._connection is None else 0.0

    def _tell_health(self) -> None:
        state = self._state()
        if state != self._told_state:
            self._told_state = state
            if self._on_health is not None:
                self._tasks.start_soon(_contained, self._on_health, self.health())


async def _contained(tell: Callable[[Any], Awaitable[None]], news: object) -> None:
    try:
        await tell(news)
    except Exception:  # noqa: BLE001 a listener must not take the connections down with it
        _log.exception("a listener failed")
