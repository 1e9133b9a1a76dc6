"""Searches the selected sources of all servers concurrently and merges their hits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from armarium.capabilities.gateway.model import RagHit, RagHits, RagQuery, Secrets
from armarium.capabilities.gateway.query.discovery import in_display_order
from armarium.capabilities.gateway.query.fan_out import FanOutResult, ask_all
from armarium.capabilities.gateway.query.outcome import emit_failures, merge_attachments
from armarium.capabilities.gateway.query.rank_fusion import MergedHit, RerankPolicy, fuse, rerank
from armarium.capabilities.gateway.query.source_resolution import Resolution, SourceError
from armarium.capabilities.gateway.servers.remote import RagServer
from armarium.capabilities.gateway.servers.response_parser import parse_hit
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """The merged hits of all servers."""

    hits: Sequence[MergedHit]
    errors: Sequence[SourceError]
    """The sources that could not be searched, and why."""
    per_server: Mapping[str, Json]
    total_found: int
    reranked: bool = False
    artifacts: Sequence[Json] = ()
    display: Json | None = None


@dataclass(frozen=True, slots=True)
class SourceSearch:
    """Searches servers. Each has `call_s`, unless its entry sets another timeout."""

    secret_selector: SecretSelector
    call_s: float
    rerank_policy: RerankPolicy | None = None

    async def search(self, call: Call, query: RagQuery, resolution: Resolution, given: Secrets) -> SearchOutcome:
        """The best hits of all servers, and the sources that failed."""
        selections = resolution.selections

        def failures_of(name: str, result: FanOutResult[RagHits]) -> list[SourceError]:
            asked = selections[name].asked
            if (failure := result.failed.get(name)) is not None:
                return [SourceError(source, name, failure) for source in asked.values()]
            return [SourceError(asked[source], name, error) for source, error in result.answered[name].failed.items()]

        def report(name: str, result: FanOutResult[RagHits]) -> None:
            emit_failures(call, failures_of(name, result))
            settled = len(result.elapsed_ms)
            call.emit("progress", {"phase": "searching", "server": name, "done": settled, "total": len(selections)})

        emit_failures(call, resolution.errors)
        result = await self.ask_selected(
            call,
            resolution,
            given,
            lambda server, sources, secrets: server.search(call, query, sources, secrets),
            report,
        )
        servers = in_display_order(selection.server for selection in selections.values())
        shown = [server.spec.name for server in servers]
        lists = {name: result.answered[name].hits for name in shown if name in result.answered}
        best, is_reranked = fuse(lists), False
        if self.rerank_policy is not None and (query.ranking or {}).get("rerank"):
            best, is_reranked = await rerank(self.rerank_policy, query.query, best)
        errors = [*resolution.errors]
        for name in (*result.failed, *result.answered):
            errors += failures_of(name, result)
        per_server = {name: _summary(result.answered.get(name), result.elapsed_ms[name]) for name in shown}
        attached = {name: result.answered[name].attachments for name in lists}
        artifacts, display, reported = merge_attachments(attached)
        per_server |= {name: per_server[name] | details for name, details in reported.items()}
        total = sum(hits.total_found or len(hits.hits) for hits in result.answered.values())
        return SearchOutcome(best[: query.top_k], errors, per_server, total, is_reranked, artifacts, display)

    async def ask_selected(
        self,
        call: Call,
        resolution: Resolution,
        given: Secrets,
        ask: Callable[[RagServer, Sequence[str], Secrets], Awaitable[T]],
        on_settled: Callable[[str, FanOutResult[T]], None] = lambda name, so_far: None,
    ) -> FanOutResult[T]:
        """Ask each selected server about its sources, with the secrets for them."""

        async def ask_one(server: RagServer) -> T:
            name, resources = server.spec.name, resolution.selections[server.spec.name].resources
            with self.secret_selector.use(call, name, given, resources.values()) as secrets:
                return await ask(server, list(resources), secrets)

        servers = [selection.server for selection in resolution.selections.values()]
        return await ask_all(servers, ask_one, lambda server: server.spec.timeouts.call_s or self.call_s, on_settled)


def _summary(hits: RagHits | None, elapsed_ms: float) -> Json:
    found = hits or RagHits([])
    more = {
        "dropped": found.dropped,
        "unmet_filters": list(found.unmet_filters),
        "incomplete": dict(found.incomplete),
    }
    return {"hits": len(found.hits), "elapsed_ms": elapsed_ms, **{name: value for name, value in more.items() if value}}


def hit_as_json(merged_hit: MergedHit) -> Json:
    """A hit in the contract's format, with its server."""
    hit = merged_hit.hit
    return (
        {**hit.further}
        | hit_fields(hit)
        | {
            "score": merged_hit.score,
            "resourceId": f"{merged_hit.server}:{hit.resource_id}",
            "server": merged_hit.server,
            "serverRank": merged_hit.rank,
            "serverScore": hit.score,
        }
    )


def hit_fields(hit: RagHit) -> Json:
    """The contract's fields of a hit, with the server's own ids and score."""
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


def select_provided_hits(entries: Sequence[Json], resolution: Resolution) -> list[MergedHit]:
    """Those of a caller's hits that are valid and from the sources of the call. A hit without a source belongs to the
    only source, if there is one."""
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
        hit = parse_hit({**entry, "resourceId": source_id}, place)
        if hit is not None:
            hits.append(MergedHit(hit, server, place + 1, hit.score))
    return hits


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
