"""One server behind the gateway: its connection, opened when first needed, and its calls with slots and deadlines."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError, UpstreamBusy, UpstreamUnavailable
from armarium.capabilities.gateway.upstreams.connection import UpstreamConnection
from armarium.capabilities.gateway.upstreams.errors import SessionLost, connection_lost, excerpt, timeout_error
from armarium.capabilities.gateway.upstreams.policy import ConnectionPolicy
from armarium.capabilities.gateway.upstreams.scrubber import Scrubber
from armarium.capabilities.gateway.upstreams.types import (
    HealthState,
    OnProgress,
    OnRequest,
    UpstreamHealth,
    UpstreamLimits,
    UpstreamTool,
    record_request,
)
from armarium.capabilities.gateway.upstreams.watchdog import Watchdog
from armarium.foundation.tools import Relayed

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UpstreamListeners:
    """Who learns of a server's changed tools, its health and its requests."""

    on_tools_changed: Callable[[str], None] = lambda server: None
    on_health: Callable[[UpstreamHealth], Awaitable[None]] | None = None
    on_request: OnRequest = lambda server, kind, outcome, seconds: None


@dataclass(eq=False, repr=False)
class Upstream:
    """A server, called as if it were always connected. All callers share one connection."""

    spec: ServerSpec
    limits: UpstreamLimits
    tasks: TaskGroup
    watchdog: Watchdog
    listeners: UpstreamListeners = field(default_factory=UpstreamListeners)

    def __post_init__(self) -> None:
        self._scrubber = Scrubber(self.spec)
        self._policy = ConnectionPolicy(self.name, self.limits, lambda: self.connection, self.tasks)
        self._slots = anyio.Semaphore(self.limits.concurrency_per_server)
        self._closing = anyio.Event()
        self._idle = anyio.Event()
        self._retired: set[UpstreamConnection] = set()
        self._published_state: HealthState = "idle"
        self._connections = self._in_flight = self._calls = self._failures = self._retired_noise = 0
        self._tool_errors = 0
        self._is_in_trial = False
        self._last_tool_error: str | None = None
        self._last_tools: list[UpstreamTool] = []
        self.connection: UpstreamConnection | None = None
        """The connection in use, or the one that is being opened."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_closing(self) -> bool:
        """Whether new calls are rejected because the server was removed."""
        return self._closing.is_set()

    @property
    def last_tools(self) -> list[UpstreamTool]:
        """The tools it listed last; none before its first connection."""
        if self.connection is not None and self.connection.usable:
            self._last_tools = self.connection.tools
        return self._last_tools

    def health(self) -> UpstreamHealth:
        connection, error = self.connection, self._policy.last_error
        info = connection.server_info if connection else None
        return UpstreamHealth(
            server=self.name,
            state=self._state,
            last_error=error.message if error else None,
            last_error_code=error.code if error else None,
            last_error_hint=error.for_operators if error else None,
            retry_in_s=self._policy.retry_in_s,
            in_flight=self._in_flight,
            calls=self._calls,
            failures=self._failures,
            connections=self._connections,
            noise=self._noise,
            tools=len(connection.tools) if connection and connection.usable else None,
            notes=(connection.notes or None) if connection and connection.usable else None,
            tool_errors=self._tool_errors,
            last_tool_error=self._last_tool_error,
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
    ) -> Relayed:
        """Call a tool. Raises `GatewayError` if there is no result."""
        deadline_s = timeout_s or self.spec.timeouts.call_s or self.limits.call_timeout_s
        report = None if on_progress is None else self._scrubbed_progress(on_progress, arguments)
        with record_request(self.listeners.on_request, self.name, "call") as outcome, self._scrubber.hold(arguments):
            async with self._guarded(deadline_s):
                try:
                    result = await (await self._connected()).call(tool, arguments, report)
                except SessionLost:
                    # The server restarted and did not process the call, so it is safe to repeat.
                    result = await (await self._connected()).call(tool, arguments, report)
            scrubbed = self._scrubber.scrub_result(result, arguments)
            if result.is_error:
                outcome.name = "error"
                self._record_tool_error(tool, scrubbed)
            return scrubbed

    def response_rejected(self, error: GatewayError) -> None:
        """Record that the content of a response was of no use, although the call itself succeeded."""
        self._failures += 1
        self._policy.last_error = error
        self._publish_health()

    async def tools(self, *, timeout_s: float | None = None) -> list[UpstreamTool]:
        """The tools it offers, as listed at connect time or after its last change notification."""
        connection = self.connection
        if connection is not None and connection.usable:
            return list(connection.tools)
        with record_request(self.listeners.on_request, self.name, "list"):
            async with self._guarded(timeout_s or self.limits.discover_timeout_s):
                return list((await self._connected()).tools)

    async def reconnect(self) -> None:
        """Open a new connection now, also while calls are rejected. Calls in flight fail."""
        connection = self.connection
        self._retire_connection()
        if connection is not None:
            await connection.ended.wait()
            # Calls that fail with the connection say nothing about the next one.
            await anyio.lowlevel.checkpoint()
        self._policy.reset()
        await self.tools(timeout_s=self.spec.timeouts.connect_s or self.limits.connect_timeout_s)

    async def close(self, drain_s: float = 0.0) -> None:
        """Reject new calls, wait up to `drain_s` for calls in flight, and close the connection."""
        self._closing.set()
        with anyio.move_on_after(drain_s):
            while self._in_flight:
                if self._idle.is_set():
                    self._idle = anyio.Event()
                await self._idle.wait()
        connections = [*self._retired, *([self.connection] if self.connection else [])]
        for connection in connections:
            connection.stop()
        for connection in connections:
            await connection.ended.wait()

    @asynccontextmanager
    async def _guarded(self, deadline_s: float) -> AsyncGenerator[None]:
        """Run the block in a slot and within the deadline; the policy learns the outcome."""
        self._check_open()
        if self._in_flight >= self.limits.concurrency_per_server + self.limits.waiting:
            raise UpstreamBusy(f"too many calls wait for `{self.name}`", hint="try again later", server=self.name)
        self._in_flight += 1
        self._calls += 1
        has_slot = False
        noise = self._noise
        try:
            with anyio.fail_after(deadline_s), self._policy.liveness.before(deadline_s):
                async with self._slots:
                    has_slot = True
                    yield
            self._policy.call_succeeded()
            self._publish_health()
        except TimeoutError:
            self._failures += 1
            raise self._deadline_passed(deadline_s, has_slot=has_slot, is_noisy=self._noise > noise) from None
        except GatewayError as error:
            self._failures += 1
            if error.for_operators:
                facts = {"server": self.name, "code": error.code, "hint": error.for_operators}
                _log.warning("a server could not be used", extra=facts)
            self._apply(self._policy.call_failed(error))
            raise
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    def _scrubbed_progress(self, on_progress: OnProgress, arguments: Mapping[str, Any]) -> OnProgress:
        async def report(done: float, total: float | None, message: str | None) -> None:
            await on_progress(done, total, self._scrubber.scrub_progress(message, arguments))

        return report

    def _record_tool_error(self, tool: str, result: Relayed) -> None:
        """Keep and log what a tool's error says. It says nothing about the connection."""
        texts = [str(block.get("text", "")) for block in result.content if block.get("type") == "text"]
        self._tool_errors += 1
        self._last_tool_error = f"{excerpt(tool)}: {excerpt(' '.join(texts)) or 'no reason given'}"
        # Errors are part of the work of most tools; those of a RAG server are not.
        level = logging.WARNING if self.spec.kind == "rag" else logging.INFO
        _log.log(level, "a tool of a server failed", extra={"server": self.name, "reason": self._last_tool_error})

    def _check_open(self) -> None:
        if self.is_closing:
            raise UpstreamUnavailable(f"`{self.name}` is no longer served", server=self.name)
        self._policy.check_admitted()
        if self.connection is not None and self.connection.is_overdue:
            raise UpstreamUnavailable(
                f"`{self.name}` is still starting", hint="try again in a moment", server=self.name
            )

    async def _connected(self, *, trial: bool = False) -> UpstreamConnection:
        """The connection. The first caller opens it; all others wait for the same one."""
        connection = self.connection
        if connection is None or (connection.opened.is_set() and not connection.usable):
            self._retire_connection()
            # A call that waited for its slot while the server failed must not try it again.
            if not trial:
                self._policy.check_admitted()
            connection = self.connection = UpstreamConnection(
                self.spec, self.limits, self._scrubber, self.watchdog, self.listeners.on_tools_changed
            )
            self._connections += 1
            self.tasks.start_soon(self._run_connection, connection)
            self._publish_health()
        await connection.opened.wait()
        if not connection.usable:
            raise connection.failure or connection_lost(self.name)
        self._last_tools = connection.tools
        return connection

    async def _run_connection(self, connection: UpstreamConnection) -> None:
        started_at = anyio.current_time()
        await connection.run()
        self._retired_noise += connection.noise
        self._retired.discard(connection)
        if self.connection is connection:
            self.connection = None
        took_s = anyio.current_time() - started_at
        was_open = connection.server_info is not None
        self._apply(self._policy.connection_ended(connection.failure, was_open=was_open, took_s=took_s))

    def _retire_connection(self) -> None:
        """Stop using the connection, since it may be what fails."""
        connection, self.connection = self.connection, None
        if connection is not None and not connection.ended.is_set():
            self._retired.add(connection)
            connection.stop()

    def _deadline_passed(self, deadline_s: float, *, has_slot: bool, is_noisy: bool) -> GatewayError:
        """The error of a call that ran out of time."""
        if not has_slot:
            # The call was never sent, so it says nothing about the server.
            self._publish_health()
            message = f"`{self.name}` was busy with other calls for {deadline_s:g} s"
            return UpstreamBusy(message, hint="try again later", server=self.name)
        connection = self.connection
        is_connecting = connection is not None and not connection.opened.is_set()
        if connection is not None and is_connecting:
            connection.was_waited_for = True
        what = f"did not respond within {deadline_s:g} s"
        error = timeout_error(self.name, what, hint="try again, or request less", is_noisy=is_noisy)
        self._apply(self._policy.deadline_passed(error, deadline_s, is_connecting=is_connecting))
        return error

    def _apply(self, breaker_opened: bool) -> None:
        if breaker_opened:
            self._retire_connection()
            self.tasks.start_soon(self._try_until_closed)
        self._publish_health()

    async def _try_until_closed(self) -> None:
        """While the breaker is open, try the server with a new connection and a ping, independently of any call."""
        if self._is_in_trial:
            return
        self._is_in_trial = True
        while self._policy.is_open and not self.is_closing:
            with anyio.move_on_after(self._policy.retry_in_s or 0.0):
                await self._closing.wait()
            # Somebody may have reconnected meanwhile.
            if self.is_closing or not self._policy.is_open:
                break
            try:
                responds = await (await self._connected(trial=True)).ping(self.limits.breaker.ping_s)
            except GatewayError as error:
                self._policy.last_error, responds = error, False
            self._policy.trial_ended(succeeded=responds)
            if self._policy.is_open:
                self._retire_connection()
            self._publish_health()
        self._is_in_trial = False

    @property
    def _noise(self) -> int:
        return self._retired_noise + (self.connection.noise if self.connection else 0)

    @property
    def _state(self) -> HealthState:
        # First, since a trial changes nothing for callers until it has succeeded.
        if self._policy.is_open:
            return "open"
        if self.connection is not None and not self.connection.opened.is_set():
            return "connecting"
        if self._policy.last_error is not None:
            return "failing"
        return "ready" if self.connection is not None and self.connection.usable else "idle"

    def _publish_health(self) -> None:
        state = self._state
        if state != self._published_state:
            self._published_state = state
            if self.listeners.on_health is not None:
                self.tasks.start_soon(_notify, self.listeners.on_health, self.health())


async def _notify(listener: Callable[[UpstreamHealth], Awaitable[None]], health: UpstreamHealth) -> None:
    try:
        await listener(health)
    except Exception:  # noqa: BLE001 a listener must not end the connections
        _log.exception("a listener failed")
