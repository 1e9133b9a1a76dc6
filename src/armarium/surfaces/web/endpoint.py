"""The endpoints of the API: errors as JSON, responses without a body to HEAD, security headers."""

from __future__ import annotations

import math
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.surfaces.gate import Gate, GatedApp
from armarium.surfaces.http.responses import HttpError

_CODES = {
    400: "BAD_REQUEST",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    408: "REQUEST_TIMEOUT",
    413: "PAYLOAD_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    503: "UNAVAILABLE",
}
_SECURITY_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class ApiEndpoint(GatedApp):
    """One path of the API. `serve` sends the response, or raises `HttpError`."""

    def __init__(self, gate: Gate, serve: ASGIApp) -> None:
        super().__init__(gate, serve, json_error)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                missing = [(name, value) for name, value in _SECURITY_HEADERS if name not in given]
                message = {**message, "headers": [*message["headers"], *missing]}
            elif scope["method"] == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        await super().__call__(scope, receive, send_with_headers)


def json_error(error: HttpError) -> Json:
    """The body of the response to a request that never became a call."""
    code = error.reason or _CODES.get(error.status, "REFUSED")
    return {"error": error.message, "code": code, **error.details}


def method_not_allowed(allowed: Iterable[str]) -> HttpError:
    """The error for a method that an endpoint does not have."""
    listed = ", ".join(sorted(allowed))
    return HttpError(405, f"use {listed}", {"allow": listed})


def status_of(error: ArmariumError) -> int:
    """The HTTP status of a failed call: its own, or one derived from its kind."""
    if error.http_status is not None:
        return error.http_status
    if error.security:
        return 403
    return 503 if error.retryable else 500


def headers_of(error: ArmariumError) -> dict[str, str]:
    """`Retry-After` in whole seconds, if the error has a delay."""
    wait_ms = error.details.get("retry_after_ms")
    return {"retry-after": str(math.ceil(wait_ms / 1000))} if isinstance(wait_ms, int | float) else {}
