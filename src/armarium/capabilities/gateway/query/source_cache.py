"""Caches the sources that each server listed for a caller, and recent lookups that failed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import Resource, ResourceList
from armarium.foundation.identity import Principal

_MAX_ENTRIES: Final = 2_000
_MISS_TTL_S: Final = 5.0
"""How long a failed lookup is cached. Most unknown ids are misspelled."""


@dataclass(frozen=True, slots=True)
class _CachedResources:
    spec: ServerSpec
    resources: Mapping[str, Resource]
    expires_at: float


@dataclass(frozen=True, slots=True)
class _CachedMiss:
    spec: ServerSpec
    failure: GatewayError | None
    """None if the server responded but has no such source."""
    expires_at: float


class SourceCache:
    """Listings by caller and server. A change of the server's entry invalidates them."""

    def __init__(self, *, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._listings: OrderedDict[tuple[Principal, str], _CachedResources] = OrderedDict()
        self._misses: OrderedDict[tuple[Principal, str], _CachedMiss] = OrderedDict()

    def get(self, principal: Principal, spec: ServerSpec) -> Mapping[str, Resource] | None:
        """The cached sources by id; None if they must be fetched."""
        listing = self._listings.get((principal, spec.name))
        if listing is None or listing.expires_at <= self._clock() or listing.spec != spec:
            return None
        return listing.resources

    def had(self, principal: Principal, spec: ServerSpec, source_id: str) -> bool:
        """Whether the last listing contained the source, even if it has expired."""
        listing = self._listings.get((principal, spec.name))
        return listing is not None and listing.spec == spec and source_id in listing.resources

    def store(self, principal: Principal, spec: ServerSpec, listing: ResourceList) -> Mapping[str, Resource]:
        """Cache a complete listing. Returns its sources by id."""
        resources = {resource.id: resource for resource in listing.resources}
        cached = _CachedResources(spec, resources, self._clock() + self._ttl_s)
        self._listings[principal, spec.name] = cached
        self._listings.move_to_end((principal, spec.name))
        while len(self._listings) > _MAX_ENTRIES:
            self._listings.popitem(last=False)
        return resources

    def record_miss(self, principal: Principal, spec: ServerSpec, failure: GatewayError | None = None) -> None:
        """Cache that a server has no such source, or did not respond."""
        self._misses[principal, spec.name] = _CachedMiss(spec, failure, self._clock() + _MISS_TTL_S)
        self._misses.move_to_end((principal, spec.name))
        while len(self._misses) > _MAX_ENTRIES:
            self._misses.popitem(last=False)

    def has_recent_miss(self, principal: Principal, spec: ServerSpec) -> bool:
        """Whether a failed lookup is cached."""
        return self._recent_miss(principal, spec) is not None

    def recent_failure(self, principal: Principal, spec: ServerSpec) -> GatewayError | None:
        """Why the server did not respond to a recent lookup; None if it did, or if there was none."""
        miss = self._recent_miss(principal, spec)
        return miss.failure if miss is not None else None

    def remove(self, principal: Principal, server: str) -> None:
        """Invalidate the entries of a caller, whose rights at the server may have changed."""
        self._listings.pop((principal, server), None)
        self._misses.pop((principal, server), None)

    def _recent_miss(self, principal: Principal, spec: ServerSpec) -> _CachedMiss | None:
        miss = self._misses.get((principal, spec.name))
        return miss if miss is not None and miss.expires_at > self._clock() and miss.spec == spec else None
