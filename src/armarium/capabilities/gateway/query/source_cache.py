"""What servers lately told each caller of their sources, so that not every search has to ask again."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.model import Listing, Resource
from armarium.foundation.identity import Principal

_MOST: Final = 2_000
_PAUSE_S: Final = 5.0
"""So long a server is left in peace that was asked for a source in vain: most such ids are mistyped, and stay so."""


@dataclass(frozen=True, slots=True)
class _Told:
    spec: ServerSpec
    resources: Mapping[str, Resource]
    until: float


@dataclass(frozen=True, slots=True)
class _InVain:
    spec: ServerSpec
    failure: GatewayError | None
    """None: it answered, and has no such source."""
    until: float


class KnownResources:
    """By caller and server. A server whose entry changed has told nothing yet."""

    def __init__(self, *, kept_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._kept_s = kept_s
        self._clock = clock
        self._told: OrderedDict[tuple[Principal, str], _Told] = OrderedDict()
        self._in_vain: OrderedDict[tuple[Principal, str], _InVain] = OrderedDict()

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

    def asked_in_vain(self, principal: Principal, spec: ServerSpec, failure: GatewayError | None = None) -> None:
        """Remember for a moment that a server was just asked, and has no such source or did not answer."""
        self._in_vain[principal, spec.name] = _InVain(spec, failure, self._clock() + _PAUSE_S)
        self._in_vain.move_to_end((principal, spec.name))
        while len(self._in_vain) > _MOST:
            self._in_vain.popitem(last=False)

    def was_asked_in_vain(self, principal: Principal, spec: ServerSpec) -> bool:
        """Whether that was a moment ago."""
        return self._lately_in_vain(principal, spec) is not None

    def lately_failed(self, principal: Principal, spec: ServerSpec) -> GatewayError | None:
        """Why the server did not answer a moment ago; None when it did, or was not asked."""
        lately = self._lately_in_vain(principal, spec)
        return lately.failure if lately is not None else None

    def _lately_in_vain(self, principal: Principal, spec: ServerSpec) -> _InVain | None:
        lately = self._in_vain.get((principal, spec.name))
        return lately if lately is not None and lately.until > self._clock() and lately.spec == spec else None

    def forget(self, principal: Principal, server: str) -> None:
        """Ask again: the caller is somebody else to the server now."""
        self._told.pop((principal, server), None)
        self._in_vain.pop((principal, server), None)
