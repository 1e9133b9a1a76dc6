"""Tokens that callers lend: in memory only, one per caller and server or for one of the caller's sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.security.identity import Principal

_MAX_TOKENS: Final = 10_000
_MAX_TOKENS_OF_CALLER: Final = 500

_Key = tuple[Principal, str, str | None]
"""The caller, the server and, for a token of one session only, the session."""


@dataclass(frozen=True, slots=True)
class LentToken:
    kind: str
    """The secret parameter that carries it."""
    token: str = field(repr=False)
    expires_at: float
    """In time of the monotonic clock."""


class LentTokens:
    """The tokens by caller, server and session. A token of a session precedes one for all sessions."""

    def __init__(self, *, max_ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_ttl_s = max_ttl_s
        self._clock = clock
        self._tokens: dict[_Key, LentToken] = {}
        self._transports: Mapping[str, object] = {}

    def store(
        self,
        principal: Principal,
        server: str,
        kind: str,
        token: str,
        ttl_s: float | None = None,
        *,
        session: str | None = None,
    ) -> float:
        """Store a token in place of the previous one. Returns its time to live in seconds."""
        if kind not in SECRET_PARAMETERS:
            raise InvalidArgument(f"`kind` must be one of {', '.join(SECRET_PARAMETERS)}", field="kind")
        self._remove_expired()
        if (principal, server, session) not in self._tokens:
            # A caller can name any number of sessions. That must not remove the tokens of others.
            self._make_room([key for key in self._tokens if key[0] == principal], _MAX_TOKENS_OF_CALLER)
            self._make_room(list(self._tokens), _MAX_TOKENS)
        actual_ttl_s = min(ttl_s or self._max_ttl_s, self._max_ttl_s)
        self._tokens[principal, server, session] = LentToken(kind, token, self._clock() + actual_ttl_s)
        return actual_ttl_s

    def _make_room(self, keys: list[_Key], most: int) -> None:
        if len(keys) >= most:
            del self._tokens[min(keys, key=lambda key: self._tokens[key].expires_at)]

    def remove(self, principal: Principal, server: str, session: str | None = None) -> bool:
        """Remove a token. Returns whether there was one."""
        self._remove_expired()
        return self._tokens.pop((principal, server, session), None) is not None

    def of(self, principal: Principal) -> Iterator[tuple[str, str | None, str, float]]:
        """The tokens of a caller: server, session, kind, and the seconds until each expires."""
        now = self._clock()
        for (owner, server, session), lent in self._tokens.items():
            if owner == principal and lent.expires_at > now:
                yield server, session, lent.kind, lent.expires_at - now

    def update_servers(self, transports: Mapping[str, object]) -> None:
        """Remove the tokens of servers that are gone or whose transport changed: the old name may now belong to another
        server, which must not receive them."""
        before, self._transports = self._transports, transports
        for key in [key for key in self._tokens if before.get(key[1]) != transports.get(key[1])]:
            del self._tokens[key]

    def scope(self, principal: Principal, server: str, session: str | None) -> str | None:
        """The session, if it has a token of its own; else None."""
        return session if session is not None and self._current((principal, server, session)) else None

    def secrets(self, principal: Principal, server: str, session: str | None = None) -> dict[str, str]:
        """The token by its parameter name; empty if there is none."""
        lent = self._current((principal, server, self.scope(principal, server, session)))
        return {lent.kind: lent.token} if lent is not None else {}

    def _current(self, key: _Key) -> LentToken | None:
        lent = self._tokens.get(key)
        if lent is not None and lent.expires_at <= self._clock():
            del self._tokens[key]
            return None
        return lent

    def _remove_expired(self) -> None:
        now = self._clock()
        for key in [key for key, lent in self._tokens.items() if lent.expires_at <= now]:
            del self._tokens[key]
