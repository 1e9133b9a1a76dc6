"""`POST /api/session`: a browser shows a key or the code of a link, and gets the cookie and the proof of a session."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import anyio.to_thread
import orjson
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from armarium.foundation.errors import ArmariumError, TooManyCalls
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import ANYONE, Authenticator, Principal
from armarium.surfaces.caller import CONSOLE, Caller
from armarium.surfaces.console.links import KeyLinks, OwnerLinks
from armarium.surfaces.console.sessions import ConsoleSessions, Identity, require_own_page, set_cookie
from armarium.surfaces.console.tools import LOG_IN
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate, request_headers
from armarium.surfaces.http.responses import HttpError, respond
from armarium.surfaces.json.text import dumps
from armarium.surfaces.web.endpoint import headers_of, status_of

PATH: Final = "/api/session"

_MAX_FAILURES = 10
_FAILURES_WITHIN_S = 60.0
_MAX_ADDRESSES = 10_000
_MAX_BODY_BYTES = 8192
_WRONG = {
    "key": ("this key is not valid", "copy it again; `armarium up` prints where its token is"),
    "code": ("this link is not valid any more", "create another one: armarium console"),
}


_DESCRIBED: Final[Json] = {"type": "string", "maxLength": 4096}
OPERATION: Final[Json] = {
    "operationId": LOG_IN,
    "summary": "Log in to the console",
    "description": "Takes a key, or the code of a link, and sets the cookie of a session. Requests with the cookie "
    "must send the `proof` of the answer as `X-Armarium-Proof`. After ten wrong attempts within a minute, an address "
    "must wait.",
    "tags": ["console"],
    "parameters": [],
    "security": [],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "oneOf": [
                        {
                            "type": "object",
                            "properties": {name: _DESCRIBED},
                            "required": [name],
                            "additionalProperties": False,
                        }
                        for name in ("key", "code")
                    ]
                }
            }
        },
    },
    "responses": {
        "201": {
            "description": "The session, as `GET /api/session` shows it, with its `proof`.",
            "content": {"application/json": {"schema": {"type": "object", "required": ["proof"]}}},
        },
        "default": {
            "description": "No session was opened; the code says why.",
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [{"$ref": f"#/components/schemas/{each}"} for each in ("console.Error", "Refusal")]
                    }
                }
            },
        },
    },
}


class LogInFailed(ArmariumError):
    """The key or the link is not valid."""

    code, security, http_status = "UNAUTHORIZED", True, 401


class FailedAttempts:
    """Counts wrong keys and links by address, and rejects an address with too many of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._by_address: dict[str, deque[float]] = {}

    def require_few(self, address: str) -> None:
        """Raise `TooManyCalls` after too many failures. A right key does not help then, so guessing is slow."""
        failures, now = self._by_address.get(address, deque()), self._clock()
        while failures and now - failures[0] >= _FAILURES_WITHIN_S:
            failures.popleft()
        if len(failures) >= _MAX_FAILURES:
            wait_s = _FAILURES_WITHIN_S - (now - failures[0])
            raise TooManyCalls(
                "too many wrong attempts", hint="wait a minute", retry_after_ms=max(1, round(wait_s * 1000))
            )

    def add(self, address: str) -> None:
        failures = self._by_address.pop(address, None) or deque(maxlen=_MAX_FAILURES)
        failures.append(self._clock())
        self._by_address[address] = failures
        if len(self._by_address) > _MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]


@dataclass(frozen=True, slots=True)
class LogIn:
    """The endpoint."""

    gate: Gate
    dispatcher: Dispatcher
    authenticator: Authenticator
    sessions: ConsoleSessions
    key_links: KeyLinks
    owner_links: OwnerLinks
    failures: FailedAttempts

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Log in. The response has the session as `GET /api/session` shows it, and its `proof`."""
        require_own_page(request_headers(scope))
        body = await self.gate.admit_stranger(scope, receive, max_body_bytes=_MAX_BODY_BYTES)
        if Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise HttpError(415, "Content-Type must be application/json", {"accept": "application/json"})
        kind, shown = _shown(body)
        stranger = Caller(ANYONE, CONSOLE, address=scope["client"][0] if scope.get("client") else None)
        arguments = {"method": "link" if kind == "code" else "key"}
        try:
            identity = await self._identity(stranger.id, kind, shown)
        except ArmariumError as error:
            outcome = self.dispatcher.reject(stranger, LOG_IN, arguments, error)
            envelope: Json = outcome.result["structuredContent"]
            await respond(send, status_of(error), dumps(envelope), headers_of(error))
            return
        session, secrets = self.sessions.open(identity)
        caller = Caller(identity.principal, CONSOLE, session.id, identity.credential, stranger.address)
        outcome = await self.dispatcher.outcome(caller, LOG_IN, arguments)
        if outcome.error is not None:
            self.sessions.close(session.id)
            raise HttpError(503, "the log-in failed; try again")
        session_description: Json = outcome.result["structuredContent"]
        cookie = set_cookie(scope, secrets.cookie, self.sessions.lifetime_s)
        await respond(send, 201, dumps({**session_description, "proof": secrets.proof}), {"set-cookie": cookie})

    async def _identity(self, address: str, kind: Literal["key", "code"], shown: str) -> Identity:
        self.failures.require_few(address)
        if self.authenticator.is_open:
            raise LogInFailed("this server has no keys", hint="open the console; it needs no log-in")
        identity = await (self._identity_of_code(shown) if kind == "code" else self._identity_of_key(shown))
        if identity is None:
            self.failures.add(address)
            message, hint = _WRONG[kind]
            raise LogInFailed(message, hint=hint)
        return identity

    async def _identity_of_key(self, key: str) -> Identity | None:
        principal = self.authenticator.identify(key) if key else None
        return None if principal is None else self._identity_of(principal, key)

    async def _identity_of_code(self, code: str) -> Identity | None:
        if (found := self.key_links.redeem(code)) is not None:
            identity = self._identity_of(*found)
            return identity if identity.is_valid() else None
        is_owner = await anyio.to_thread.run_sync(partial(self.owner_links.redeem, code))
        return self._identity_of(self.authenticator.owner(), None) if is_owner else None

    def _identity_of(self, principal: Principal, key: str | None) -> Identity:
        """The identity of a caller. It is valid as long as the key is; that of the owner, as long as their token."""
        return Identity(principal, key, lambda: self.authenticator.knows(principal))


def _shown(body: bytes) -> tuple[Literal["key", "code"], str]:
    """What the browser shows, and its kind."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        given = None
    match given:
        case {"key": str(key), **rest} if not rest:
            return "key", key.strip()
        case {"code": str(code), **rest} if not rest:
            return "code", code.strip()
        case _:
            raise HttpError(400, 'send {"key": "…"} or {"code": "…"}')
