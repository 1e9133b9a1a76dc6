"""Holds the open MCP sessions over HTTP: limits, timeouts, eviction, and why a session was closed."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from armarium.foundation.identity import Principal
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.mcp.server import McpServer
from armarium.surfaces.mcp.session import Session

_log = logging.getLogger(__name__)

Expiry = Literal["inactivity", "max-lifetime", "evicted"]

_MAX_EXPIRED_IDS = 10_000
_HANDSHAKE_TIMEOUT_S = 2.0


class TooManySessions(Exception):
    """The caller or the server has reached its limit, and every session is in use."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status for it."""


@dataclass(slots=True)
class _Usage:
    """Who opened a session, and when it was used."""

    caller: str
    created: float
    last_used: float
    requests: int = 0
    """Requests and streams that are open now."""


class Sessions:
    """All open sessions. The ids of expired and evicted ones are remembered for a while, with the reason."""

    def __init__(
        self,
        *,
        inactivity_timeout_s: float | None,
        max_lifetime_s: float | None,
        max_sessions: int,
        max_sessions_per_caller: int | None = None,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inactivity_timeout_s = inactivity_timeout_s or math.inf
        self._max_lifetime_s = max_lifetime_s or math.inf
        self._max_sessions = max_sessions
        self._max_per_caller = max_sessions_per_caller or max_sessions
        self._clock = clock
        self._open: dict[str, Session] = {}
        self._usage: dict[str, _Usage] = {}
        self._by_caller: dict[str, dict[str, Session]] = {}
        self._expired: OrderedDict[str, tuple[Expiry, McpServer, Principal]] = OrderedDict()
        metrics.sessions.set_function(lambda: len(self._open))

    @property
    def open_sessions(self) -> Mapping[str, Session]:
        """The open sessions by id."""
        return self._open

    async def start(self, server: McpServer, owner: Principal, caller: str, lifespan_state: Any) -> Session:
        """Open a session. At a limit, an idle session is evicted; raises `TooManySessions` if none is idle."""
        if len(self._by_caller.get(caller, ())) >= self._max_per_caller:
            if (idle := self._longest_idle(self._by_caller[caller])) is None:
                raise TooManySessions(f"all {self._max_per_caller} sessions that you may have are in use", 429)
            await self._expire(idle, "evicted")
        elif len(self._open) >= self._max_sessions:
            # The caller with the most sessions loses one, so that it cannot take the sessions of others.
            by_number = sorted(self._by_caller.values(), key=len, reverse=True)
            idle = next((found for held in by_number if (found := self._longest_idle(held)) is not None), None)
            if idle is None:
                raise TooManySessions(f"all {self._max_sessions} sessions of this server are in use", 503)
            await self._expire(idle, "evicted")
        session = Session(server, owner, lifespan_state)
        now = self._clock()
        self._usage[session.id] = _Usage(caller, now, now)
        self._open[session.id] = self._by_caller.setdefault(caller, {})[session.id] = session
        return session

    def has(self, session_id: str) -> bool:
        """Whether a session with this id is open, whoever owns it."""
        return session_id in self._open

    async def find(self, session_id: str, server: McpServer, principal: Principal) -> Session | None:
        """The open session with this id. A session of another caller or endpoint is reported as missing."""
        session = self._open.get(session_id)
        if session is None:
            return None
        if (reason := self._expiry(session)) is not None:
            await self._expire(session, reason)
            return None
        return session if session.server is server and session.owner == principal else None

    def expiry_reason(self, session_id: str, server: McpServer, principal: Principal) -> Expiry | None:
        """Why the caller's session expired; None if it did not, or too long ago."""
        reason, of_server, owner = self._expired.get(session_id, (None, None, None))
        return reason if of_server is server and owner == principal else None

    @contextmanager
    def in_use(self, session: Session) -> Generator[None]:
        """Count a request of the session. Sessions with open requests are not inactive."""
        usage = self._usage[session.id]
        usage.requests += 1
        try:
            yield
        finally:
            usage.requests -= 1
            usage.last_used = self._clock()

    async def end(self, session: Session) -> None:
        """Close one session."""
        self._open.pop(session.id, None)
        if (usage := self._usage.pop(session.id, None)) is not None:
            held = self._by_caller[usage.caller]
            del held[session.id]
            if not held:
                del self._by_caller[usage.caller]
        await session.close()

    async def sweep_forever(self) -> None:
        """Close expired sessions periodically, so that memory stays flat."""
        interval_s = min(30.0, self._inactivity_timeout_s / 4, self._max_lifetime_s / 4)
        while True:
            await anyio.sleep(interval_s)
            for session in list(self._open.values()):
                if (reason := self._expiry(session)) is not None:
                    await self._expire(session, reason)

    async def end_all(self) -> None:
        """Close all sessions."""
        for session in list(self._open.values()):
            await self.end(session)

    def _expiry(self, session: Session) -> Expiry | None:
        now, usage = self._clock(), self._usage.get(session.id)
        if usage is None:  # ended by another task since the caller looked it up
            return None
        if now - usage.created > self._max_lifetime_s:
            return "max-lifetime"
        if not usage.requests and now - usage.last_used > self._inactivity_timeout_s:
            return "inactivity"
        return None

    async def _expire(self, session: Session, reason: Expiry) -> None:
        self._expired[session.id] = reason, session.server, session.owner
        while len(self._expired) > _MAX_EXPIRED_IDS:
            self._expired.popitem(last=False)
        _log.info("session expired", extra={"session": session.id, "reason": reason})
        await self.end(session)

    def _longest_idle(self, sessions: Mapping[str, Session]) -> Session | None:
        """The session to evict: the one that is idle for the longest time. Sessions with an abandoned handshake come
        first. A handshake in progress does not count as abandoned, or sessions that are opened at the same time would
        evict each other."""
        abandoned_before = self._clock() - _HANDSHAKE_TIMEOUT_S
        idle = (session for session in sessions.values() if not self._usage[session.id].requests)

        def priority(session: Session) -> tuple[bool, float]:
            usage = self._usage[session.id]
            is_complete = session.connection.initialized.is_set()
            return is_complete or usage.created > abandoned_before, usage.last_used

        return min(idle, key=priority, default=None)
