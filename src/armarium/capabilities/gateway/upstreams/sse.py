"""Streams of server-sent events: complete events of bounded size, and a JSON-RPC error if a response is aborted."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable

import anyio
import httpx2
import orjson

from armarium.capabilities.gateway.upstreams.errors import TOO_LARGE, UNREACHABLE

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_EVENT_END_BYTES = 4


class EventStream(httpx2.AsyncByteStream):
    """Passes on complete events only. Ends with a JSON-RPC error if an event is too large or the request is aborted."""

    def __init__(
        self, response: httpx2.Response, request_id: object, limit_bytes: int, on_close: Callable[[], object]
    ) -> None:
        self._response = response
        self._request_id = request_id
        self._limit_bytes = limit_bytes
        self._on_close = on_close
        self._read_scope: anyio.CancelScope | None = None
        self._aborted = False

    def abort(self) -> None:
        """End the stream; the caller no longer waits."""
        self._aborted = True
        if self._read_scope is not None:
            self._read_scope.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body = aiter(body_stream(self._response))
        pending = bytearray()
        while (received := await self._next(body)) is not None:
            searched = max(0, len(pending) - _EVENT_END_BYTES)
            pending += received
            ends = [found.end() for found in _EVENT_END.finditer(pending, searched)]
            if ends:
                yield bytes(pending[: ends[-1]])
                del pending[: ends[-1]]
            if len(pending) > self._limit_bytes:
                if self._request_id is None:
                    raise httpx2.ReadError("an event is too large")
                yield _error_event(self._request_id, TOO_LARGE, "the response is too large")
                return
        if self._aborted:
            yield _error_event(self._request_id, UNREACHABLE, "aborted")
        elif pending:
            yield bytes(pending)

    async def _next(self, body: AsyncIterator[bytes]) -> bytes | None:
        if self._aborted:
            return None
        # One scope per read: a scope held across a `yield` would not be exited in the order of entry.
        with anyio.CancelScope() as self._read_scope:
            return await anext(body, None)
        return None

    async def aclose(self) -> None:
        self._on_close()
        await self._response.aclose()


def media_type(response: httpx2.Response) -> str:
    """The media type of a response."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def body_stream(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """The raw body of a response."""
    assert isinstance(response.stream, httpx2.AsyncByteStream), "it came from an async transport"
    return response.stream


def rpc_error_json(request_id: object, code: int, message: str) -> bytes:
    """The JSON-RPC error response to a request."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def _error_event(request_id: object, code: int, message: str) -> bytes:
    return b"event: message\ndata: " + rpc_error_json(request_id, code, message) + b"\n\n"
