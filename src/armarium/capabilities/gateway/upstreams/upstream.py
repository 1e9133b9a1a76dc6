"""One server behind the gateway, called as if it were always there: each call with a turn, a deadline and a record."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
from anyio.abc import TaskGroup

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError, UpstreamBusy
from armarium.capabilities.gateway.upstreams.errors import SessionLost, out_of_time
from armarium.capabilities.gateway.upstreams.instrumentation import OnRequest, counted
from armarium.capabilities.gateway.upstreams.link import Link
from armarium.capabilities.gateway.upstreams.scrubber import Scrubber
from armarium.capabilities.gateway.upstreams.types import (
    CallResult,
    HealthState,
    OnProgress,
    UpstreamHealth,
    UpstreamLimits,
    UpstreamTool,
)

_log = logging.getLogger(__name__)

OnToolsChanged = Callable[[str], Awaitable[None]]
OnHealth = Callable[[UpstreamHealth], Awaitable[None]]


class Upstream:
    """A server by its name. Its link, which all callers share, learns how every call went."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: UpstreamLimits,
        tasks: TaskGroup,
        *,
        on_tools_changed: OnToolsChanged | None = None,
        on_health: OnHealth | None = None,
        on_request: OnRequest | None = None,
    ) -> None:
        self.spec = spec
        self._limits = limits
        self._tasks = tasks
        self._on_tools_changed = on_tools_changed
        self._on_health = on_health
        self._on_request = on_request
        self._scrubber = Scrubber(spec)
        self._link = Link(
            spec,
            limits,
            self._scrubber,
            tasks,
            on_tools_changed=self._tools_have_changed,
            on_change=self._tell_health,
        )
        self._turns = anyio.Semaphore(limits.concurrency)
        self._told_state: HealthState = "idle"
        self._idle = anyio.Event()
        self._in_flight = self._calls = self._failures = 0

    @property
    def name(self) -> str:
        """The name its file gives it."""
        return self.spec.name

    def health(self) -> UpstreamHealth:
        """How it is now."""
        link, connection = self._link, self._link.connection
        info = connection.server_info if connection else None
        return UpstreamHealth(
            server=self.name,
            state=link.state,
            last_error=link.last_error.message if link.last_error else None,
            last_error_code=link.last_error.code if link.last_error else None,
            last_error_hint=link.last_error.for_operators if link.last_error else None,
            retry_in_s=link.refused_for_s,
            in_flight=self._in_flight,
            calls=self._calls,
            failures=self._failures,
            connections=link.connections,
            noise=link.noise,
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
        with counted(self._on_request, self.name, "call") as ending, self._scrubber.held(arguments):
            async with self._guarded(deadline_s):
                try:
                    result = await (await self._link.connected()).call(tool, arguments, on_progress)
                except SessionLost:
                    # The server was started anew and did nothing of the call, so it can be made again.
                    result = await (await self._link.connected()).call(tool, arguments, on_progress)
            if not result.is_error:
                return result
            # Servers like to quote what they were sent when something is wrong with it.
            ending.outcome = "error"
            scrubbed = self._scrubber.scrubbed
            return replace(result, structured=scrubbed(result.structured), content=scrubbed(result.content))

    async def tools(self, *, timeout_s: float | None = None) -> list[UpstreamTool]:
        """What it offers, as listed when it was connected or last told us of a change."""
        connection = self._link.connection
        if connection is not None and connection.usable:
            return list(connection.tools)
        with counted(self._on_request, self.name, "list"):
            async with self._guarded(timeout_s or self._limits.discover_timeout_s):
                return list((await self._link.connected()).tools)

    async def close(self, drain_s: float = 0.0) -> None:
        """Take no more calls, let those in flight finish within the time, and end the connection."""
        self._link.stop()
        with anyio.move_on_after(drain_s):
            while self._in_flight:
                if self._idle.is_set():
                    self._idle = anyio.Event()
                await self._idle.wait()
        await self._link.close()

    @asynccontextmanager
    async def _guarded(self, deadline_s: float) -> AsyncGenerator[None]:
        """A turn within the deadline, if there is one to be had; the link learns how it went."""
        self._link.check_open()
        if self._in_flight >= self._limits.concurrency + self._limits.waiting:
            raise UpstreamBusy(f"too many calls wait for `{self.name}`", hint="try again later", server=self.name)
        self._in_flight += 1
        self._calls += 1
        has_turn = False
        noise = self._link.noise
        try:
            with anyio.fail_after(deadline_s), self._link.pinged_before(deadline_s):
                async with self._turns:
                    has_turn = True
                    yield
            self._link.went_well()
        except TimeoutError:
            self._failures += 1
            error = self._out_of_time(deadline_s, has_turn, is_noisy=self._link.noise > noise)
            self._link.ran_out(error, deadline_s)
            raise error from None
        except GatewayError as error:
            self._failures += 1
            if error.for_operators:
                facts = {"server": self.name, "code": error.code, "hint": error.for_operators}
                _log.warning("a server could not be used", extra=facts)
            self._link.went_wrong(error)
            raise
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    def _out_of_time(self, deadline_s: float, has_turn: bool, *, is_noisy: bool) -> GatewayError:
        if not has_turn:
            return UpstreamBusy(
                f"`{self.name}` was busy with other calls for {deadline_s:g} s",
                hint="try again later",
                server=self.name,
            )
        return out_of_time(
            self.name, f"did not answer within {deadline_s:g} s", "try again, or ask for less", is_noisy=is_noisy
        )

    async def _tools_have_changed(self) -> None:
        if self._on_tools_changed is not None:
            await _contained(self._on_tools_changed, self.name)

    def _tell_health(self) -> None:
        state = self._link.state
        if state != self._told_state:
            self._told_state = state
            if self._on_health is not None:
                self._tasks.start_soon(_contained, self._on_health, self.health())


async def _contained(tell: Callable[[Any], Awaitable[None]], news: object) -> None:
    try:
        await tell(news)
    except Exception:  # noqa: BLE001 a listener must not take the connections down with it
        _log.exception("a listener failed")
