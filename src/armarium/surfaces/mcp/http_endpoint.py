"""Streamable HTTP: the endpoint that passes each request to its session."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS, SUPPORTED_PROTOCOL_VERSIONS
from starlette.types import Message, Receive, Scope, Send

from armarium.foundation.schema import Json
from armarium.surfaces.caller import Caller
from armarium.surfaces.gate import Admitted, Gate
from armarium.surfaces.http.responses import HttpError, cancel_after, cancel_on_disconnect, respond
from armarium.surfaces.mcp.event_stream import DEFERRED_PARTS, DeferredParts, PostResponse, event, start_stream
from armarium.surfaces.mcp.exchange import Exchange, InvalidMessage, check_message, receive_notification
from armarium.surfaces.mcp.server import CALLER, McpServer
from armarium.surfaces.mcp.session import Session
from armarium.surfaces.mcp.sessions import Sessions

_log = logging.getLogger(__name__)

_STREAM_BUFFER = 64
_KEEP_ALIVE: Message = {"type": "http.response.body", "body": b": keep-alive\n\n", "more_body": True}


class McpEndpoint:
    """Serves one `McpServer` as an ASGI application."""

    def __init__(self, server: McpServer, gate: Gate, sessions: Sessions, *, keep_alive_s: float = 15.0) -> None:
        self._server = server
        self._gate = gate
        self._sessions = sessions
        self._keep_alive_s = keep_alive_s
        # From protocol 2026-07-28 on, requests are self-contained and have no session. The SDK serves them.
        self._sessionless = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=2**62)
        self._closing = anyio.Event()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Serve requests inside the block."""
        return self._sessionless.run()

    def close_streams(self) -> None:
        """End the listening streams, which would otherwise delay the shutdown."""
        self._closing.set()
        self._server.changes.close()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; raises `HttpError`."""
        admitted = await self._gate.admit(scope, receive)
        headers = _join_headers(scope["headers"])
        version = headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            # A repeated header is joined by commas; the SDK decides about it.
            if {each.strip() for each in version.split(",")}.isdisjoint(MODERN_PROTOCOL_VERSIONS):
                raise HttpError(
                    400,
                    f"this MCP-Protocol-Version is not supported; use one of {', '.join(SUPPORTED_PROTOCOL_VERSIONS)}",
                    code=UNSUPPORTED_PROTOCOL_VERSION,
                    reason="UNSUPPORTED_PROTOCOL_VERSION",
                    details={"supported": [*SUPPORTED_PROTOCOL_VERSIONS], "requested": version},
                )
            scope[CALLER] = admitted.caller
            scope[DEFERRED_PARTS] = deferred = DeferredParts()
            await self._sessionless.handle_request(scope, _replay(admitted.body, receive), deferred.restore(send))
            return
        match scope["method"]:
            case "POST":
                await self._post(headers, send, admitted)
            case "GET":
                await self._listen(headers, receive, send, admitted.caller)
            case "DELETE":
                await self._sessions.end(await self._session(headers, admitted.caller))
                await respond(send, 200)
            case _:
                raise HttpError(405, "use POST, GET or DELETE", {"allow": "GET, POST, DELETE"})

    async def _post(self, headers: dict[str, str], send: Send, admitted: Admitted) -> None:
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpError(415, "Content-Type must be application/json")
        try:
            message = check_message(admitted.message)
        except InvalidMessage as error:
            raise HttpError(400, f"the body is not a message: {error}") from None
        takes_json, takes_stream = _accepted(headers)
        if not takes_json:
            raise HttpError(406, "Accept must include application/json and text/event-stream")
        is_handshake = message.get("method") == "initialize" and "mcp-session-id" not in headers
        caller = admitted.caller
        if is_handshake:
            session = await self._sessions.start(self._server, caller.principal, caller.id)
        else:
            session = await self._session(headers, caller)
        with self._sessions.in_use(session):
            if "method" not in message:
                session.receive_response(message)
                await respond(send, 202)
            elif "id" not in message:
                await respond(send, 202)
                await receive_notification(session, message, caller)
            else:
                response = PostResponse(send, session.id)
                before = response.send_message if takes_stream else None
                reply = await Exchange(session, message, caller, before).reply()
                succeeded = "result" in reply
                # A failed handshake opens no session.
                await response.finish(reply, with_session=succeeded or message["method"] != "initialize")
                if is_handshake and not succeeded:
                    await self._sessions.end(session)

    async def _listen(self, headers: dict[str, str], receive: Receive, send: Send, caller: Caller) -> None:
        if not _accepted(headers)[1]:
            raise HttpError(406, "Accept must include text/event-stream")
        session = await self._session(headers, caller)
        if session.send is not None:
            raise HttpError(409, "this session already has a listening stream")
        stream, messages = anyio.create_memory_object_stream[Json](_STREAM_BUFFER)
        session.send = stream.send
        try:
            # Subscribed before the head is sent: a client that sees the stream gets every change from then on.
            with (
                self._sessions.in_use(session),
                stream,
                messages,
                self._server.changes.subscription(caller.principal) as changes,
            ):
                await start_stream(send, session.id)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.forward_tool_changes, changes)
                    tasks.start_soon(cancel_on_disconnect, receive, tasks.cancel_scope)
                    tasks.start_soon(cancel_after, session.closed.wait, tasks.cancel_scope)
                    tasks.start_soon(cancel_after, self._closing.wait, tasks.cancel_scope)
                    while True:
                        part = _KEEP_ALIVE
                        with anyio.move_on_after(self._keep_alive_s):
                            part = event(await messages.receive())
                        if not self._gate.knows(caller):
                            tasks.cancel_scope.cancel()
                            break
                        await send(part)
            await send({"type": "http.response.body", "body": b""})
        finally:
            session.send = None

    async def _session(self, headers: dict[str, str], caller: Caller) -> Session:
        session_id = headers.get("mcp-session-id")
        if session_id is None:
            raise HttpError(400, "Mcp-Session-Id is missing; initialize first", reason="SESSION_NOT_FOUND")
        return await self._sessions.find(session_id, self._server, caller.principal)


def _join_headers(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in lines):
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _accepted(headers: dict[str, str]) -> tuple[bool, bool]:
    accepted = {part.partition(";")[0].strip().lower() for part in headers.get("accept", "*/*").split(",")}
    anything = "*/*" in accepted
    takes_json = anything or bool(accepted & {"application/json", "application/*"})
    return takes_json, anything or bool(accepted & {"text/event-stream", "text/*"})


def _replay(body: bytes, receive: Receive) -> Receive:
    unread = [body]

    async def replayed() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replayed
