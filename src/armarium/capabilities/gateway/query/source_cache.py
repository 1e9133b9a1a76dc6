"""Caches the sources that each server listed for a caller, and recent lookups that failed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import Resource, ResourceList
from armarium.foundation.identity import Principal

_MAX_ENTRIES: Final = 2_000
_MISS_TTL_S: Final = 5.0
"""How long a failed lookup is cached. Most unknown ids are misspelled."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    spec: ServerSpec
    value: T
    expires_at: float


_Entries = OrderedDict[tuple[Principal, str], _Entry[T]]


class SourceCache:
    """Listings by caller and server. A change of the server's entry invalidates them."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._listings: _Entries[Mapping[str, Resource]] = OrderedDict()
        self._misses: _Entries[GatewayError | None] = OrderedDict()

    def get(self, principal: Principal, spec: ServerSpec) -> Mapping[str, Resource] | None:
        """The cached sources by id; None if they must be fetched."""
        listing = self._current(self._listings, principal, spec)
        return listing.value if listing is not None else None

    def had(self, principal: Principal, spec: ServerSpec, source_id: str) -> bool:
        """Whether the last listing contained the source, even if it has expired."""
        listing = self._listings.get((principal, spec.name))
        return listing is not None and listing.spec == spec and source_id in listing.value

    def store(self, principal: Principal, spec: ServerSpec, listing: ResourceList) -> None:
        self._put(self._listings, principal, spec, listing.by_id, self._ttl_s)

    def record_miss(self, principal: Principal, spec: ServerSpec, failure: GatewayError | None = None) -> None:
        """Cache that a server has no such source, or did not respond."""
        self._put(self._misses, principal, spec, failure, _MISS_TTL_S)

    def has_recent_miss(self, principal: Principal, spec: ServerSpec) -> bool:
        return self._current(self._misses, principal, spec) is not None

    def recent_failure(self, principal: Principal, spec: ServerSpec) -> GatewayError | None:
        """Why the server did not respond to a recent lookup; None if it did, or if there was none."""
        miss = self._current(self._misses, principal, spec)
        return miss.value if miss is not None else None

    def remove(self, principal: Principal, server: str) -> None:
        """Invalidate the entries of a caller, whose rights at the server may have changed."""
        self._listings.pop((principal, server), None)
        self._misses.pop((principal, server), None)

    def _current(self, entries: _Entries[T], principal: Principal, spec: ServerSpec) -> _Entry[T] | None:
        entry = entries.get((principal, spec.name))
        return entry if entry is not None and entry.expires_at > self._clock() and entry.spec == spec else None

    def _put(self, entries: _Entries[T], principal: Principal, spec: ServerSpec, value: T, ttl_s: float) -> None:
        entries[principal, spec.name] = _Entry(spec, value, self._clock() + ttl_s)
        entries.move_to_end((principal, spec.name))
        while len(entries) > _MAX_ENTRIES:
            entries.popitem(last=False)
