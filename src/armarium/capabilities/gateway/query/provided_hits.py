"""Hits that a caller chose for an answer: which of them may be used in this call, and how a server is told them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.query.rank_fusion import MergedHit
from armarium.capabilities.gateway.query.search import hit_fields
from armarium.capabilities.gateway.query.source_resolution import Resolution
from armarium.capabilities.gateway.servers import response_parser
from armarium.foundation.schema import Json


@dataclass(frozen=True, slots=True)
class Provided:
    """What of a caller's choice is used."""

    hits: Sequence[MergedHit]
    dropped: int
    """Entries that were no hits, or were not of a source that this call is allowed."""

    def for_server(self) -> list[Json]:
        """The hits with the ids that their server has for its sources, and in the contract's fields alone: what else a
        caller wrote beside them could be meant for somebody else."""
        return [hit_fields(each.hit) for each in self.hits]

    def told(self) -> Json:
        """What became of the choice, for `meta_data`."""
        return {"used": len(self.hits), "dropped": self.dropped}


def allowed_among(entries: Sequence[Json], resolution: Resolution) -> Provided:
    """The hits that are of the sources of this call. One that names no source is of the only one there is."""
    homes = _homes(resolution)
    distinct = set(homes.values())
    only = next(iter(distinct)) if len(distinct) == 1 else None
    hits: list[MergedHit] = []
    for place, entry in enumerate(entries):
        named = entry.get("resourceId")
        home = only if named is None else homes.get(named) if isinstance(named, str) else None
        if home is None:
            continue
        server, source_id = home
        hit = response_parser.hit({**entry, "resourceId": source_id}, place)
        if hit is not None:
            hits.append(MergedHit(hit, server, place + 1, hit.score))
    return Provided(hits, len(entries) - len(hits))


def _homes(resolution: Resolution) -> dict[str, tuple[str, str]]:
    """Server and source by the ids that a hit may name them with: `<server>:<id>`, or the id alone where it is said of
    one server only and cannot be read as another server's."""
    homes: dict[str, tuple[str, str]] = {}
    alone = [source_id for chosen in resolution.chosen.values() for source_id in chosen.resources]
    for name, chosen in resolution.chosen.items():
        for source_id in chosen.resources:
            homes[f"{name}:{source_id}"] = (name, source_id)
            if ":" not in source_id and alone.count(source_id) == 1:
                homes[source_id] = (name, source_id)
    return homes
