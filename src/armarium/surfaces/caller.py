"""Who calls, and through what; the same for every surface."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from armarium.foundation.identity import ANYONE, Principal


class Delivery:
    """An answer on its way, for a surface that knows itself when it was sent or given up."""

    def __init__(self) -> None:
        self._at_end: list[Callable[[], None]] = []
        self._is_over = False

    def at_end(self, release: Callable[[], None]) -> None:
        """Call this when the delivery is over, or now if it is."""
        if self._is_over:
            release()
        else:
            self._at_end.append(release)

    def close(self) -> None:
        """The answer was sent, or nobody waits for it any more."""
        self._is_over = True
        for release in self._at_end:
            release()
        self._at_end.clear()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and through what."""

    principal: Principal
    surface: str
    session: str | None = None
    credential: str | None = field(default=None, repr=False)
    address: str | None = None
    """Where the connection comes from."""
    delivery: Delivery | None = field(default=None, repr=False, compare=False)
    """What large answers count against until they are sent, where they cannot be packed."""

    @property
    def id(self) -> str:
        """Identifies the caller for limits: by the key; without keys by the session or, before there is one, by the
        address. A process that speaks over stdio is one caller."""
        if self.principal is not ANYONE:
            return self.principal.apikey_hash
        return f"session {self.session}" if self.session is not None else f"address {self.address}"
