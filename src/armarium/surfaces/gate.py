"""Who may speak: origin, then bearer, then the size of what is said, then payment, before anything is looked up."""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import orjson
from mcp_types import INVALID_REQUEST, PARSE_ERROR
from starlette.types import Receive, Scope, Send

from armarium.foundation.identity import Authenticator
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Json
from armarium.surfaces.dispatch import Caller
from armarium.surfaces.json_text import NotJson, decoded

_BODY_SILENCE_S = 30.0


_log = logging.getLogger(__name__)

_DENIALS = frozenset({401, 402, 403, 413})
_FORBIDDEN_ORIGIN = "FORBIDDEN_ORIGIN"
_BEARER_PROTOCOL = "bearer."


class Refused(Exception):
    """The request goes no further."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: dict[str, str] | None = None,
        *,
        code: int = INVALID_REQUEST,
        reason: str | None = None,
        details: Json | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}
        self.code = code
        self.reason = reason
        """Stable, for programs: JSON-RPC has one number for everything that is wrong with a request."""
        self.details = details or {}
        """What else programs may want to know; goes with a reason."""


def in_json_rpc(refusal: Refused) -> Json:
    """A refusal in the form JSON-RPC has for a message that was never looked at."""
    error: Json = {"code": refusal.code, "message": refusal.message}
    if refusal.reason is not None:
        error["data"] = {"code": refusal.reason, "retryable": False, **refusal.details}
    return {"jsonrpc": "2.0", "id": None, "error": error}


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that may go on to its session."""

    caller: Caller
    body: bytes
    message: Any
    """The parsed body; None when it is empty."""


PaymentCheck = Callable[[Caller, Json], Awaitable[None]]
"""Raises `Refused(402, …)` when the call in the message has its price and was not paid for."""


class AllowedOrigins:
    """Origins of browser pages that may call. `http://localhost:*` stands for every port, any other for itself."""

    def __init__(self, origins: Iterable[str]) -> None:
        listed = [origin.rstrip("/").lower() for origin in origins]
        self.exact = frozenset(origin for origin in listed if not origin.endswith(":*"))
        bases = [re.escape(origin.removesuffix(":*")) for origin in listed if origin.endswith(":*")]
        self.pattern = rf"({'|'.join(bases)})(:[0-9]{{1,5}})?" if bases else None
        """What those of every port look like; None if there are none."""

    def __bool__(self) -> bool:
        return bool(self.exact) or self.pattern is not None

    def allow(self, origin: str) -> bool:
        """Whether the origin, in lower case, may call."""
        return origin in self.exact or (self.pattern is not None and re.fullmatch(self.pattern, origin) is not None)


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
        payment: PaymentCheck | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._allowed_origins = AllowedOrigins(allowed_origins)
        self._loopback_only = loopback_only
        self._max_body_bytes = max_body_bytes
        self._metrics = metrics
        self._payment = payment

    @property
    def allowed_origins(self) -> AllowedOrigins:
        """Origins of browser pages that may call, besides our own loopback addresses."""
        return self._allowed_origins

    async def admit(self, scope: Scope, receive: Receive) -> Admitted:
        """Let the request in, or raise `Refused`."""
        headers = dict(scope["headers"])
        caller = self._identify(headers)
        body = await self._read_body(headers, receive) if scope["method"] == "POST" else b""
        message = _parsed(body) if body else None
        if isinstance(message, dict):
            await self.check_payment(caller, message)  # pyright: ignore[reportUnknownArgumentType] any JSON object
        return Admitted(caller, body, message)

    async def admit_with_body(self, scope: Scope, receive: Receive) -> tuple[Caller, bytes]:
        """Let a request in whose body, whatever the method, is for others to read; raises `Refused` too. What is to be
        paid for is known only then, and is for `check_payment`."""
        headers = dict(scope["headers"])
        caller = self._identify(headers)
        return caller, await self._read_body(headers, receive)

    def admit_reader(self, scope: Scope) -> Caller:
        """Let a request in that only wants to read something; raises `Refused` too."""
        return self._identify(dict(scope["headers"]))

    def admit_socket(self, scope: Scope) -> Caller:
        """Let in whoever wants to listen over a WebSocket; raises `Refused` too. Pages cannot set its headers, so the
        key may come as a subprotocol, `bearer.<key>`."""
        headers = dict(scope["headers"])
        keys = [each for each in scope["subprotocols"] if each.startswith(_BEARER_PROTOCOL)]
        if keys and b"authorization" not in headers:
            headers[b"authorization"] = f"Bearer {keys[0].removeprefix(_BEARER_PROTOCOL)}".encode()
        return self._identify(headers)

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

    def _identify(self, headers: dict[bytes, bytes]) -> Caller:
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
        return Caller(principal, "http", credential=presented)

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1").lower()
        # A page that rebinds its own name to 127.0.0.1 still sends that name as Host.
        if self._loopback_only and not _names_loopback(host):
            raise Refused(403, "this server answers on loopback addresses only", reason=_FORBIDDEN_ORIGIN)
        origin = headers.get(b"origin")
        if origin is None:
            return
        name = origin.decode("latin-1").rstrip("/").lower()
        if self._allowed_origins.allow(name):
            return
        if name in (f"http://{host}", f"https://{host}") and _names_loopback(host):
            return
        raise Refused(403, "this origin is not allowed; add it to `allowed_origins`", reason=_FORBIDDEN_ORIGIN)

    async def _read_body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > self._max_body_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                with anyio.fail_after(_BODY_SILENCE_S):
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

    def _too_large(self) -> Refused:
        return Refused(413, f"the request body is larger than {self._max_body_bytes} bytes")


def _names_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _parsed(body: bytes) -> Any:
    try:
        return decoded(body)
    except NotJson:
        raise Refused(400, "the body is not valid JSON", code=PARSE_ERROR) from None


async def respond(send: Send, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
    """Send a whole response; a body is JSON unless the headers say otherwise."""
    lines = {"content-length": str(len(body))}
    if body:
        lines["content-type"] = "application/json"
    lines |= headers or {}
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
