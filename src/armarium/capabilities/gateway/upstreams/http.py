"""The transport to a server at an address: whatever HTTP does to a request, that request alone gets an answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import orjson

from armarium.capabilities.gateway.config.files import HttpTransport
from armarium.capabilities.gateway.upstreams.errors import BUSY, NOT_MCP, SESSION_LOST, TOO_LARGE, UNREACHABLE
from armarium.capabilities.gateway.upstreams.message_writer import Outgoing
from armarium.capabilities.gateway.upstreams.notifications import News
from armarium.capabilities.gateway.upstreams.sse import Events, body_of, error_in_json, kind_of

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams
    from mcp.shared.message import SessionMessage

_LARGEST_REFUSAL_BYTES = 64 * 1024
_UNASKED_S = 1.0
"""How long a server may take to hear a notification, or that its session is over."""
_FIRST_REFUSAL = 400
_TOO_MANY_REQUESTS = 429
_NOT_FOUND = 404


@asynccontextmanager
async def http_streams(
    transport: HttpTransport,
    *,
    connect_timeout_s: float,
    max_answer_bytes: int,
    on_session_lost: Callable[[], None],
) -> AsyncGenerator[TransportStreams]:
    """Streams to and from the server. How long an answer may take is for each call to say."""
    from mcp.client.streamable_http import streamable_http_client

    # Loading certificates takes longer than many a call; without encryption nobody needs them.
    verify = transport.url.startswith("https:")
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=16)
    wire = httpx2.AsyncHTTPTransport(verify=verify, limits=limits)
    answering = AnsweringTransport(wire, max_answer_bytes, on_session_lost)
    timeout = httpx2.Timeout(None, connect=connect_timeout_s)
    # Compressed, a small answer could become any size.
    headers = {"accept-encoding": "identity", **transport.headers}
    async with (
        httpx2.AsyncClient(transport=answering, headers=headers, timeout=timeout) as http,
        streamable_http_client(transport.url, http_client=http, max_sse_event_size=None) as streams,
    ):
        incoming, outgoing = streams

        async def send(message: SessionMessage, text: bytes) -> None:
            await outgoing.send(message)

        yield incoming, Outgoing(send, outgoing.aclose)


class AnsweringTransport(httpx2.AsyncBaseTransport):
    """Turns what goes wrong with one request into that request's JSON-RPC error.

    Beneath the client a failing request would end the whole connection and everybody's calls on it, an answer could
    have any size, and a call given up would hold its connection until the server is done.
    """

    def __init__(
        self, wire: httpx2.AsyncBaseTransport, max_answer_bytes: int, on_session_lost: Callable[[], None]
    ) -> None:
        self._wire = wire
        self._max_answer_bytes = max_answer_bytes
        self._on_session_lost = on_session_lost
        self._waiting: dict[object, anyio.CancelScope] = {}
        self._answering: dict[object, Events] = {}
        self._news = News(wire, max_answer_bytes)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request; only one for the rest of an answer that broke off may fail."""
        if request.method == "DELETE":
            return await self._delivered(request)
        if request.method != "POST":
            if self._news.are_asked_for_by(request):
                return await self._news.opened(request)
            return self._as_events(request, None, await self._wire.handle_async_request(request))
        message: dict[str, Any] = orjson.loads(request.content)
        if message.get("method") == "notifications/cancelled":
            self._give_up(message["params"]["requestId"])
        if "id" not in message or "method" not in message:
            return await self._delivered(request)
        request_id = message["id"]
        with anyio.CancelScope() as scope:
            self._waiting[request_id] = scope
            try:
                return await self._answer(request, request_id, await self._wire.handle_async_request(request))
            except httpx2.TransportError as error:
                return _fault(request_id, UNREACHABLE, _why(error))
            finally:
                self._waiting.pop(request_id, None)
        return _fault(request_id, UNREACHABLE, "given up")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def _answer(self, request: httpx2.Request, request_id: object, response: httpx2.Response) -> httpx2.Response:
        kind = kind_of(response)
        if response.has_redirect_location:
            # Where it may lead is for the client to decide.
            return response
        refused = response.status_code >= _FIRST_REFUSAL
        fault = _fault(request_id, NOT_MCP, "not an answer to the request")
        if refused:
            fault = _fault(request_id, UNREACHABLE, f"HTTP status {response.status_code}")
        if response.status_code == _NOT_FOUND and "mcp-session-id" in request.headers:
            self._on_session_lost()
            fault = _fault(request_id, SESSION_LOST, "it has forgotten the session")
        elif response.status_code == _TOO_MANY_REQUESTS:
            fault = _fault(request_id, BUSY, "too many requests")
        elif response.headers.get("content-encoding", "identity") != "identity":
            pass
        elif kind == "text/event-stream" and not refused:
            return self._as_events(request, request_id, response)
        elif kind == "application/json":
            limit = _LARGEST_REFUSAL_BYTES if refused else self._max_answer_bytes
            return await _whole(response, request, request_id, limit) or fault
        await response.aclose()
        return fault

    def _as_events(self, request: httpx2.Request, request_id: object, response: httpx2.Response) -> httpx2.Response:
        events = Events(response, request_id, self._max_answer_bytes, lambda: self._answering.pop(request_id, None))
        if request_id is not None:
            self._answering[request_id] = events
        return httpx2.Response(response.status_code, headers=response.headers, stream=events, request=request)

    def _give_up(self, request_id: object) -> None:
        if (scope := self._waiting.get(request_id)) is not None:
            scope.cancel()
        if (events := self._answering.get(request_id)) is not None:
            events.give_up()

    async def _delivered(self, request: httpx2.Request) -> httpx2.Response:
        """Send what nobody waits for an answer to; requests behind it wait, so it has little time."""
        with anyio.move_on_after(_UNASKED_S):
            try:
                response = await self._wire.handle_async_request(request)
                await response.aclose()
            except httpx2.TransportError:
                pass
        return httpx2.Response(204 if request.method == "DELETE" else 202, request=request)


async def _whole(
    response: httpx2.Response, request: httpx2.Request, request_id: object, limit_bytes: int
) -> httpx2.Response | None:
    """The response with its body read, or the fault that kept it from being read; None when it is no answer."""
    body = bytearray()
    try:
        async for chunk in body_of(response):
            body += chunk
            if len(body) > limit_bytes:
                return _fault(request_id, TOO_LARGE, "the answer is too large")
    except httpx2.TransportError as error:
        return _fault(request_id, UNREACHABLE, _why(error))
    finally:
        await response.aclose()
    headers = {"content-type": "application/json"}
    if session := response.headers.get("mcp-session-id"):
        headers["mcp-session-id"] = session
    if not _is_an_answer(bytes(body), request_id):
        return None
    return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)


def _is_an_answer(body: bytes, request_id: object) -> bool:
    """Whether it answers this very request: another id would leave the caller waiting."""
    try:
        message: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(message, dict):
        return False
    known: dict[str, Any] = message  # pyright: ignore[reportUnknownVariableType] any JSON
    # A server that refuses a request before it knew its id answers without one.
    return "jsonrpc" in known and known.get("id") in (request_id, None)


def _fault(request_id: object, code: int, message: str) -> httpx2.Response:
    return httpx2.Response(
        200, headers={"content-type": "application/json"}, content=error_in_json(request_id, code, message)
    )


def _why(error: httpx2.TransportError) -> str:
    """What went wrong, without the address that the exception's own text may hold."""
    if isinstance(error, httpx2.ConnectTimeout | httpx2.ConnectError):
        return "nothing answers at its address"
    if isinstance(error, httpx2.TimeoutException):
        return "it fell silent"
    return "the connection broke off"
