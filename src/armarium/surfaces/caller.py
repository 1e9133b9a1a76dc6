"""Identifies who makes a call, and through which surface."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from armarium.foundation.security.identity import ANYONE, Principal

CONSOLE = "console"
"""The surface of calls that the session of a browser makes."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The verified principal of a call, and the surface, session and address it comes through."""

    principal: Principal
    surface: str
    session: str | None = None
    credential: str | None = field(default=None, repr=False)
    address: str | None = None
    """The network address of the client."""
    count_request: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)
    """Counts one more request against the caller's rate limit: waits, or raises `TooManyCalls`. None: unlimited."""

    @property
    def id(self) -> str:
        """The key for limits: the caller's API key. Without keys it is the session or, before there is one, the
        address. A process that connects over stdio is one caller."""
        if self.principal is not ANYONE:
            return self.principal.apikey_hash
        return f"session {self.session}" if self.session is not None else f"address {self.address}"
