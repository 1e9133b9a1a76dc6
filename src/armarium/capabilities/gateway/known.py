"""What servers lately told each caller of their sources, so that not every search has to ask again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from armarium.capabilities.gateway.model import Listing, Resource
from armarium.capabilities.gateway.server_files import ServerSpec
from armarium.foundation.identity import Principal

_MOST: Final = 2_000


@dataclass(frozen=True, slots=True)
class _Told:
    spec: ServerSpec
    resources: Mapping[str, Resource]
    until: float


class KnownResources:
    """By caller and server. A server whose entry changed has told nothing yet."""

    def __init__(self, *, kept_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept_s = kept_s
        self._clock = clock
        self._told: OrderedDict[tuple[Principal, str], _Told] = OrderedDict()

    def get(self, principal: Principal, spec: ServerSpec) -> Mapping[str, Resource] | None:
        """What is still to be relied on; None when the server has to be asked."""
        told = self._told.get((principal, spec.name))
        if told is None or told.until <= self._clock() or told.spec != spec:
            return None
        return told.resources

    def had(self, principal: Principal, spec: ServerSpec, source_id: str) -> bool:
        """Whether the server told of such a source when it was last asked, however long ago."""
        told = self._told.get((principal, spec.name))
        return told is not None and told.spec == spec and source_id in told.resources

    def learn(self, principal: Principal, spec: ServerSpec, listing: Listing) -> Mapping[str, Resource]:
        """Remember everything that a server told."""
        resources = {resource.id: resource for resource in listing.resources}
        self._told[principal, spec.name] = _Told(spec, resources, self._clock() + self._kept_s)
        self._told.move_to_end((principal, spec.name))
        while len(self._told) > _MOST:
            self._told.popitem(last=False)
        return resources

    def forget(self, principal: Principal, server: str) -> None:
        """Ask again: the caller is somebody else to the server now."""
        self._told.pop((principal, server), None)
