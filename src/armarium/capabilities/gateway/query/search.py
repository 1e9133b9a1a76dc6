"""Searches the selected sources of all servers concurrently and merges their hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.model import RagHit, RagHits, RagQuery, Secrets
from armarium.capabilities.gateway.query.discovery import in_display_order
from armarium.capabilities.gateway.query.fan_out import ask_all
from armarium.capabilities.gateway.query.rank_fusion import MergedHit, RerankPolicy, fuse, rerank
from armarium.capabilities.gateway.query.source_resolution import Resolution, ServerSelection, SourceError
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call


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
        selections = resolution.selections
        servers = in_display_order(selection.server for selection in selections.values())
        result = await ask_all(
            servers,
            lambda server: self._ask(call, query, selections[server.spec.name], given),
            lambda server: server.spec.timeouts.call_s or self._call_s,
        )
        shown = [server.spec.name for server in servers]
        lists = {name: result.answered[name].hits for name in shown if name in result.answered}
        best, is_reranked = fuse(lists), False
        if self._rerank_policy is not None and (query.ranking or {}).get("rerank"):
            best, is_reranked = await rerank(self._rerank_policy, query.query, best)
        errors = [*resolution.errors]
        for name, error in result.failed.items():
            errors += [SourceError(asked, name, error) for asked in selections[name].asked.values()]
        for name, hits in result.answered.items():
            asked = selections[name].asked
            errors += [SourceError(asked[source], name, error) for source, error in hits.failed.items()]
        per_server = {name: _summary(result.answered.get(name), result.elapsed_ms[name]) for name in shown}
        total = sum(hits.total_found or len(hits.hits) for hits in result.answered.values())
        return SearchOutcome(best[: query.top_k], errors, per_server, total, is_reranked)

    async def _ask(self, call: Call, query: RagQuery, selection: ServerSelection, given: Secrets) -> RagHits:
        name = selection.server.spec.name
        with self._secret_selector.use(call.principal, name, given, selection.resources.values()) as secrets:
            return await selection.server.search(call, query, list(selection.resources), secrets)


def _summary(hits: RagHits | None, elapsed_ms: float) -> Json:
    found = hits or RagHits([])
    more = {"dropped": found.dropped, "unmet_filters": list(found.unmet_filters)}
    return {"hits": len(found.hits), "elapsed_ms": elapsed_ms, **{name: value for name, value in more.items() if value}}


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
