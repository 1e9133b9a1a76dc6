"""Tokens that callers lend for a session: in memory only, one per caller and server, until they expire."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.identity import Principal

_MAX_TOKENS: Final = 10_000


@dataclass(frozen=True, slots=True)
class LentToken:
    kind: str
    """The secret parameter that carries it."""
    token: str = field(repr=False)
    expires_at: float
    """In time of the monotonic clock."""


class LentTokens:
    """The tokens by caller and server."""

    def __init__(self, *, max_ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_ttl_s = max_ttl_s
        self._clock = clock
        self._tokens: dict[tuple[Principal, str], LentToken] = {}
        self._transports: Mapping[str, object] = {}

    def store(self, principal: Principal, server: str, kind: str, token: str, ttl_s: float | None = None) -> float:
        """Store a token in place of the previous one. Returns its time to live in seconds."""
        if kind not in SECRET_PARAMETERS:
            raise InvalidArgument(f"`kind` must be one of {', '.join(SECRET_PARAMETERS)}", field="kind")
        self._remove_expired()
        if len(self._tokens) >= _MAX_TOKENS and (principal, server) not in self._tokens:
            del self._tokens[min(self._tokens, key=lambda key: self._tokens[key].expires_at)]
        actual_ttl_s = min(ttl_s or self._max_ttl_s, self._max_ttl_s)
        self._tokens[principal, server] = LentToken(kind, token, self._clock() + actual_ttl_s)
        return actual_ttl_s

    def remove(self, principal: Principal, server: str) -> bool:
        """Remove a token. Returns whether there was one."""
        self._remove_expired()
        return self._tokens.pop((principal, server), None) is not None

    def update_servers(self, transports: Mapping[str, object]) -> None:
        """Remove the tokens of servers that are gone or whose transport changed: the old name may now belong to another
        server, which must not receive them."""
        before, self._transports = self._transports, transports
        for key in [(who, server) for who, server in self._tokens if before.get(server) != transports.get(server)]:
            del self._tokens[key]

    def secrets(self, principal: Principal, server: str) -> dict[str, str]:
        """The token by its parameter name; empty if there is none."""
        lent = self._tokens.get((principal, server))
        if lent is None:
            return {}
        if lent.expires_at <= self._clock():
            del self._tokens[principal, server]
            return {}
        return {lent.kind: lent.token}

    def _remove_expired(self) -> None:
        now = self._clock()
        for key in [key for key, lent in self._tokens.items() if lent.expires_at <= now]:
            del self._tokens[key]
