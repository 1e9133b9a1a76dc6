"""When a server may be called: circuit breaker, back-off between connection attempts, and liveness checks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from armarium.capabilities.gateway.errors import (
    GatewayError,
    UpstreamBusy,
    UpstreamProtocol,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from armarium.capabilities.gateway.upstreams.connection import UpstreamConnection
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.foundation.concurrency.circuit_breaker import CircuitBreaker

Clock = Callable[[], float]

MAX_PAUSE_S = 60.0
JITTER = 0.2
"""Relative deviation of a pause, so that many gateways do not reconnect at the same moment."""
_MAX_DOUBLINGS = 16

_SERVER_FAULTS = (UpstreamUnavailable, UpstreamTimeout, UpstreamProtocol)
"""Errors that count against the server. A refusal, or a response of any size, shows that it works."""


class ConnectBackoff:
    """Exponential back-off with jitter after connection attempts that failed in a row."""

    def __init__(self, now: Clock, *, first_pause_s: float = 0.25) -> None:
        self._now = now
        self._first_pause_s = first_pause_s
        self._failures = 0
        self._not_before = 0.0

    @property
    def pause_s(self) -> float:
        """Remaining time until the next attempt is allowed."""
        return max(0.0, self._not_before - self._now())

    def failed(self, took_s: float) -> None:
        """Start a pause at least as long as the attempt, so that most calls fail fast while a server hangs."""
        doubled_s = min(MAX_PAUSE_S, self._first_pause_s * 2**self._failures)
        self._failures = min(self._failures + 1, _MAX_DOUBLINGS)
        spread = random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 not used for security
        self._not_before = self._now() + max(took_s, doubled_s) * spread

    def succeeded(self) -> None:
        self._failures, self._not_before = 0, 0.0


@dataclass(slots=True)
class LivenessCheck:
    """Distinguishes a slow server from one that hangs: pings it shortly before the deadline of a call. The ping runs
    within the time of the call, so the verdict is known when the deadline passes."""

    connection: Callable[[], UpstreamConnection | None]
    tasks: TaskGroup
    now: Clock
    ping_s: float
    required_share: float = 0.8
    _unanswered: tuple[UpstreamConnection, float] | None = field(default=None, init=False)
    _is_pinging: bool = field(default=False, init=False)

    @contextmanager
    def before(self, deadline_s: float) -> Generator[None]:
        """Ping the server if the block runs until shortly before the deadline."""
        # A timer: a task per call would cost as much as everything else in the guard of a call.
        timer = asyncio.get_running_loop().call_later(deadline_s - self._lead_s(deadline_s), self._start_ping)
        try:
            yield
        finally:
            timer.cancel()

    def is_silent(self, deadline_s: float) -> bool:
        """Whether the server has sent nothing since its ping, now that the deadline has passed. False if the ping was
        sent too late because the gateway itself was busy."""
        if self._unanswered is None:
            return False
        connection, since = self._unanswered
        waited_s = self.now() - since
        return connection is self.connection() and waited_s >= self.required_share * self._lead_s(deadline_s)

    def heard(self) -> None:
        self._unanswered = None

    def _lead_s(self, deadline_s: float) -> float:
        return min(self.ping_s, deadline_s / 2)

    def _start_ping(self) -> None:
        connection = self.connection()
        # One ping serves all waiting calls.
        if connection is None or not connection.usable or self._is_pinging:
            return
        self._is_pinging = True
        self._unanswered = connection, self.now()
        self.tasks.start_soon(self._ping, connection)

    async def _ping(self, connection: UpstreamConnection) -> None:
        try:
            if await connection.ping(self.ping_s):
                self.heard()
        finally:
            self._is_pinging = False


@dataclass(eq=False)
class ConnectionPolicy:
    """Decides whether a server may be called, from the outcome of calls and connection attempts. Methods that record an
    outcome return whether the circuit breaker opens now. The upstream then gives up its connection and tries the server
    with a new one."""

    server: str
    limits: UpstreamLimits
    connection: Callable[[], UpstreamConnection | None]
    tasks: TaskGroup
    last_error: GatewayError | None = field(default=None, init=False)
    """Why the last call or attempt failed; None after a success."""

    def __post_init__(self) -> None:
        now, breaker = anyio.current_time, self.limits.breaker
        self._breaker = CircuitBreaker(breaker.failures, breaker.open_s, now)
        self._backoff = ConnectBackoff(now, first_pause_s=self.limits.first_pause_s)
        self.liveness = LivenessCheck(self.connection, self.tasks, now, breaker.ping_s, self.limits.ping_required_share)

    @property
    def is_open(self) -> bool:
        return not self._breaker.admits()

    @property
    def retry_in_s(self) -> float | None:
        """How long calls are rejected without trying the server; None if they are not."""
        return max(self._breaker.retry_in_s or 0.0, self._pause_s) or None

    def check_admitted(self) -> None:
        """Raise `UpstreamUnavailable` if a call may not try the server now."""
        if not self.is_open and not self._pause_s:
            return
        retry_in_s = self.retry_in_s or 0.0
        raise UpstreamUnavailable(
            f"`{self.server}` failed; calls are rejected for another {retry_in_s:.0f} s",
            hint="try again after that",
            server=self.server,
            retry_in_s=round(retry_in_s, 1),
        )

    def call_succeeded(self) -> None:
        self._breaker.succeeded()
        self.liveness.heard()
        self.last_error = None

    def call_failed(self, error: GatewayError) -> bool:
        """Record a failed call. Not every failure is the server's fault."""
        if isinstance(error, _SERVER_FAULTS):
            self.last_error = error
            return self._breaker.failed()
        if not isinstance(error, UpstreamBusy):
            self.call_succeeded()
        return False

    def deadline_passed(self, error: GatewayError, deadline_s: float, *, is_connecting: bool) -> bool:
        """Record a call that ran out of time. If the server still responds to pings, only this call was slow."""
        self.last_error = error
        return not is_connecting and self.liveness.is_silent(deadline_s) and self._breaker.gone()

    def connection_ended(self, failure: GatewayError | None, *, was_open: bool, took_s: float) -> bool:
        """Record the end of a connection, or an attempt that failed."""
        if was_open:
            self._backoff.succeeded()
        else:
            self.last_error = failure
            self._backoff.failed(took_s)
        # A server that used up the whole connect timeout must not cost other callers the same time.
        return isinstance(failure, UpstreamTimeout) and self._breaker.gone()

    def trial_ended(self, *, succeeded: bool) -> None:
        """Record the result of a trial: the breaker closes, or stays open for another period."""
        self._breaker.tried(succeeded)
        if succeeded:
            self.last_error = None

    def reset(self) -> None:
        """Forget all failures, because somebody wants the server to be tried now."""
        self._breaker.tried(well=True)
        self._backoff.succeeded()
        self.liveness.heard()
        self.last_error = None

    @property
    def _pause_s(self) -> float:
        return self._backoff.pause_s if self.connection() is None else 0.0
