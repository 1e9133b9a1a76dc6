"""Reads and decodes the body of an HTTP request, within limits of size, time and memory."""

from __future__ import annotations

from typing import Any

import anyio
from mcp_types import PARSE_ERROR
from starlette.types import Receive

from armarium.foundation.errors import TooManyCalls
from armarium.foundation.settings.model import LimitSettings
from armarium.surfaces.caller_limits import BytesInFlight, Reservation
from armarium.surfaces.http.responses import HttpError
from armarium.surfaces.json.bounds import TooManyValues, decode_body
from armarium.surfaces.json.text import NotJson

_MIN_BYTES_PER_S = 64 * 1024
"""A body that arrives more slowly is rejected: it counts against the limit of all callers."""
_RESERVATION_TIMEOUT_S = 30.0
_UNCOUNTED_BYTES = 64 * 1024
"""Bodies up to this size are not counted: few are in memory before they become calls, which are counted."""


class BodyReader:
    """Reads request bodies. Each caller may have a limited number of bytes in memory."""

    def __init__(self, max_bytes: int, limits: LimitSettings, *, timeout_s: float) -> None:
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self.max_values = limits.max_argument_values
        """The most values that the JSON of a body may have."""
        self.in_flight = BytesInFlight(
            "request_bytes_in_flight", limits.request_bytes_in_flight, limits.total_request_bytes_in_flight
        )
        """The bytes of large bodies whose requests have not been answered."""

    async def read(
        self, caller: str, content_length: bytes, is_chunked: bool, receive: Receive
    ) -> tuple[bytes, Reservation | None]:
        """The body, and the reservation for its bytes if it is large. Raises `HttpError`."""
        if content_length.isdigit() and int(content_length) > self._max_bytes:
            raise self._too_large()
        # Without a length, the body may be as large as the limit.
        expected = int(content_length) if content_length.isdigit() else self._max_bytes * is_chunked
        if expected <= _UNCOUNTED_BYTES:
            return await self._receive_all(receive, expected), None
        reservation: Reservation | None = None
        with anyio.move_on_after(_RESERVATION_TIMEOUT_S):
            reservation = await self.in_flight.acquire(caller, expected)
        if reservation is None:
            message = "too many of your large requests are in flight"
            raise HttpError(429, message, {"retry-after": "1"}, reason=TooManyCalls.code, retryable=True)
        try:
            body = await self._receive_all(receive, expected)
        except BaseException:
            reservation.release()
            raise
        reservation.resize(len(body))
        return body, reservation

    async def decode(self, body: bytes) -> Any:
        """Decode a body as JSON; raises `HttpError`."""
        try:
            return await decode_body(body, self.max_values)
        except NotJson:
            raise HttpError(400, "the body is not valid JSON", code=PARSE_ERROR) from None
        except TooManyValues:
            message = f"the body has more than {self.max_values} values"
            raise HttpError(413, message, reason="TOO_MANY_VALUES") from None

    async def _receive_all(self, receive: Receive, expected: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        deadline = anyio.current_time() + self._timeout_s + expected / _MIN_BYTES_PER_S
        while True:
            try:
                with anyio.fail_after(min(self._timeout_s, deadline - anyio.current_time())):
                    event = await receive()
            except TimeoutError:
                raise HttpError(408, "the rest of the body did not arrive", {"connection": "close"}) from None
            if event["type"] == "http.disconnect":
                raise HttpError(400, "the request ended before its body")
            part = event.get("body", b"")
            size += len(part)
            if size > self._max_bytes:
                raise self._too_large()
            parts.append(part)
            if not event.get("more_body", False):
                return b"".join(parts)

    def _too_large(self) -> HttpError:
        return HttpError(413, f"the request body is larger than {self._max_bytes} bytes")
