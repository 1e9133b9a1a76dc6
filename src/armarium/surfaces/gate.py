"""Admits HTTP requests: checks the origin, the bearer key, the rate limit and the size, in this order."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import anyio
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from armarium.foundation.errors import TooManyCalls
from armarium.foundation.identity import ANYONE, Authenticator
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.schema import Json
from armarium.foundation.settings import LimitSettings
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.argument_bounds import is_envelope_small
from armarium.surfaces.caller import Caller
from armarium.surfaces.http_errors import HttpError, json_rpc_error
from armarium.surfaces.http_responses import respond
from armarium.surfaces.json_threads import set_json_caller
from armarium.surfaces.origins import AllowedOrigins, names_loopback
from armarium.surfaces.request_body import BodyReader

_BURST_S = 4
"""How many seconds' worth of requests a key with a rate of its own may send at once."""
_MAX_RATE_DELAY_S = 1.0
"""How long the rate limit delays a request. A caller that waits for each response is slowed down, never rejected."""

_log = logging.getLogger(__name__)

_LOGGED_AS_WARNINGS = frozenset({401, 403, 413})
_FORBIDDEN_ORIGIN = "FORBIDDEN_ORIGIN"
_BEARER_PROTOCOL = "bearer."
_UNIQUE_HEADERS = frozenset({b"authorization", b"host", b"origin"})


@dataclass(slots=True, weakref_slot=True)
class Admitted:
    """A request that passed the gate. While the object exists, its body counts as in flight for its caller."""

    caller: Caller
    body: bytes
    message: Any = None
    """The decoded body; None if the body is empty or was not decoded."""


class Gate:
    """The checks that every HTTP request passes. Its methods raise `HttpError` for a request that fails one."""

    def __init__(
        self,
        authenticator: Authenticator,
        *,
        allowed_origins: Iterable[str] = (),
        loopback_only: bool,
        max_body_bytes: int,
        metrics: Metrics,
        limits: LimitSettings | None = None,
        has_session: Callable[[str], bool] = lambda session: False,
        body_timeout_s: float = 30.0,
    ) -> None:
        limits = limits or LimitSettings()
        rate = limits.requests_per_second
        self._authenticator = authenticator
        self.allowed_origins = AllowedOrigins(allowed_origins)
        """The origins of browser pages that may call, besides our own loopback addresses."""
        self._loopback_only = loopback_only
        self._metrics = metrics
        self._has_session = has_session
        self._rate_limit = None if rate is None else RateLimit(rate, limits.request_burst, TooManyCalls)
        self._own_rate_limits: dict[float, RateLimit] = {}
        """The limits of keys that have a rate of their own, by that rate."""
        self._bodies = BodyReader(max_body_bytes, limits, timeout_s=body_timeout_s)
        self.max_values = limits.max_argument_values
        """The most values that the JSON of a body may have."""
        self.request_bytes = self._bodies.in_flight
        """The bytes of large bodies whose requests have not been answered."""

    async def admit(self, scope: Scope, receive: Receive) -> Admitted:
        """Admit an MCP request and decode its message."""
        if scope["method"] != "POST":
            return Admitted(await self.admit_reader(scope), b"")
        admitted = await self.admit_with_body(scope, receive)
        if not admitted.body:
            return admitted
        admitted.message = message = await self._bodies.decode(admitted.body)
        # Responses of a client are not limited here.
        if isinstance(message, dict) and "method" in message and not is_envelope_small(cast(Json, message)):
            raise HttpError(413, "the message is too long besides the arguments of a call", reason="TOO_MANY_VALUES")
        return admitted

    async def admit_with_body(self, scope: Scope, receive: Receive) -> Admitted:
        """Admit a request of any method and read its body, without decoding it."""
        headers = _headers_of(scope)
        caller, limit_key = await self._identify_and_limit(headers, scope)
        length, is_chunked = headers.get(b"content-length", b""), b"transfer-encoding" in headers
        body, reservation = await self._bodies.read(limit_key, length, is_chunked, receive)
        admitted = Admitted(caller, body)
        if reservation is not None:
            reservation.release_with([admitted])
        return admitted

    async def admit_reader(self, scope: Scope) -> Caller:
        """Admit a request without a body."""
        caller, _ = await self._identify_and_limit(_headers_of(scope), scope)
        return caller

    async def admit_socket(self, scope: Scope) -> Caller:
        """Admit a WebSocket. Browser pages cannot set its headers, so the key may come as the subprotocol
        `bearer.<key>`."""
        headers = _headers_of(scope)
        keys = [each for each in scope["subprotocols"] if each.startswith(_BEARER_PROTOCOL)]
        if keys and b"authorization" not in headers:
            headers[b"authorization"] = f"Bearer {keys[0].removeprefix(_BEARER_PROTOCOL)}".encode()
        caller, _ = await self._identify_and_limit(headers, scope)
        return caller

    async def send_error(
        self, error: HttpError, scope: Scope, send: Send, form: Callable[[HttpError], Json] = json_rpc_error
    ) -> None:
        """Log and count a rejected request, and respond to it."""
        self._metrics.refused.labels(str(error.status)).inc()
        level = logging.WARNING if error.status in _LOGGED_AS_WARNINGS else logging.INFO
        facts = {"status": error.status, "reason": error.message, "client": _address(scope), "endpoint": scope["path"]}
        _log.log(level, "refused", extra=facts)

        async def reject_socket(message: Message) -> None:
            await send({**message, "type": f"websocket.{message['type']}"})

        respond_with = reject_socket if scope["type"] == "websocket" else send
        await respond(respond_with, error.status, orjson.dumps(form(error)), error.headers)

    def check_address(self, scope: Scope) -> None:
        """Check only the Host and Origin headers."""
        self._check_origin(_headers_of(scope))

    async def _identify_and_limit(self, headers: Mapping[bytes, bytes], scope: Scope) -> tuple[Caller, str]:
        """The caller, and the key under which its requests are limited."""
        caller = limited = self._identify(headers, scope)
        if caller.principal is ANYONE:
            # An invented session id must not create a new caller with limits of its own.
            session = headers.get(b"mcp-session-id", b"").decode("latin-1")
            limited = replace(caller, session=session) if self._has_session(session) else caller
        await self._apply_rate_limit(limited.id, caller.principal.requests_per_second)
        return caller, limited.id

    def _identify(self, headers: Mapping[bytes, bytes], scope: Scope) -> Caller:
        self._check_origin(headers)
        scheme, _, key = headers.get(b"authorization", b"").decode("utf-8", "replace").partition(" ")
        presented = key.strip() if scheme.lower() == "bearer" and key.strip() else None
        principal = self._authenticator.identify(presented)
        if principal is None:
            problem = ', error="invalid_token"' if presented else ""
            challenge = {"www-authenticate": f'Bearer realm="armarium"{problem}'}
            raise HttpError(401, "a valid bearer key is required", challenge, reason="UNAUTHORIZED")
        return Caller(principal, "http", credential=presented, address=_address(scope))

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        # A page that rebinds its own name to 127.0.0.1 still sends that name as Host.
        if self._loopback_only and not names_loopback(host):
            raise HttpError(403, "this server answers on loopback addresses only", reason=_FORBIDDEN_ORIGIN)
        origin = headers.get(b"origin")
        if origin is None:
            return
        name = origin.decode("latin-1").rstrip("/").lower()
        is_own = name in (f"http://{host}", f"https://{host}") and names_loopback(host)
        if not is_own and not self.allowed_origins.allow(name):
            raise HttpError(403, "this origin is not allowed; add it to `allowed_origins`", reason=_FORBIDDEN_ORIGIN)

    async def _apply_rate_limit(self, limit_key: str, own_rate: float | None) -> None:
        """Delay the request of a caller that sends too fast, or reject it. A key can have a rate of its own."""
        set_json_caller(limit_key)
        limit = self._rate_limit
        if own_rate is not None:
            limit = self._own_rate_limits.get(own_rate)
            if limit is None:
                limit = RateLimit(own_rate, math.ceil(own_rate * _BURST_S), TooManyCalls)
                self._own_rate_limits[own_rate] = limit
        if limit is None:
            return
        try:
            wait_s = limit.reserve(limit_key, _MAX_RATE_DELAY_S)
        except TooManyCalls as error:
            wait_ms: int = error.details["retry_after_ms"]
            headers, details = {"retry-after": str(math.ceil(wait_ms / 1000))}, {"retry_after_ms": wait_ms}
            raise HttpError(
                429, "too many requests", headers, reason="RATE_LIMITED", details=details, retryable=True
            ) from None
        if wait_s:
            await anyio.sleep(wait_s)


class GatedApp:
    """An ASGI application that responds to each `HttpError` which `serve` raises."""

    def __init__(self, gate: Gate, serve: ASGIApp, form: Callable[[HttpError], Json] = json_rpc_error) -> None:
        self._gate = gate
        self._serve = serve
        self._form = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        except HttpError as error:
            await self._gate.send_error(error, scope, send, self._form)


def _address(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def _headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request. A header that identifies the caller must not be repeated."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in _UNIQUE_HEADERS:
            raise HttpError(400, f"the header {name.decode()} is repeated")
        headers[name] = value
    return headers
