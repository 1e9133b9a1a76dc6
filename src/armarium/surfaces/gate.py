"""Who may speak: origin, then bearer, then rate, then the size of what is said, then payment, before anything is
looked up."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
import orjson
from mcp_types import PARSE_ERROR
from starlette.types import Receive, Scope, Send

from armarium.foundation.errors import TooManyCalls
from armarium.foundation.identity import ANYONE, Authenticator
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.argument_bounds import TooManyValues, decoded_body, is_short_beside_arguments
from armarium.surfaces.caller import Caller
from armarium.surfaces.caller_limits import BytesInFlight, Held, RequestLimits
from armarium.surfaces.http_errors import Refused, in_json_rpc, respond
from armarium.surfaces.json_text import NotJson
from armarium.surfaces.json_threads import work_for
from armarium.surfaces.origins import AllowedOrigins, names_loopback

_BODY_SILENCE_S = 30.0
_SLOWEST_BYTES_PER_S = 64 * 1024
"""A body that comes more slowly is given up: it counts against what all callers may send."""
_PACED_S = 1.0
"""How long a request may wait for its turn. A caller that waits for each answer is slowed down and never refused."""
_ROOM_S = 30.0
_DEEPEST_MESSAGE = 64
_UNCOUNTED_BYTES = 64 * 1024
"""Bodies up to this size do not count: there are never many of them before they are calls, which do."""

_log = logging.getLogger(__name__)

_DENIALS = frozenset({401, 402, 403, 413})
_FORBIDDEN_ORIGIN = "FORBIDDEN_ORIGIN"
_BEARER_PROTOCOL = "bearer."
_ONLY_ONCE = frozenset({b"authorization", b"host", b"origin"})


@dataclass(slots=True, weakref_slot=True)
class Admitted:
    """A request that may go on to its session. While there is one, its body counts as its caller's."""

    caller: Caller
    body: bytes
    message: Any = None
    """The parsed body; None when it is empty, or for others to read."""


PaymentCheck = Callable[[Caller, Json], Awaitable[None]]
"""Raises `Refused(402, …)` when the call in the message has its price and was not paid for."""


class Gate:
    """The checks every HTTP request passes, in this order."""

    def __init__(
        self,
        authenticator: Authenticator,
        *,
        allowed_origins: Iterable[str] = (),
        loopback_only: bool,
        max_body_bytes: int,
        metrics: Metrics,
        limits: RequestLimits | None = None,
        has_session: Callable[[str], bool] = lambda session: False,
        payment: PaymentCheck | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._allowed_origins = AllowedOrigins(allowed_origins)
        self._loopback_only = loopback_only
        self._max_body_bytes = max_body_bytes
        self._metrics = metrics
        self._has_session = has_session
        self._payment = payment
        limits = limits or RequestLimits()
        self.max_values = limits.max_values
        """The most values that the JSON of a body may have."""
        self._rate = _rate(limits)
        self._bodies = BytesInFlight(
            "request_bytes_in_flight", limits.request_bytes_in_flight, limits.total_request_bytes_in_flight
        )

    @property
    def allowed_origins(self) -> AllowedOrigins:
        """Origins of browser pages that may call, besides our own loopback addresses."""
        return self._allowed_origins

    async def admit(self, scope: Scope, receive: Receive) -> Admitted:
        """Let the request in, or raise `Refused`."""
        if scope["method"] != "POST":
            return Admitted(await self.admit_reader(scope), b"")
        admitted = await self.admit_with_body(scope, receive)
        if not admitted.body:
            return admitted
        message = await self._parsed(admitted.body)
        if isinstance(message, dict):
            _check_length(message)  # pyright: ignore[reportUnknownArgumentType] any JSON object
            await self.check_payment(admitted.caller, message)  # pyright: ignore[reportUnknownArgumentType] any JSON object
        admitted.message = message
        return admitted

    async def admit_with_body(self, scope: Scope, receive: Receive) -> Admitted:
        """Let a request in whose body, whatever the method, is for others to read; raises `Refused` too. What is to be
        paid for is known only then, and is for `check_payment`."""
        headers = _headers_of(scope)
        caller = self._identify(headers, scope)
        await self._pace(caller, headers)
        return await self._with_body(caller, headers, receive)

    async def admit_reader(self, scope: Scope) -> Caller:
        """Let a request in that only wants to read something; raises `Refused` too."""
        headers = _headers_of(scope)
        caller = self._identify(headers, scope)
        await self._pace(caller, headers)
        return caller

    async def admit_socket(self, scope: Scope) -> Caller:
        """Let in whoever wants to listen over a WebSocket; raises `Refused` too. Pages cannot set its headers, so the
        key may come as a subprotocol, `bearer.<key>`."""
        headers = _headers_of(scope)
        keys = [each for each in scope["subprotocols"] if each.startswith(_BEARER_PROTOCOL)]
        if keys and b"authorization" not in headers:
            headers[b"authorization"] = f"Bearer {keys[0].removeprefix(_BEARER_PROTOCOL)}".encode()
        caller = self._identify(headers, scope)
        await self._pace(caller, headers)
        return caller

    async def check_payment(self, caller: Caller, message: Json) -> None:
        """Raise `Refused` when the call in a message has its price and was not paid for."""
        if self._payment is not None:
            await self._payment(caller, message)

    async def turn_away(
        self, refusal: Refused, scope: Scope, send: Send, form: Callable[[Refused], Json] = in_json_rpc
    ) -> None:
        """Answer a request that goes no further, and put it on record."""
        self._metrics.refused.labels(str(refusal.status)).inc()
        client = scope.get("client")
        _log.log(
            logging.WARNING if refusal.status in _DENIALS else logging.INFO,
            "refused",
            extra={
                "status": refusal.status,
                "reason": refusal.message,
                "client": client[0] if client else None,
                "endpoint": scope["path"],
            },
        )
        await respond(send, refusal.status, orjson.dumps(form(refusal)), refusal.headers)

    def check_address(self, scope: Scope) -> None:
        """Raise `Refused` when the request is not for this server, or from a page that may not call."""
        self._check_origin(_headers_of(scope))

    def _identify(self, headers: Mapping[bytes, bytes], scope: Scope) -> Caller:
        self._check_origin(headers)
        scheme, _, key = headers.get(b"authorization", b"").decode("utf-8", "replace").partition(" ")
        presented = key.strip() if scheme.lower() == "bearer" and key.strip() else None
        principal = self._authenticator.identify(presented)
        if principal is None:
            problem = ', error="invalid_token"' if presented else ""
            raise Refused(
                401,
                "a valid bearer key is required",
                {"www-authenticate": f'Bearer realm="armarium"{problem}'},
                reason="UNAUTHORIZED",
            )
        client = scope.get("client")
        return Caller(principal, "http", credential=presented, address=client[0] if client else None)

    def _check_origin(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        # A page that rebinds its own name to 127.0.0.1 still sends that name as Host.
        if self._loopback_only and not names_loopback(host):
            raise Refused(403, "this server answers on loopback addresses only", reason=_FORBIDDEN_ORIGIN)
        origin = headers.get(b"origin")
        if origin is None:
            return
        name = origin.decode("latin-1").rstrip("/").lower()
        if self._allowed_origins.allow(name):
            return
        if name in (f"http://{host}", f"https://{host}") and names_loopback(host):
            return
        raise Refused(403, "this origin is not allowed; add it to `allowed_origins`", reason=_FORBIDDEN_ORIGIN)

    async def _pace(self, caller: Caller, headers: Mapping[bytes, bytes]) -> None:
        """Let a caller that sends too fast wait for a moment, or raise `Refused`."""
        counted_as = self._counted_as(caller, headers)
        work_for(counted_as)
        if self._rate is None:
            return
        try:
            wait_s = self._rate.reserve(counted_as, _PACED_S)
        except TooManyCalls as error:
            wait_ms: int = error.details["retry_after_ms"]
            raise Refused(
                429,
                "too many requests",
                {"retry-after": str(math.ceil(wait_ms / 1000))},
                reason="RATE_LIMITED",
                details={"retry_after_ms": wait_ms},
                retryable=True,
            ) from None
        if wait_s:
            await anyio.sleep(wait_s)

    def _counted_as(self, caller: Caller, headers: Mapping[bytes, bytes]) -> str:
        """Whose the request is, before anybody has looked at its session."""
        if caller.principal is ANYONE:
            session = headers.get(b"mcp-session-id", b"").decode("latin-1")
            # An id that nobody gave out must not make a new caller.
            caller = replace(caller, session=session) if self._has_session(session) else caller
        return caller.id

    async def _with_body(self, caller: Caller, headers: Mapping[bytes, bytes], receive: Receive) -> Admitted:
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._max_body_bytes:
            raise self._too_large()
        # Without a length it may become as long as any.
        expected = int(declared) if declared.isdigit() else self._max_body_bytes * (b"transfer-encoding" in headers)
        if expected <= _UNCOUNTED_BYTES:
            return Admitted(caller, await self._read_body(receive, expected))
        held: Held | None = None
        with anyio.move_on_after(_ROOM_S):
            held = await self._bodies.acquire(self._counted_as(caller, headers), expected)
        if held is None:
            message = "too many large requests of yours are on their way"
            raise Refused(429, message, {"retry-after": "1"}, reason=TooManyCalls.code, retryable=True)
        try:
            admitted = Admitted(caller, await self._read_body(receive, expected))
        except BaseException:
            held.release()
            raise
        held.resize(len(admitted.body))
        held.release_with([admitted])
        return admitted

    async def _read_body(self, receive: Receive, expected: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        deadline = anyio.current_time() + _BODY_SILENCE_S + expected / _SLOWEST_BYTES_PER_S
        while True:
            try:
                with anyio.fail_after(min(_BODY_SILENCE_S, deadline - anyio.current_time())):
                    event = await receive()
            except TimeoutError:
                raise Refused(408, "the rest of the body did not arrive", {"connection": "close"}) from None
            if event["type"] == "http.disconnect":
                raise Refused(400, "the request ended before its body")
            part = event.get("body", b"")
            size += len(part)
            if size > self._max_body_bytes:
                raise self._too_large()
            parts.append(part)
            if not event.get("more_body", False):
                return b"".join(parts)

    async def _parsed(self, body: bytes) -> Any:
        try:
            return await decoded_body(body, self.max_values)
        except NotJson:
            raise Refused(400, "the body is not valid JSON", code=PARSE_ERROR) from None
        except TooManyValues:
            message = f"the body has more than {self.max_values} values"
            raise Refused(413, message, reason="TOO_MANY_VALUES") from None

    def _too_large(self) -> Refused:
        return Refused(413, f"the request body is larger than {self._max_body_bytes} bytes")


def _check_length(message: Json) -> None:
    """Raise `Refused` where a message is long that carries a lot in nothing but the arguments of a call. What a client
    answers is for whoever asked."""
    if "method" in message and not is_short_beside_arguments(message, _DEEPEST_MESSAGE):
        raise Refused(413, "the message is too long besides the arguments of a call", reason="TOO_MANY_VALUES")


def _rate(limits: RequestLimits) -> RateLimit | None:
    if limits.requests_per_second is None:
        return None
    return RateLimit(limits.requests_per_second, limits.request_burst, TooManyCalls)


def _headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request; raises `Refused` where one decides who calls and there are two of it."""
    headers: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in headers and name in _ONLY_ONCE:
            raise Refused(400, f"the header {name.decode()} is there twice")
        headers[name] = value
    return headers
