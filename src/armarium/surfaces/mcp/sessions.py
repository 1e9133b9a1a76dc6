"""Holds the open MCP sessions over HTTP: limits, timeouts, eviction, and why a session was closed."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import anyio

from armarium.foundation.security.identity import Principal
from armarium.foundation.settings.model import SessionSettings
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.http.responses import HttpError
from armarium.surfaces.mcp.server import McpServer
from armarium.surfaces.mcp.session import Session

_log = logging.getLogger(__name__)

Expiry = Literal["inactivity", "max-lifetime", "evicted"]

_MAX_EXPIRED_IDS = 10_000
_HANDSHAKE_TIMEOUT_S = 2.0


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
        self, settings: SessionSettings, metrics: Metrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._inactivity_timeout_s = settings.inactivity_timeout or math.inf
        self._max_lifetime_s = settings.max_lifetime or math.inf
        self._clock = clock
        self.open_sessions: dict[str, Session] = {}
        """The open sessions by id."""
        self._usage: dict[str, _Usage] = {}
        self._by_caller: dict[str, dict[str, Session]] = {}
        self._expired: OrderedDict[str, tuple[Expiry, McpServer, Principal]] = OrderedDict()
        metrics.sessions.set_function(lambda: len(self.open_sessions))

    async def start(self, server: McpServer, owner: Principal, caller: str) -> Session:
        """Open a session. At a limit, an idle session is evicted; raises `HttpError` if none is idle."""
        most, most_of_caller = self._settings.max_sessions, self._settings.max_sessions_per_caller
        if len(self._by_caller.get(caller, ())) >= most_of_caller:
            message = f"all {most_of_caller} sessions that you may have are in use"
            await self._evict([self._by_caller[caller]], 429, message)
        elif len(self.open_sessions) >= most:
            # The caller with the most sessions loses one, so that it cannot take the sessions of others.
            by_number = sorted(self._by_caller.values(), key=len, reverse=True)
            await self._evict(by_number, 503, f"all {most} sessions of this server are in use")
        session = Session(server, owner)
        now = self._clock()
        self._usage[session.id] = _Usage(caller, now, now)
        self.open_sessions[session.id] = self._by_caller.setdefault(caller, {})[session.id] = session
        return session

    def has(self, session_id: str) -> bool:
        """Whether a session with this id is open, whoever owns it."""
        return session_id in self.open_sessions

    async def find(self, session_id: str, server: McpServer, principal: Principal) -> Session:
        """The open session with this id; raises `HttpError`. A session of another caller or endpoint is reported as
        missing, and one that expired long ago too."""
        session = self.open_sessions.get(session_id)
        if session is not None and (reason := self._expiry(session)) is not None:
            await self._expire(session, reason)
        elif session is not None and session.server is server and session.owner == principal:
            return session
        message, headers = "no such session", dict[str, str]()
        reason, of_server, owner = self._expired.get(session_id, (None, None, None))
        if reason is not None and of_server is server and owner == principal:
            message, headers["x-mcp-session-expired"] = f"the session has expired ({reason}); initialize again", reason
        raise HttpError(404, message, headers, reason="SESSION_NOT_FOUND")

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
        self.open_sessions.pop(session.id, None)
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
            for session in list(self.open_sessions.values()):
                if (reason := self._expiry(session)) is not None:
                    await self._expire(session, reason)

    async def end_all(self) -> None:
        """Close all sessions."""
        for session in list(self.open_sessions.values()):
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

    async def _evict(self, holdings: Iterable[Mapping[str, Session]], status: int, problem: str) -> None:
        """End the longest idle session of the first caller that has an idle one."""
        for sessions in holdings:
            if (idle := self._longest_idle(sessions)) is not None:
                await self._expire(idle, "evicted")
                return
        message, headers = f"{problem}; try again later", {"retry-after": "30"}
        raise HttpError(status, message, headers, reason="TOO_MANY_SESSIONS", retryable=True)

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
