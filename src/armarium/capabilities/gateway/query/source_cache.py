"""Caches the sources that each server listed for a caller or refused, and recent lookups that failed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import Resource, ResourceList
from armarium.capabilities.gateway.tokens.secret_selector import CacheOwner

_MAX_ENTRIES: Final = 2_000
_MISS_TTL_S: Final = 5.0
"""How long a failed lookup is cached. Most unknown ids are misspelled."""
_REFUSED_TTL_S: Final = 3600.0
"""How long a refusal is remembered. The server may have changed its mind since."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    spec: ServerSpec
    value: T
    expires_at: float


_Entries = OrderedDict[tuple[CacheOwner, str], _Entry[T]]


class SourceCache:
    """Listings by caller and server. A change of the server's entry invalidates them."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._listings: _Entries[Mapping[str, Resource]] = OrderedDict()
        self._misses: _Entries[GatewayError | None] = OrderedDict()
        self._refused: _Entries[frozenset[str]] = OrderedDict()

    def get(self, owner: CacheOwner, spec: ServerSpec) -> Mapping[str, Resource] | None:
        """The cached sources by id; None if they must be fetched."""
        listing = self._current(self._listings, owner, spec)
        return listing.value if listing is not None else None

    def had(self, owner: CacheOwner, spec: ServerSpec, source_id: str) -> bool:
        """Whether the last listing contained the source, even if it has expired."""
        listing = self._listings.get((owner, spec.name))
        return listing is not None and listing.spec == spec and source_id in listing.value

    def store(self, owner: CacheOwner, spec: ServerSpec, listing: ResourceList) -> None:
        self._put(self._listings, owner, spec, listing.by_id, self._ttl_s)

    def record_miss(self, owner: CacheOwner, spec: ServerSpec, failure: GatewayError | None = None) -> None:
        """Cache that a server has no such source, or did not respond."""
        self._put(self._misses, owner, spec, failure, _MISS_TTL_S)

    def has_recent_miss(self, owner: CacheOwner, spec: ServerSpec) -> bool:
        return self._current(self._misses, owner, spec) is not None

    def recent_failure(self, owner: CacheOwner, spec: ServerSpec) -> GatewayError | None:
        """Why the server did not respond to a recent lookup; None if it did, or if there was none."""
        miss = self._current(self._misses, owner, spec)
        return miss.value if miss is not None else None

    def record_access(self, owner: CacheOwner, spec: ServerSpec, refused: Set[str], searched: Set[str]) -> None:
        """Remember the sources that a caller was refused, except those searched since."""
        before = self.refused(owner, spec)
        if (now := (before - searched) | refused) != before:
            self._put(self._refused, owner, spec, now, _REFUSED_TTL_S)

    def refused(self, owner: CacheOwner, spec: ServerSpec) -> frozenset[str]:
        """The ids of the sources that the caller was refused."""
        entry = self._current(self._refused, owner, spec)
        return entry.value if entry is not None else frozenset()

    def remove(self, owner: CacheOwner, server: str) -> None:
        """Invalidate the entries of a caller, whose rights at the server may have changed."""
        for entries in (self._listings, self._misses, self._refused):
            entries.pop((owner, server), None)

    def _current(self, entries: _Entries[T], owner: CacheOwner, spec: ServerSpec) -> _Entry[T] | None:
        entry = entries.get((owner, spec.name))
        return entry if entry is not None and entry.expires_at > self._clock() and entry.spec == spec else None

    def _put(self, entries: _Entries[T], owner: CacheOwner, spec: ServerSpec, value: T, ttl_s: float) -> None:
        entries[owner, spec.name] = _Entry(spec, value, self._clock() + ttl_s)
        entries.move_to_end((owner, spec.name))
        while len(entries) > _MAX_ENTRIES:
            entries.popitem(last=False)
