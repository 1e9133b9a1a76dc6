"""What this server keeps itself, as one of the servers: the corpus, and the caller's projects of the store."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from armarium.capabilities.gateway.config.files import BUILT_IN_SERVER, ServerSpec, UiHints
from armarium.capabilities.gateway.errors import GatewayError, UpstreamBusy, UpstreamUnavailable
from armarium.capabilities.gateway.filters import wishes
from armarium.capabilities.gateway.model import (
    DiscoveryFilters,
    Hit,
    Hits,
    Listing,
    Question,
    Resource,
    Secrets,
    ServerAnswer,
    Synthesis,
)
from armarium.capabilities.gateway.refusals import InvalidSource
from armarium.foundation.errors import ArmariumError
from armarium.foundation.tools import Call
from armarium.retrieval.sources import Collection, SearchSource, SourceHit, Sources

_TOO_OFTEN = "RATE_LIMITED"
"""The store's code for it."""


class OwnServer:
    """Everybody may see it; what is in it depends on who asks."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self.spec = ServerSpec(
            BUILT_IN_SERVER,
            "rag",
            description="What this server keeps: the indexed directory, and your own projects",
            ui=UiHints(icon="archive", order=-1, displayName="Armarium", defaultSelected=True),
        )

    async def discover(self, call: Call, filters: DiscoveryFilters, secrets: Secrets) -> Listing:
        """What this caller may search here. Nothing has tags here, so a wish for some finds nothing."""
        if filters.tags:
            return Listing([])
        resources: list[Resource] = []
        for source in self._sources.all:
            try:
                found = await source.collections(call)
            except ArmariumError as error:
                raise _said_by(source, error) from error
            resources += [_resource(source, collection) for collection in found]
        return Listing(resources)

    async def search(self, call: Call, question: Question, sources: Sequence[str], secrets: Secrets) -> Hits:
        """The best of all asked collections, taken in turn: what one scores says nothing about another's. Passages have
        no date, tags or owner here, so a wish for any of these finds nothing."""
        if unmet := wishes(question.filters):
            return Hits([], unmet_filters=unmet)
        found: dict[str, Sequence[SourceHit]] = {}
        failures: dict[str, GatewayError] = {}

        async def ask(collection: str) -> None:
            source = self._sources.of(collection)
            if source is None:
                failures[collection] = InvalidSource("there is no such source here")
                return
            try:
                found[collection] = await source.search(call, collection, question.query, question.top_k)
            except ArmariumError as error:
                failures[collection] = _said_by(source, error)

        async with anyio.create_task_group() as tasks:
            for collection in sources:
                tasks.start_soon(ask, collection)
        ranked = [[as_hit(hit, each) for hit in found[each]] for each in sources if each in found]
        return Hits(_taken_in_turn(ranked)[: question.top_k], failed=failures)

    async def can_synthesize(self) -> bool:
        """Answers are written by the gateway, which has all the hits."""
        return False

    async def synthesize(
        self, call: Call, question: Question, sources: Sequence[str], synthesis: Synthesis, secrets: Secrets
    ) -> ServerAnswer:
        """Never asked: see `can_synthesize`."""
        raise UpstreamUnavailable("this server's own sources are answered from by the gateway")


def _taken_in_turn(ranked: Sequence[Sequence[Hit]]) -> list[Hit]:
    """The first of each, the second of each, and so on."""
    longest = max((len(each) for each in ranked), default=0)
    return [each[place] for place in range(longest) for each in ranked if place < len(each)]


def _said_by(source: SearchSource, error: ArmariumError) -> GatewayError:
    if error.code == _TOO_OFTEN:
        return UpstreamBusy(f"the {source.kind} is asked too often", hint=error.hint)
    return UpstreamUnavailable(f"the {source.kind} cannot answer: {error.message}", hint=error.hint)


def _resource(source: SearchSource, collection: Collection) -> Resource:
    return Resource(
        id=collection.id,
        name=collection.name,
        source_type=source.kind,
        source_id=collection.name,
        last_indexed=collection.last_indexed,
        docs=collection.documents,
        chunks=collection.passages,
    )


def as_hit(hit: SourceHit, resource_id: str) -> Hit:
    """A passage of ours as a hit of the contract, of the resource that its collection is told as."""
    return Hit(
        id=hit.id,
        score=hit.score,
        resource_id=resource_id,
        snippet=hit.snippet,
        chunk=hit.text,
        title=hit.title,
        uri=hit.uri,
        provenance={"citation": hit.citation, **hit.provenance},
        is_code=hit.is_code,
    )
