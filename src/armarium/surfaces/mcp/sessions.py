"""MCP sessions: who owns one, how long it lasts, and what is under way in it."""

from __future__ import annotations

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol
from uuid import uuid4

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, aclose_shielded
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp_types import (
    CONNECTION_CLOSED,
    INTERNAL_ERROR,
    REQUEST_TIMEOUT,
    ClientCapabilities,
    ErrorData,
    Implementation,
    InitializeRequestParams,
    RequestId,
)
from pydantic import ValidationError

from armarium.foundation.identity import Principal
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.mcp.server import McpServer

_log = logging.getLogger(__name__)

Expiry = Literal["inactivity", "max-lifetime", "evicted"]

_REMEMBERED_EXPIRIES = 10_000
_MOST_OF_A_HANDSHAKE = 2048
_HANDSHAKE_S = 2.0
_MOST_OF_A_NAME = 100


class Listener(Protocol):
    """Takes messages for a client that listens."""

    async def send(self, item: Json, /) -> None: ...


class Session:
    """One client's connection: its negotiated protocol, its open requests, its standing stream."""

    def __init__(self, server: McpServer, owner: Principal, lifespan_state: Any) -> None:
        self.id = uuid4().hex
        self.server = server
        self.owner = owner
        self.connection = Connection.for_loop(_Standing(self), session_id=self.id)
        self.runner = ServerRunner(server, self.connection, lifespan_state)
        self.running: dict[RequestId, anyio.CancelScope] = {}
        """Requests of the client that are being worked on, so that it can cancel them."""
        self.stream: Listener | None = None
        """Where the client listens outside its requests, while it does."""
        self.closed = anyio.Event()
        self.born = self.last_used = time.monotonic()
        self.in_use = 0
        self.opened_by = ""
        """The caller it counts for."""
        self._asked: dict[str, _Question] = {}

    async def pass_on(self, changes: MemoryObjectReceiveStream[None]) -> None:
        """Tell the client, from the end of the handshake on, that its list of tools has changed, each time it has."""
        await self.connection.initialized.wait()
        async for _ in changes:
            await self.connection.send_tool_list_changed()

    def keep_little(self) -> None:
        """Forget what a client said at length in its handshake: it would be in memory as long as the session."""
        said = self.connection.client_params
        if said is None or len(repr(said)) <= _MOST_OF_A_HANDSHAKE:
            return
        self.connection.client_params = InitializeRequestParams(
            protocol_version=self.connection.protocol_version,
            capabilities=ClientCapabilities(),
            client_info=Implementation(
                name=said.client_info.name[:_MOST_OF_A_NAME], version=said.client_info.version[:_MOST_OF_A_NAME]
            ),
        )

    def cancel(self, request_id: RequestId | None) -> None:
        """The client does not want this answer any more; an id nobody works on is ignored."""
        if request_id is not None and (scope := self.running.get(request_id)) is not None:
            scope.cancel()

    async def ask(self, send: Any, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None) -> Json:
        """Send the client a request through `send` and wait for what it posts back."""
        question = _Question()
        question_id = f"armarium-{uuid4().hex}"
        self._asked[question_id] = question
        try:
            await send(_message(method, params, question_id))
            with anyio.move_on_after((opts or {}).get("timeout")):
                await question.answered.wait()
        finally:
            del self._asked[question_id]
        if not question.answered.is_set():
            raise MCPError(REQUEST_TIMEOUT, f"the client did not answer {method} in time")
        if question.error is not None:
            raise MCPError.from_error_data(question.error)
        return question.result

    def take_answer(self, message: Json) -> None:
        """The client answered one of our requests; an id nobody waits for is ignored."""
        question = self._asked.get(str(message.get("id")))
        if question is None:
            return
        if "error" in message:
            question.error = _error_of(message["error"])
        elif isinstance(result := message.get("result"), dict):
            question.result = result
        else:
            question.error = ErrorData(code=INTERNAL_ERROR, message="the client answered with no result")
        question.answered.set()

    async def close(self) -> None:
        """End what is under way and let go of everything."""
        self.closed.set()
        for scope in self.running.values():
            scope.cancel()
        for question in self._asked.values():
            question.error = ErrorData(code=CONNECTION_CLOSED, message="the session has ended")
            question.answered.set()
        await aclose_shielded(self.connection)


class _Question:
    """A request to the client that waits for its answer."""

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.result: Json = {}
        self.error: ErrorData | None = None


class _Standing:
    """The way to the client outside any of its requests: the stream it opened with GET, if it did."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        if self._session.stream is None:
            raise NoBackChannelError(method)
        return await self._session.ask(self._session.stream.send, method, params, opts)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if self._session.stream is not None:
            await self._session.stream.send(_message(method, params))


class TooManySessions(Exception):
    """The caller, or the server, holds as many sessions as it may, and all of them are in use."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
        """What HTTP says of it."""


class Sessions:
    """All open sessions. Those that time out or must make room are closed; for a while their ids are remembered, with
    the reason."""

    def __init__(
        self,
        *,
        inactivity_timeout_s: float | None,
        max_lifetime_s: float | None,
        max_sessions: int,
        max_sessions_per_caller: int | None = None,
        metrics: Metrics,
    ) -> None:
        self._inactivity_timeout_s = inactivity_timeout_s or math.inf
        self._max_lifetime_s = max_lifetime_s or math.inf
        self._max_sessions = max_sessions
        self._max_of_caller = max_sessions_per_caller or max_sessions
        self._open: dict[str, Session] = {}
        self._of_caller: dict[str, dict[str, Session]] = {}
        self._expired: OrderedDict[str, tuple[Expiry, McpServer, Principal]] = OrderedDict()
        metrics.sessions.set_function(lambda: len(self._open))

    async def start(self, server: McpServer, owner: Principal, caller: str, lifespan_state: Any) -> Session:
        """Open a session for a caller. Idle ones make room for it; raises `TooManySessions` when none is idle."""
        if len(self._of_caller.get(caller, ())) >= self._max_of_caller:
            if (idle := _longest_idle(self._of_caller[caller])) is None:
                raise TooManySessions(f"all {self._max_of_caller} sessions that you may have are in use", 429)
            await self._expire(idle, "evicted")
        elif len(self._open) >= self._max_sessions:
            # Whoever has the most gives one up: many sessions of one caller do not cost another one its own.
            by_number = sorted(self._of_caller.values(), key=len, reverse=True)
            idle = next((found for held in by_number if (found := _longest_idle(held)) is not None), None)
            if idle is None:
                raise TooManySessions(f"all {self._max_sessions} sessions of this server are in use", 503)
            await self._expire(idle, "evicted")
        session = Session(server, owner, lifespan_state)
        session.opened_by = caller
        self._open[session.id] = self._of_caller.setdefault(caller, {})[session.id] = session
        return session

    def has(self, session_id: str) -> bool:
        """Whether a session of that id is open, whoever it belongs to."""
        return session_id in self._open

    async def find(self, session_id: str, server: McpServer, principal: Principal) -> Session | None:
        """The open session of that id; None as well when it is another caller's or another endpoint's."""
        session = self._open.get(session_id)
        if session is None:
            return None
        if (reason := self._expiry(session)) is not None:
            await self._expire(session, reason)
            return None
        # Somebody else's session looks exactly like none.
        return session if session.server is server and session.owner == principal else None

    def why_gone(self, session_id: str, server: McpServer, principal: Principal) -> Expiry | None:
        """Why the caller's session was closed, if they did not end it themselves, and not too long ago."""
        reason, of_server, owner = self._expired.get(session_id, (None, None, None))
        return reason if of_server is server and owner == principal else None

    @contextmanager
    def using(self, session: Session) -> Generator[None]:
        """While a request of it is served, a session does not count as inactive."""
        session.in_use += 1
        try:
            yield
        finally:
            session.in_use -= 1
            session.last_used = time.monotonic()

    async def end(self, session: Session) -> None:
        """Close one session."""
        self._open.pop(session.id, None)
        if (held := self._of_caller.get(session.opened_by)) is not None:
            held.pop(session.id, None)
            if not held:
                del self._of_caller[session.opened_by]
        await session.close()

    async def sweep_forever(self) -> None:
        """Close abandoned sessions, so that memory stays flat."""
        interval_s = min(30.0, self._inactivity_timeout_s / 4, self._max_lifetime_s / 4)
        while True:
            await anyio.sleep(interval_s)
            for session in list(self._open.values()):
                if (reason := self._expiry(session)) is not None:
                    await self._expire(session, reason)

    async def end_all(self) -> None:
        """Close everything; the server stops."""
        for session in list(self._open.values()):
            await self.end(session)

    def _expiry(self, session: Session) -> Expiry | None:
        now = time.monotonic()
        if now - session.born > self._max_lifetime_s:
            return "max-lifetime"
        if not session.in_use and now - session.last_used > self._inactivity_timeout_s:
            return "inactivity"
        return None

    async def _expire(self, session: Session, reason: Expiry) -> None:
        self._expired[session.id] = reason, session.server, session.owner
        while len(self._expired) > _REMEMBERED_EXPIRIES:
            self._expired.popitem(last=False)
        _log.info("session expired", extra={"session": session.id, "reason": reason})
        await self.end(session)


def _longest_idle(sessions: Mapping[str, Session]) -> Session | None:
    """The session that nobody uses for the longest time. One whose handshake was given up goes before others: nobody
    speaks in it. One whose handshake is under way does not, or several that begin at once would end each other."""
    given_up = time.monotonic() - _HANDSHAKE_S
    idle = (session for session in sessions.values() if not session.in_use)
    return min(
        idle,
        key=lambda session: (session.connection.initialized.is_set() or session.born > given_up, session.last_used),
        default=None,
    )


def _error_of(told: Any) -> ErrorData:
    try:
        return ErrorData.model_validate(told)
    except ValidationError:
        return ErrorData(code=INTERNAL_ERROR, message="the client answered with an error that is none")


def _message(method: str, params: Mapping[str, Any] | None, request_id: str | None = None) -> Json:
    message: Json = {"jsonrpc": "2.0", "method": method}
    if request_id is not None:
        message["id"] = request_id
    if params is not None:
        message["params"] = dict(params)
    return message
