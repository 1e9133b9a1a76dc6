"""The transport to a server over streamable HTTP; an HTTP failure becomes the error of one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import anyio
import httpx2
import orjson

from armarium.capabilities.gateway.config.files import HttpTransport
from armarium.capabilities.gateway.upstreams.errors import BUSY, NOT_MCP, SESSION_LOST, TOO_LARGE, UNREACHABLE
from armarium.capabilities.gateway.upstreams.message_writer import MessageWriter
from armarium.capabilities.gateway.upstreams.redirects import RedirectRefused, SameOriginRedirects
from armarium.capabilities.gateway.upstreams.sse import (
    EventStream,
    NotificationStream,
    body_stream,
    media_type,
    rpc_error_json,
)
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.foundation.schema import Json
from armarium.foundation.surrogates import repair_json_text

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

_MAX_ERROR_BYTES = 64 * 1024
_NOTIFICATION_TIMEOUT_S = 1.0
"""The timeout for notifications and for the end of a session."""


@asynccontextmanager
async def http_streams(
    transport: HttpTransport, limits: UpstreamLimits, connect_timeout_s: float, *, on_session_lost: Callable[[], None]
) -> AsyncGenerator[TransportStreams]:
    """Streams to and from the server. Every call sets its own deadline."""
    from mcp.client.streamable_http import streamable_http_client

    # Loading certificates takes longer than many calls, and only HTTPS needs them.
    verify = transport.url.startswith("https:")
    connections = httpx2.Limits(max_connections=None, max_keepalive_connections=16)
    wire = SameOriginRedirects(httpx2.AsyncHTTPTransport(verify=verify, limits=connections))
    notifications = NotificationStream(wire, limits.max_answer_bytes, first_pause_s=limits.notification_retry_s)
    isolated = RequestErrorTransport(wire, limits.max_answer_bytes, on_session_lost, notifications)
    timeout = httpx2.Timeout(None, connect=connect_timeout_s)
    # A compressed response could expand to any size.
    headers = {"accept-encoding": "identity", **transport.headers}
    async with (
        httpx2.AsyncClient(transport=isolated, headers=headers, timeout=timeout) as http,
        streamable_http_client(transport.url, http_client=http, max_sse_event_size=None) as streams,
    ):
        incoming, outgoing = streams

        async def send(message: SessionMessage, text: bytes) -> None:
            await outgoing.send(message)

        yield incoming, MessageWriter(send, outgoing.aclose)


@dataclass(eq=False, slots=True)
class RequestErrorTransport(httpx2.AsyncBaseTransport):
    """Converts the failure of a request into that request's JSON-RPC error. Otherwise the client would end the whole
    connection, with the calls of all callers, when one request fails. It would also accept responses of any size, and
    keep the socket of an aborted call until the server responds."""

    wire: httpx2.AsyncBaseTransport
    max_answer_bytes: int
    on_session_lost: Callable[[], None]
    notifications: NotificationStream
    _requests: dict[object, anyio.CancelScope] = field(default_factory=dict[object, anyio.CancelScope], init=False)
    _streams: dict[object, EventStream] = field(default_factory=dict[object, EventStream], init=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Only a request for the rest of an interrupted response may fail."""
        if request.method == "DELETE":
            return await self._deliver(request)
        if request.method != "POST":
            if self.notifications.matches(request):
                return await self.notifications.open(request)
            return self._as_events(request, None, await self.wire.handle_async_request(request))
        message: dict[str, Any] = orjson.loads(request.content)
        if message.get("method") == "notifications/cancelled":
            self._abort(message["params"]["requestId"])
        if "id" not in message or "method" not in message:
            return await self._deliver(request)
        request_id = message["id"]
        with anyio.CancelScope() as scope:
            self._requests[request_id] = scope
            try:
                return await self._response(request, request_id, await self.wire.handle_async_request(request))
            except httpx2.TransportError as error:
                return _error_response(request_id, UNREACHABLE, _reason(error))
            finally:
                self._requests.pop(request_id, None)
        return _error_response(request_id, UNREACHABLE, "aborted")

    async def aclose(self) -> None:
        await self.wire.aclose()

    async def _response(
        self, request: httpx2.Request, request_id: object, response: httpx2.Response
    ) -> httpx2.Response:
        kind = media_type(response)
        rejected = response.status_code >= HTTPStatus.BAD_REQUEST
        error = _error_response(request_id, NOT_MCP, "not a response to the request")
        if rejected:
            error = _error_response(request_id, UNREACHABLE, f"HTTP status {response.status_code}")
        if response.status_code == HTTPStatus.NOT_FOUND and "mcp-session-id" in request.headers:
            self.on_session_lost()
            error = _error_response(request_id, SESSION_LOST, "unknown session")
        elif response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            error = _error_response(request_id, BUSY, "too many requests")
        elif response.headers.get("content-encoding", "identity") != "identity":
            pass
        elif kind == "text/event-stream" and not rejected:
            return self._as_events(request, request_id, response)
        elif kind == "application/json":
            limit = _MAX_ERROR_BYTES if rejected else self.max_answer_bytes
            return await _complete(response, request, request_id, limit) or error
        await response.aclose()
        return error

    def _as_events(self, request: httpx2.Request, request_id: object, response: httpx2.Response) -> httpx2.Response:
        events = EventStream(response, request_id, self.max_answer_bytes, lambda: self._streams.pop(request_id, None))
        if request_id is not None:
            self._streams[request_id] = events
        return httpx2.Response(response.status_code, headers=response.headers, stream=events, request=request)

    def _abort(self, request_id: object) -> None:
        if (scope := self._requests.get(request_id)) is not None:
            scope.cancel()
        if (events := self._streams.get(request_id)) is not None:
            events.abort()

    async def _deliver(self, request: httpx2.Request) -> httpx2.Response:
        """Send a message that has no response. Later requests wait for it, so its timeout is short."""
        with anyio.move_on_after(_NOTIFICATION_TIMEOUT_S):
            try:
                response = await self.wire.handle_async_request(request)
                await response.aclose()
            except httpx2.TransportError:
                pass
        return httpx2.Response(204 if request.method == "DELETE" else 202, request=request)


async def _complete(
    response: httpx2.Response, request: httpx2.Request, request_id: object, limit_bytes: int
) -> httpx2.Response | None:
    """The response with its body, or an error response if it cannot be read; None if it is not JSON-RPC."""
    body = bytearray()
    try:
        async for received in body_stream(response):
            body += received
            if len(body) > limit_bytes:
                return _error_response(request_id, TOO_LARGE, "the response is too large")
    except httpx2.TransportError as error:
        return _error_response(request_id, UNREACHABLE, _reason(error))
    finally:
        await response.aclose()
    headers = {"content-type": "application/json"}
    if session := response.headers.get("mcp-session-id"):
        headers["mcp-session-id"] = session
    for repaired in (bytes, repair_json_text):
        if _is_response(text := repaired(bytes(body)), request_id):
            return httpx2.Response(response.status_code, headers=headers, content=text, request=request)
    return None


def _is_response(body: bytes, request_id: object) -> bool:
    """Whether it is the response to this request. With another id the caller would wait forever."""
    try:
        message: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    # A server that rejects a request before it parsed the id responds without one.
    return isinstance(message, dict) and "jsonrpc" in message and cast(Json, message).get("id") in (request_id, None)


def _error_response(request_id: object, code: int, message: str) -> httpx2.Response:
    return httpx2.Response(
        200, headers={"content-type": "application/json"}, content=rpc_error_json(request_id, code, message)
    )


def _reason(error: httpx2.TransportError) -> str:
    """The reason, without the address that the exception's text may contain."""
    if isinstance(error, RedirectRefused):
        return str(error)
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        return "no server at its address"
    if isinstance(error, httpx2.TimeoutException):
        return "it stopped responding"
    return "the connection was interrupted"
