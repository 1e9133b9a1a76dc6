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
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT, ErrorData, RequestId
from pydantic import ValidationError

from armarium.foundation.identity import Principal
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Json
from armarium.surfaces.mcp.server import McpServer

_log = logging.getLogger(__name__)

Expiry = Literal["inactivity", "max-lifetime"]

_REMEMBERED_EXPIRIES = 10_000


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
        self._asked: dict[str, _Question] = {}

    async def pass_on(self, changes: MemoryObjectReceiveStream[None]) -> None:
        """Tell the client, from the end of the handshake on, that its list of tools has changed, each time it has."""
        await self.connection.initialized.wait()
        async for _ in changes:
            await self.connection.send_tool_list_changed()

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
    """The server holds as many sessions as it may."""


class Sessions:
    """All open sessions. Those that time out are closed, and for a while their ids are remembered with the reason."""

    def __init__(
        self,
        *,
        inactivity_timeout_s: float | None,
        max_lifetime_s: float | None,
        max_sessions: int,
        metrics: Metrics,
    ) -> None:
        self._inactivity_timeout_s = inactivity_timeout_s or math.inf
        self._max_lifetime_s = max_lifetime_s or math.inf
        self._max_sessions = max_sessions
        self._open: dict[str, Session] = {}
        self._expired: OrderedDict[str, tuple[Expiry, McpServer, Principal]] = OrderedDict()
        metrics.sessions.set_function(lambda: len(self._open))

    def start(self, server: McpServer, owner: Principal, lifespan_state: Any) -> Session:
        """Open a session; raises `TooManySessions`."""
        if len(self._open) >= self._max_sessions:
            raise TooManySessions
        session = Session(server, owner, lifespan_state)
        self._open[session.id] = session
        return session

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
        """Why the caller's session was closed, if it was a timeout and not too long ago."""
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
