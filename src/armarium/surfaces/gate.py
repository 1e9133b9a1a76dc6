"""Admits HTTP requests: checks the origin, the bearer key, the rate limit and the size, in this order."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, cast

import anyio
import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.errors import TooManyCalls
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import ANYONE, Authenticator, Principal
from armarium.foundation.settings.model import LimitSettings
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.caller import CONSOLE, Caller
from armarium.surfaces.http.forwarded import is_clear_text
from armarium.surfaces.http.origins import AllowedHosts, AllowedOrigins
from armarium.surfaces.http.request_body import BodyReader
from armarium.surfaces.http.responses import HttpError, json_rpc_error, respond
from armarium.surfaces.json.bounds import is_envelope_small
from armarium.surfaces.json.threads import set_json_caller

_BURST_S = 4
"""How many seconds' worth of requests a key with a rate of its own may send at once."""
_MAX_RATE_DELAY_S = 1.0
"""How long the rate limit delays a request. A caller that waits for each response is slowed down, never rejected."""

_log = logging.getLogger(__name__)

_LOGGED_AS_WARNINGS = frozenset({401, 403, 413})
_FORBIDDEN_ORIGIN = "FORBIDDEN_ORIGIN"
_BEARER_PROTOCOL = "bearer."
_PATHS_OF_PAGES = ("/api/", "/console")
"""What pages of the console load and call. What speaks MCP has no pages."""


BrowserCaller = Callable[[Mapping[bytes, bytes], Scope], Caller | None]


class Browsers(Protocol):
    """The browsers that are logged in."""

    def caller_of(self, headers: Mapping[bytes, bytes], scope: Scope) -> Caller | None:
        """The caller of a request by the session of its browser, from its headers. None: the request has no session.
        Raises `HttpError` if the session may not be used like this."""
        ...

    def caller_of_element(
        self, headers: Mapping[bytes, bytes], scope: Scope, session_id: str | None = None
    ) -> Caller | None:
        """The same for an element of a page, whose address needs this session."""
        ...

    def is_open(self, session_id: str | None) -> bool:
        """Whether there is such a session, and it has not ended."""
        ...

    async def wait_until_ended(self, session_id: str | None) -> None:
        """Return when the session has ended."""
        ...


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
        allowed_hosts: Iterable[str] = (),
        loopback_only: bool,
        max_body_bytes: int,
        metrics: Metrics,
        limits: LimitSettings | None = None,
        has_session: Callable[[str], bool] = lambda session: False,
        browsers: Browsers | None = None,
        body_timeout_s: float = 30.0,
    ) -> None:
        limits = limits or LimitSettings()
        rate = limits.requests_per_second
        self._authenticator = authenticator
        self.allowed_origins = AllowedOrigins(allowed_origins)
        """The origins of browser pages that may call, besides our own loopback addresses."""
        self._allowed_hosts = AllowedHosts(allowed_hosts, loopback_only=loopback_only)
        self._warned_of_clear_text = False
        self._metrics = metrics
        self._has_session = has_session
        self._browsers = browsers
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
        headers = request_headers(scope)
        caller, limit_key = await self._identify_and_limit(headers, scope)
        length, is_chunked = headers.get(b"content-length", b""), b"transfer-encoding" in headers
        body, reservation = await self._bodies.read(limit_key, length, is_chunked, receive)
        admitted = Admitted(caller, body)
        if reservation is not None:
            reservation.release_with([admitted])
        return admitted

    async def admit_stranger(self, scope: Scope, receive: Receive, *, max_body_bytes: int) -> bytes:
        """Admit a request whose body says who the caller is. Returns the body, which must be small."""
        headers = request_headers(scope)
        self._check_origin(headers, scope["path"])
        limit_key = f"address {_address(scope)}"
        await _within_rate_limit(partial(self._count_request, limit_key, None))
        length = headers.get(b"content-length", b"")
        if not length.isdigit() or int(length) > max_body_bytes:
            raise HttpError(413, f"the body must have a Content-Length of at most {max_body_bytes}")
        body, reservation = await self._bodies.read(limit_key, length, False, receive)
        if reservation is not None:
            reservation.release()
        return body

    async def admit_link(self, scope: Scope, principal: Principal | None) -> Admitted:
        """Admit a request whose URL has a token in place of a key. `principal` is whose token it is."""
        self._check_origin(request_headers(scope), scope["path"])
        await _within_rate_limit(partial(self._count_request, f"address {_address(scope)}", None))
        if principal is None or not self._authenticator.knows(principal):
            raise HttpError(410, "the link is invalid or has expired", reason="link_expired")
        return Admitted(Caller(principal, "http", address=_address(scope)), b"")

    async def admit_reader(self, scope: Scope) -> Caller:
        """Admit a request without a body."""
        caller, _ = await self._identify_and_limit(request_headers(scope), scope)
        return caller

    async def admit_element(self, scope: Scope, session_id: str | None) -> Caller:
        """Admit a request of an element of a page, such as an image. It has the cookie of a session and not its proof,
        so its address must say what it may get, and in which session."""
        browsers = self._browsers
        find = partial(browsers.caller_of_element, session_id=session_id) if browsers is not None else None
        caller, _ = await self._identify_and_limit(request_headers(scope), scope, find)
        return caller

    async def admit_socket(self, scope: Scope) -> Caller:
        """Admit a WebSocket. Browser pages cannot set its headers, so the key may come as the subprotocol
        `bearer.<key>`."""
        headers = request_headers(scope)
        keys = [each for each in scope["subprotocols"] if each.startswith(_BEARER_PROTOCOL)]
        if len(keys) + (b"authorization" in headers) > 1:
            raise HttpError(400, "the key is repeated")
        if keys:
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

    def knows(self, caller: Caller) -> bool:
        """Whether the key of an admitted caller is still valid, and their session open. A stream asks this before each
        message."""
        is_open = (browsers := self._browsers_of(caller)) is None or browsers.is_open(caller.session)
        return is_open and self._authenticator.knows(caller.principal)

    async def wait_until_ended(self, caller: Caller) -> None:
        """Return when the session of the caller's browser has ended; never for another caller. What runs for long,
        such as a stream, ends with it."""
        if (browsers := self._browsers_of(caller)) is None:
            await anyio.sleep_forever()
        else:
            await browsers.wait_until_ended(caller.session)

    def check_address(self, scope: Scope) -> None:
        """Check only the Host and Origin headers."""
        self._check_origin(request_headers(scope), scope["path"])

    def _browsers_of(self, caller: Caller) -> Browsers | None:
        return self._browsers if caller.surface == CONSOLE else None

    async def _identify_and_limit(
        self, headers: Mapping[bytes, bytes], scope: Scope, browser_caller: BrowserCaller | None = None
    ) -> tuple[Caller, str]:
        """The caller, and the key under which its requests are limited."""
        if browser_caller is None and self._browsers is not None:
            browser_caller = self._browsers.caller_of
        caller = limited = self._identify(headers, scope, browser_caller)
        if caller.principal is ANYONE:
            # An invented session id must not create a new caller with limits of its own.
            session = headers.get(b"mcp-session-id", b"").decode("latin-1")
            limited = replace(caller, session=session) if self._has_session(session) else caller
        set_json_caller(limited.id)
        count = partial(self._count_request, limited.id, caller.principal.requests_per_second)
        await _within_rate_limit(count)
        return replace(caller, count_request=count), limited.id

    def _identify(self, headers: Mapping[bytes, bytes], scope: Scope, browser_caller: BrowserCaller | None) -> Caller:
        self._check_origin(headers, scope["path"])
        if b"authorization" not in headers and browser_caller is not None:
            found = browser_caller(headers, scope)
            if found is not None:
                self._warn_of_clear_text(scope)
                return replace(found, address=_address(scope))
        scheme, _, key = headers.get(b"authorization", b"").decode("utf-8", "replace").partition(" ")
        presented = key.strip() if scheme.lower() == "bearer" and key.strip() else None
        if presented:
            self._warn_of_clear_text(scope)
        principal = self._authenticator.identify(presented)
        if principal is None:
            problem = ', error="invalid_token"' if presented else ""
            challenge = {"www-authenticate": f'Bearer realm="armarium"{problem}'}
            raise HttpError(401, "a valid bearer key is required", challenge, reason="UNAUTHORIZED")
        return Caller(principal, "http", credential=presented, address=_address(scope))

    def _warn_of_clear_text(self, scope: Scope) -> None:
        if self._warned_of_clear_text or not is_clear_text(scope):
            return
        self._warned_of_clear_text = True
        _log.warning(
            "a key came in clear text from another machine; set server.tls, or trusted_proxies behind a TLS proxy",
            extra={"client": _address(scope)},
        )

    def _check_origin(self, headers: Mapping[bytes, bytes], path: str) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        # A page that rebinds its own name to 127.0.0.1 still sends that name as Host.
        if not self._allowed_hosts.allow(host):
            message = "this server does not answer to this host name; add it to `server.allowed_hosts`"
            raise HttpError(403, message, reason=_FORBIDDEN_ORIGIN)
        origin = headers.get(b"origin")
        if origin is None:
            return
        name = origin.decode("latin-1").rstrip("/").lower()
        # Any name may point to this server. A page that rebinds its own name has no session, and without keys it would
        # need none.
        is_trusted = self._allowed_hosts.names_this_server(host) or (
            self._browsers is not None and not self._authenticator.is_open and path.startswith(_PATHS_OF_PAGES)
        )
        is_own = is_trusted and name in (f"http://{host}", f"https://{host}")
        if not is_own and not self.allowed_origins.allow(name):
            raise HttpError(403, "this origin is not allowed; add it to `allowed_origins`", reason=_FORBIDDEN_ORIGIN)

    async def _count_request(self, limit_key: str, own_rate: float | None) -> None:
        """Delay a caller that sends too fast, or raise `TooManyCalls`. A key can have a rate of its own."""
        limit = self._rate_limit
        if own_rate is not None:
            limit = self._own_rate_limits.get(own_rate)
            if limit is None:
                limit = RateLimit(own_rate, math.ceil(own_rate * _BURST_S), TooManyCalls)
                self._own_rate_limits[own_rate] = limit
        if limit is None:
            return
        if wait_s := limit.reserve(limit_key, _MAX_RATE_DELAY_S):
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


async def _within_rate_limit(count: Callable[[], Awaitable[None]]) -> None:
    try:
        await count()
    except TooManyCalls as error:
        wait_ms: int = error.details["retry_after_ms"]
        raise HttpError(
            429,
            "too many requests",
            {"retry-after": str(math.ceil(wait_ms / 1000))},
            reason="RATE_LIMITED",
            details={"retry_after_ms": wait_ms},
            retryable=True,
        ) from None


def _address(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


def request_headers(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request. Those that identify the caller were not repeated (`UniqueHeaders`)."""
    return dict(scope["headers"])
