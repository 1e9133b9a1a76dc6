"""The built-in server `armarium`: the corpus, and the caller's projects in the store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

import anyio

from armarium.capabilities.gateway.arguments import DiscoveryFilters, active_filters, source_filters
from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER, ServerSpec, UiHints
from armarium.capabilities.gateway.errors import GatewayError, InvalidSource, UpstreamBusy, UpstreamUnavailable
from armarium.capabilities.gateway.model import RagHit, RagHits, RagQuery, Resource, ResourceList, Secrets
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call
from armarium.retrieval.sources import Collection, SearchSource, SourceHit, SourceHits, Sources

_RATE_LIMITED = "RATE_LIMITED"
"""The store's error code."""


class BuiltInServer:
    """Visible to all callers; its sources depend on the caller."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.spec = ServerSpec(
            BUILT_IN_SERVER,
            "rag",
            description="Sources of this server: the indexed directory, and your own projects",
            ui=UiHints(icon="archive", order=-1, displayName="Armarium", defaultSelected=True),
        )

    async def discover(self, call: Call, filters: DiscoveryFilters, secrets: Secrets) -> ResourceList:
        """The sources that this caller may search. They have no tags."""
        if filters.tags:
            return ResourceList([])
        resources: list[Resource] = []
        for source in self._sources.all:
            try:
                found = await source.collections(call)
            except ArmariumError as error:
                raise _convert_error(source, error) from error
            resources += [_resource(source, collection) for collection in found]
        return ResourceList(resources)

    async def search(self, call: Call, query: RagQuery, sources: Sequence[str], secrets: Secrets) -> RagHits:
        """Search collections and interleave their hits, since scores of collections are not comparable."""
        filters = source_filters(query.filters)
        found: dict[str, SourceHits] = {}
        failures: dict[str, GatewayError] = {}

        async def ask(collection: str) -> None:
            source = self._sources.of(collection)
            if source is None:
                failures[collection] = InvalidSource("there is no such source")
                return
            try:
                found[collection] = await source.search(call, collection, query.query, query.top_k, filters)
            except ArmariumError as error:
                failures[collection] = _convert_error(source, error)

        async with anyio.create_task_group() as tasks:
            for collection in sources:
                tasks.start_soon(ask, collection)
        ranked = [[to_rag_hit(hit, each) for hit in found[each].hits] for each in sources if each in found]
        # The first hit of each collection, then the second of each, and so on.
        interleaved = [hit for place in zip_longest(*ranked) for hit in place if hit is not None]
        return RagHits(
            interleaved[: query.top_k],
            failed=failures,
            unmet_filters=unmet_filters(query.filters, found.values()),
            incomplete={each: reason for each in found if (reason := found[each].incomplete) is not None},
        )

    async def synthesize(self, call: Call, query: RagQuery, sources: Sequence[str], secrets: Secrets) -> None:
        """None: the gateway writes the answers, since it has the hits of all servers."""


def _convert_error(source: SearchSource, error: ArmariumError) -> GatewayError:
    if error.code == _RATE_LIMITED:
        return UpstreamBusy(f"the {source.kind} is rate limited", hint=error.hint)
    return UpstreamUnavailable(f"the {source.kind} failed: {error.message}", hint=error.hint)


def _resource(source: SearchSource, collection: Collection) -> Resource:
    return Resource(
        id=collection.id,
        name=collection.name,
        source_type=source.kind,
        source_id=collection.name,
        last_indexed=collection.last_indexed,
        docs=collection.documents,
        chunks=collection.chunks,
        incomplete=collection.incomplete,
    )


def unmet_filters(filters: Json | None, found: Iterable[SourceHits]) -> list[str]:
    """The contract's names of the filters that one of the sources cannot evaluate."""
    unmet = {name for result in found for name in result.unmet_filters}
    return [name for name in active_filters(filters) if name in unmet]


def to_rag_hit(hit: SourceHit, resource_id: str) -> RagHit:
    """A hit of a local source in the gateway's format."""
    return RagHit(
        id=hit.id,
        score=hit.score,
        resource_id=resource_id,
        snippet=hit.snippet,
        chunk=hit.text,
        title=hit.title,
        uri=hit.uri,
        provenance={"citation": hit.citation, **hit.provenance},
        timestamp=None if hit.modified is None else hit.modified.isoformat(),
        is_code=hit.is_code,
    )
