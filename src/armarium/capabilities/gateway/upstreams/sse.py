"""Streams of server-sent events: whole ones only, none too large, and an error of ours where an answer ends early."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable

import anyio
import httpx2
import orjson

from armarium.capabilities.gateway.upstreams.errors import TOO_LARGE, UNREACHABLE

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST_EVENT_END = 4


class Events(httpx2.AsyncByteStream):
    """A stream of events that passes on whole ones only, and ends with an error of ours when it has to."""

    def __init__(
        self, response: httpx2.Response, request_id: object, limit_bytes: int, on_close: Callable[[], object]
    ) -> None:
        self._response = response
        self._request_id = request_id
        self._limit_bytes = limit_bytes
        self._on_close = on_close
        self._waiting: anyio.CancelScope | None = None
        self._given_up = False

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        self._given_up = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(body_of(self._response))
        pending = bytearray()
        while (chunk := await self._next(chunks)) is not None:
            looked_at = max(0, len(pending) - _LONGEST_EVENT_END)
            pending += chunk
            ends = [found.end() for found in _EVENT_END.finditer(pending, looked_at)]
            if ends:
                yield bytes(pending[: ends[-1]])
                del pending[: ends[-1]]
            if len(pending) > self._limit_bytes:
                if self._request_id is None:
                    raise httpx2.ReadError("an event is too large")
                yield _error_event(self._request_id, TOO_LARGE, "the answer is too large")
                return
        if self._given_up:
            yield _error_event(self._request_id, UNREACHABLE, "given up")
        elif pending:
            yield bytes(pending)

    async def _next(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        if self._given_up:
            return None
        # A scope for each chunk: one held across a `yield` would be left in another order than it was entered.
        with anyio.CancelScope() as self._waiting:
            return await anext(chunks, None)
        return None

    async def aclose(self) -> None:
        self._on_close()
        await self._response.aclose()


def kind_of(response: httpx2.Response) -> str:
    """The media type of a response."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def body_of(response: httpx2.Response) -> httpx2.AsyncByteStream:
    """The body of a response as it comes."""
    assert isinstance(response.stream, httpx2.AsyncByteStream), "it came from a transport that is async"
    return response.stream


def error_in_json(request_id: object, code: int, message: str) -> bytes:
    """The JSON-RPC error that answers a request."""
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})


def _error_event(request_id: object, code: int, message: str) -> bytes:
    return b"event: message\ndata: " + error_in_json(request_id, code, message) + b"\n\n"
