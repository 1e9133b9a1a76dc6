"""Sessions of browsers that have logged in to the console.

A session has two secrets. The cookie is sent by the browser, also to other ports of this machine and on requests of
their pages. The proof is known only to pages of our own origin, port included, which send it in a header. A request
needs both, so neither a stolen cookie nor a forged request is of any use (decision 0098).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import anyio
from starlette.types import Scope

from armarium.foundation.security.identity import Principal
from armarium.foundation.settings.model import ConsoleSettings
from armarium.surfaces.caller import CONSOLE, Caller
from armarium.surfaces.http.responses import HttpError

_API = "/api/"
_PROOF_HEADER = b"x-armarium-proof"
_SECRET_BYTES = 32
_MAX_SESSIONS = 1000
_MAX_SESSIONS_PER_PRINCIPAL = 20
_OWN_PAGES = frozenset({b"same-origin", b"none"})


@dataclass(frozen=True, slots=True)
class Identity:
    """As whom a browser is logged in."""

    principal: Principal
    credential: str | None = field(default=None, repr=False)
    """The key with which the caller logged in, if it was a key."""
    is_valid: Callable[[], bool] = lambda: True
    """Whether the key is still valid."""


@dataclass(slots=True)
class Session:
    """One logged-in browser."""

    id: str
    """Names the session in the audit log. It is not secret."""
    identity: Identity
    proof_hash: str
    opened_at: float
    used_at: float
    closed: anyio.Event = field(default_factory=anyio.Event)
    """Set when the session is closed before its time."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets of a new session. The server has only their hashes."""

    cookie: str = field(repr=False)
    proof: str = field(repr=False)


class ConsoleSessions:
    """All open sessions. They are kept in memory, because a session may hold the key of its caller."""

    def __init__(self, settings: ConsoleSettings, clock: Callable[[], float] = time.time) -> None:
        self._idle_s = settings.inactivity_timeout
        self.lifetime_s = settings.max_lifetime
        """How long a session may last, even if it is in use."""
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        """By the hash of the cookie."""

    def open(self, identity: Identity) -> tuple[Session, Secrets]:
        """Open a session. Its secrets are new, whatever the browser sent."""
        self._make_room(identity.principal)
        created = Secrets(secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_SECRET_BYTES))
        now = self._clock()
        session = Session(secrets.token_hex(8), identity, _hash(created.proof), now, now)
        self._sessions[_hash(created.cookie)] = session
        return session, created

    def caller_of(self, headers: Mapping[bytes, bytes], scope: Scope) -> Caller | None:
        """The caller of a request with a cookie of ours; None without one. Raises `HttpError` if the proof is missing
        or wrong, or the request comes from another page.
        """
        sessions = self._sessions_of(headers, scope)
        if not sessions:
            return None
        proof = _hash(headers.get(_PROOF_HEADER, b"").decode("latin-1"))
        session = next((each for each in sessions if hmac.compare_digest(proof, each.proof_hash)), None)
        if session is None:
            raise HttpError(401, "the cookie of a session does not suffice; log in again", reason="UNAUTHORIZED")
        session.used_at = self._clock()
        return _caller(session)

    def caller_of_element(
        self, headers: Mapping[bytes, bytes], scope: Scope, session_id: str | None = None
    ) -> Caller | None:
        """The same for an element of our page, such as an image, which cannot send the proof. Its address says which
        session it needs."""
        sessions = self._sessions_of(headers, scope)
        session = next((each for each in sessions if each.id == session_id), None)
        return _caller(session or sessions[0]) if sessions else None

    def _sessions_of(self, headers: Mapping[bytes, bytes], scope: Scope) -> list[Session]:
        """The sessions of the cookies in a request of our own page.

        Cookies count for the JSON API only: what speaks MCP has a key.
        """
        if not scope["path"].startswith(_API):
            return []
        # Another port of this machine can set a cookie of the same name, also that of a valid session. It must not log
        # anybody out.
        found = (self._found(_hash(cookie)) for cookie in cookies_of(headers, cookie_name(scope)))
        sessions = [each for each in found if each is not None]
        if sessions:
            require_own_page(headers)
        return sessions

    def is_open(self, session_id: str | None) -> bool:
        """Whether there is such a session, and it has not ended."""
        return self._open(session_id) is not None

    async def wait_until_ended(self, session_id: str | None) -> None:
        """Return when the session has ended: it was closed, its time is over, or both."""
        while (session := self._open(session_id)) is not None:
            ends_at = self._ends_at(session)
            with anyio.move_on_after(None if ends_at is None else ends_at - self._clock()):
                await session.closed.wait()

    def expires_at(self, session_id: str | None) -> float | None:
        """When a session ends unless it is used again."""
        session = self._open(session_id)
        return None if session is None else self._ends_at(session)

    def close(self, session_id: str | None) -> None:
        self._close(key for key, each in self._sessions.items() if each.id == session_id)

    def close_all(self, principal: Principal) -> int:
        """Close all sessions of a caller. Returns their number."""
        return self._close(key for key, each in self._sessions.items() if each.identity.principal == principal)

    def _close(self, keys: Iterable[str]) -> int:
        closed = list(keys)
        for key in closed:
            self._sessions.pop(key).closed.set()
        return len(closed)

    def _open(self, session_id: str | None) -> Session | None:
        key = next((key for key, each in self._sessions.items() if each.id == session_id), None)
        return None if key is None else self._found(key)

    def _found(self, key: str) -> Session | None:
        session = self._sessions.get(key)
        return None if session is None or self._has_ended(session, self._clock()) else session

    def _make_room(self, principal: Principal) -> None:
        """Drop sessions that have ended and, at a limit, the longest unused one: of the caller, or of all."""
        now = self._clock()
        self._close(key for key, each in self._sessions.items() if self._has_ended(each, now))
        by_use = sorted(self._sessions, key=lambda key: self._sessions[key].used_at)
        mine = [key for key in by_use if self._sessions[key].identity.principal == principal]
        if len(mine) >= _MAX_SESSIONS_PER_PRINCIPAL:
            self._close(mine[:1])
        elif len(by_use) >= _MAX_SESSIONS:
            self._close(by_use[:1])

    def _has_ended(self, session: Session, now: float) -> bool:
        ends_at = self._ends_at(session)
        return (ends_at is not None and now >= ends_at) or not session.identity.is_valid()

    def _ends_at(self, session: Session) -> float | None:
        ends: list[float] = []
        if self._idle_s is not None:
            ends.append(session.used_at + self._idle_s)
        if self.lifetime_s is not None:
            ends.append(session.opened_at + self.lifetime_s)
        return min(ends, default=None)


def cookie_name(scope: Scope) -> str:
    """The name of the cookie. Without TLS it contains the port: browsers send a cookie to all ports of a host."""
    if scope["scheme"] == "https":
        return "__Host-armarium"
    return f"armarium_{(scope.get('server') or ('', 0))[1]}"


def set_cookie(scope: Scope, value: str, lifetime_s: float | None) -> str:
    """The header that sets the cookie. Without a lifetime, the browser keeps it until it is closed."""
    lifetime = "" if lifetime_s is None else f"; Max-Age={round(lifetime_s)}"
    secure = "; Secure" if scope["scheme"] == "https" else ""
    return f"{cookie_name(scope)}={value}; Path=/; HttpOnly; SameSite=Strict{lifetime}{secure}"


def cookies_of(headers: Mapping[bytes, bytes], name: str) -> list[str]:
    """The values of the cookies of this name in the request."""
    pairs = (pair.strip().partition("=") for pair in headers.get(b"cookie", b"").decode("latin-1").split(";"))
    return [value for found, _, value in pairs if found == name]


def require_own_page(headers: Mapping[bytes, bytes]) -> None:
    """Raise `HttpError` if a browser says that a page of another origin sends this request."""
    host, origin = headers.get(b"host", b"").lower(), headers.get(b"origin")
    is_own = origin is None or origin.lower() in (b"http://" + host, b"https://" + host)
    if not is_own or headers.get(b"sec-fetch-site", b"none") not in _OWN_PAGES:
        raise HttpError(403, "only pages of the console may use its sessions", reason="FORBIDDEN_ORIGIN")


def _caller(session: Session) -> Caller:
    return Caller(session.identity.principal, CONSOLE, session.id, session.identity.credential)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
