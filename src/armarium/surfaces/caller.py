"""Who calls, and through what; the same for every surface."""

from __future__ import annotations

from dataclasses import dataclass, field

from armarium.foundation.identity import ANYONE, Principal


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and through what."""

    principal: Principal
    surface: str
    session: str | None = None
    credential: str | None = field(default=None, repr=False)
    address: str | None = None
    """Where the connection comes from."""

    @property
    def id(self) -> str:
        """Identifies the caller for limits: by the key; without keys by the session or, before there is one, by the
        address. A process that speaks over stdio is one caller."""
        if self.principal is not ANYONE:
            return self.principal.apikey_hash
        return f"session {self.session}" if self.session is not None else f"address {self.address}"
