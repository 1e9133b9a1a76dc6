"""Tokens that callers lend us for their session: in memory alone, one for each caller and server, until they expire."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from armarium.capabilities.gateway.secret_parameters import SENSITIVE
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.identity import Principal

_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Connection:
    """A token, and until when it is kept."""

    kind: str
    """Which of the sensitive parameters it is given as."""
    token: str = field(repr=False)
    expires_at: float
    """By the monotonic clock."""


class Connections:
    """Who has lent which token for which server."""

    def __init__(self, *, longest_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._longest_s = longest_s
        self._clock = clock
        self._kept: dict[tuple[Principal, str], Connection] = {}
        self._reached: Mapping[str, object] = {}

    def keep(self, principal: Principal, server: str, kind: str, token: str, ttl_s: float | None = None) -> float:
        """Keep a token, in the place of the one before; how many seconds for."""
        if kind not in SENSITIVE:
            raise InvalidArgument(f"`kind` must be one of {', '.join(SENSITIVE)}", field="kind")
        self._forget_expired()
        if len(self._kept) >= _MOST and (principal, server) not in self._kept:
            # The one that would be the first to go anyway.
            del self._kept[min(self._kept, key=lambda key: self._kept[key].expires_at)]
        kept_s = min(ttl_s or self._longest_s, self._longest_s)
        self._kept[principal, server] = Connection(kind, token, self._clock() + kept_s)
        return kept_s

    def forget(self, principal: Principal, server: str) -> bool:
        """Let go of a token; whether there was one."""
        self._forget_expired()
        return self._kept.pop((principal, server), None) is not None

    def follow(self, reached: Mapping[str, object]) -> None:
        """Hear how each server is reached now, by name, and let go of the tokens for those that are gone or are reached
        another way: behind an old name there may be somebody new, whom nobody lent anything."""
        before, self._reached = self._reached, reached
        for key in [(who, server) for who, server in self._kept if before.get(server) != reached.get(server)]:
            del self._kept[key]

    def secrets(self, principal: Principal, server: str) -> dict[str, str]:
        """The token as the parameter it is given as; nothing where none is kept."""
        connection = self._kept.get((principal, server))
        if connection is None:
            return {}
        if connection.expires_at <= self._clock():
            del self._kept[principal, server]
            return {}
        return {connection.kind: connection.token}

    def _forget_expired(self) -> None:
        now = self._clock()
        for key in [key for key, connection in self._kept.items() if connection.expires_at <= now]:
            del self._kept[key]
