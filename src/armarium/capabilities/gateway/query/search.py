"""Searches the chosen sources of all servers at once, and puts what they found into one order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from armarium.capabilities.gateway.model import Hit, Hits, Question, Secrets
from armarium.capabilities.gateway.query.discovery import in_order
from armarium.capabilities.gateway.query.fan_out import Job, ask_all
from armarium.capabilities.gateway.query.rank_fusion import MergedHit, merged, reranked
from armarium.capabilities.gateway.query.source_resolution import Chosen, Resolution, SourceError
from armarium.capabilities.gateway.tokens.keyring import Keyring
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call
from armarium.providers.interfaces import Reranker


@dataclass(frozen=True, slots=True)
class SecondLook:
    """Who reranks, how many hits, and how long it may take."""

    reranker: Reranker
    candidates: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """What the servers found together."""

    hits: Sequence[MergedHit]
    errors: Sequence[SourceError]
    """Every source that is not in the hits, and why."""
    per_server: Mapping[str, Json]
    total_found: int
    reranked: bool = False


class Searching:
    """Asks servers for hits."""

    def __init__(self, keyring: Keyring, *, call_s: float, second_look: SecondLook | None = None) -> None:
        self._keyring = keyring
        self._call_s = call_s
        self._second_look = second_look

    async def search(self, call: Call, question: Question, resolution: Resolution, given: Secrets) -> Found:
        """The best hits of all; sources that fail are told with the others' hits."""
        jobs = {
            name: Job(
                lambda chosen=chosen: self._ask(call, question, chosen, given),
                chosen.server.spec.timeouts.call_s or self._call_s,
            )
            for name, chosen in resolution.chosen.items()
        }
        answers = await ask_all(jobs)
        shown = [server.spec.name for server in in_order(chosen.server for chosen in resolution.chosen.values())]
        lists = {name: answers.answered[name].hits for name in shown if name in answers.answered}
        best, looked = await self._looked_at_again(question, merged(lists))
        errors = [*resolution.errors]
        for name, error in answers.failed.items():
            errors += [SourceError(asked, name, error) for asked in resolution.chosen[name].asked.values()]
        for name, hits in answers.answered.items():
            asked = resolution.chosen[name].asked
            errors += [SourceError(asked[source], name, error) for source, error in hits.failed.items()]
        per_server = {name: _told(answers.answered.get(name), answers.elapsed_ms[name]) for name in shown}
        total = sum(hits.total_found or len(hits.hits) for hits in answers.answered.values())
        return Found(best[: question.top_k], errors, per_server, total, looked)

    async def _ask(self, call: Call, question: Question, chosen: Chosen, given: Secrets) -> Hits:
        name = chosen.server.spec.name
        secrets = self._keyring.for_sources(call.principal, name, chosen.resources.values(), given)
        with self._keyring.in_use(call.principal, name, secrets):
            return await chosen.server.search(call, question, list(chosen.resources), secrets)

    async def _looked_at_again(self, question: Question, hits: list[MergedHit]) -> tuple[list[MergedHit], bool]:
        look = self._second_look
        if look is None or not (question.ranking or {}).get("rerank"):
            return hits, False
        return await reranked(look.reranker, question.query, hits, candidates=look.candidates, timeout_s=look.timeout_s)


def _told(hits: Hits | None, elapsed_ms: float) -> Json:
    if hits is None:
        return {"hits": 0, "elapsed_ms": elapsed_ms}
    told: Json = {"hits": len(hits.hits), "elapsed_ms": elapsed_ms}
    more = {"dropped": hits.dropped, "unmet_filters": list(hits.unmet_filters)}
    return told | {name: value for name, value in more.items() if value}


def hit_as_json(merged_hit: MergedHit) -> Json:
    """A hit as the contract has it, with the server it is of."""
    hit = merged_hit.hit
    return hit_fields(hit) | {
        "score": merged_hit.score,
        "resourceId": f"{merged_hit.server}:{hit.resource_id}",
        "server": merged_hit.server,
        "serverRank": merged_hit.rank,
        "serverScore": hit.score,
    }


def hit_fields(hit: Hit) -> Json:
    """A hit in the contract's fields and no others, as its own server tells of it."""
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
