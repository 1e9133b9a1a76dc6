"""Searches the selected sources of all servers concurrently and merges their hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.model import RagHit, RagHits, RagQuery, Secrets
from armarium.capabilities.gateway.query.discovery import in_display_order
from armarium.capabilities.gateway.query.fan_out import Job, ask_all
from armarium.capabilities.gateway.query.rank_fusion import MergedHit, fuse, rerank
from armarium.capabilities.gateway.query.source_resolution import Resolution, ServerSelection, SourceError
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call
from armarium.providers.interfaces import Reranker


@dataclass(frozen=True, slots=True)
class RerankPolicy:
    """A reranker, with the number of hits it reorders and its timeout."""

    reranker: Reranker
    candidates: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The merged hits of all servers."""

    hits: Sequence[MergedHit]
    errors: Sequence[SourceError]
    """The sources that could not be searched, and why."""
    per_server: Mapping[str, Json]
    total_found: int
    reranked: bool = False


class SourceSearch:
    """Searches servers."""

    def __init__(
        self, secret_selector: SecretSelector, *, call_s: float, rerank_policy: RerankPolicy | None = None
    ) -> None:
        self._secret_selector = secret_selector
        self._call_s = call_s
        self._rerank_policy = rerank_policy

    async def search(self, call: Call, query: RagQuery, resolution: Resolution, given: Secrets) -> SearchOutcome:
        """The best hits of all servers, and the sources that failed."""
        jobs = {
            name: Job(
                lambda selection=selection: self._ask(call, query, selection, given),
                selection.server.spec.timeouts.call_s or self._call_s,
            )
            for name, selection in resolution.selections.items()
        }
        result = await ask_all(jobs)
        shown = [
            server.spec.name
            for server in in_display_order(selection.server for selection in resolution.selections.values())
        ]
        lists = {name: result.answered[name].hits for name in shown if name in result.answered}
        best, is_reranked = await self._rerank(query, fuse(lists))
        errors = [*resolution.errors]
        for name, error in result.failed.items():
            errors += [SourceError(asked, name, error) for asked in resolution.selections[name].asked.values()]
        for name, hits in result.answered.items():
            asked = resolution.selections[name].asked
            errors += [SourceError(asked[source], name, error) for source, error in hits.failed.items()]
        per_server = {name: _summary(result.answered.get(name), result.elapsed_ms[name]) for name in shown}
        total = sum(hits.total_found or len(hits.hits) for hits in result.answered.values())
        return SearchOutcome(best[: query.top_k], errors, per_server, total, is_reranked)

    async def _ask(self, call: Call, query: RagQuery, selection: ServerSelection, given: Secrets) -> RagHits:
        name = selection.server.spec.name
        secrets = self._secret_selector.for_sources(call.principal, name, selection.resources.values(), given)
        with self._secret_selector.in_use(call.principal, name, secrets):
            return await selection.server.search(call, query, list(selection.resources), secrets)

    async def _rerank(self, query: RagQuery, hits: list[MergedHit]) -> tuple[list[MergedHit], bool]:
        policy = self._rerank_policy
        if policy is None or not (query.ranking or {}).get("rerank"):
            return hits, False
        return await rerank(
            policy.reranker, query.query, hits, candidates=policy.candidates, timeout_s=policy.timeout_s
        )


def _summary(hits: RagHits | None, elapsed_ms: float) -> Json:
    if hits is None:
        return {"hits": 0, "elapsed_ms": elapsed_ms}
    summary: Json = {"hits": len(hits.hits), "elapsed_ms": elapsed_ms}
    more = {"dropped": hits.dropped, "unmet_filters": list(hits.unmet_filters)}
    return summary | {name: value for name, value in more.items() if value}


def hit_as_json(merged_hit: MergedHit) -> Json:
    """A hit in the contract's format, with its server."""
    hit = merged_hit.hit
    return hit_fields(hit) | {
        "score": merged_hit.score,
        "resourceId": f"{merged_hit.server}:{hit.resource_id}",
        "server": merged_hit.server,
        "serverRank": merged_hit.rank,
        "serverScore": hit.score,
    }


def hit_fields(hit: RagHit) -> Json:
    """A hit in the contract's format, with the server's own ids and score."""
    described: Json = {
        "id": hit.id,
        "score": hit.score,
        "snippet": hit.snippet,
        "chunk": hit.chunk,
        "title": hit.title,
        "uri": hit.uri,
        "resourceId": hit.resource_id,
        "sourceId": hit.source_id,
        "provenance": hit.provenance,
        "timestamp": hit.timestamp,
    }
    return {name: value for name, value in described.items() if value is not None}
