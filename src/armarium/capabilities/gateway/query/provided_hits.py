"""Hits that a caller selected for an answer, restricted to the sources of the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.query.rank_fusion import MergedHit
from armarium.capabilities.gateway.query.search import hit_fields
from armarium.capabilities.gateway.query.source_resolution import Resolution
from armarium.capabilities.gateway.servers import response_parser
from armarium.foundation.schema import Json


@dataclass(frozen=True, slots=True)
class ProvidedHits:
    """The usable hits of a caller's selection."""

    hits: Sequence[MergedHit]
    dropped: int
    """Number of entries that were invalid or from other sources."""

    def for_server(self) -> list[Json]:
        """The hits with the server's own ids and only the contract's fields, since others may be for another server."""
        return [hit_fields(each.hit) for each in self.hits]

    def summary(self) -> Json:
        """The numbers of used and dropped hits, for `meta_data`."""
        return {"used": len(self.hits), "dropped": self.dropped}


def select_provided_hits(entries: Sequence[Json], resolution: Resolution) -> ProvidedHits:
    """The hits from the sources of this call. A hit without a source belongs to the only source, if there is one."""
    origins = _origins(resolution)
    distinct = set(origins.values())
    only = next(iter(distinct)) if len(distinct) == 1 else None
    hits: list[MergedHit] = []
    for place, entry in enumerate(entries):
        named = entry.get("resourceId")
        origin = only if named is None else origins.get(named) if isinstance(named, str) else None
        if origin is None:
            continue
        server, source_id = origin
        hit = response_parser.parse_hit({**entry, "resourceId": source_id}, place)
        if hit is not None:
            hits.append(MergedHit(hit, server, place + 1, hit.score))
    return ProvidedHits(hits, len(entries) - len(hits))


def _origins(resolution: Resolution) -> dict[str, tuple[str, str]]:
    """Server and source by each id that a hit may use: `<server>:<id>`, or the id alone if only one of the servers has
    it and it cannot be mistaken for the id of another."""
    origins: dict[str, tuple[str, str]] = {}
    all_ids = [source_id for selection in resolution.selections.values() for source_id in selection.resources]
    for name, selection in resolution.selections.items():
        for source_id in selection.resources:
            origins[f"{name}:{source_id}"] = (name, source_id)
            if ":" not in source_id and all_ids.count(source_id) == 1:
                origins[source_id] = (name, source_id)
    return origins
