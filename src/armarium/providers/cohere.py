"""Any endpoint that reranks as Cohere's does: Cohere itself, vLLM, Jina."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from armarium.foundation.schema import Json
from armarium.providers.batches import sendable
from armarium.providers.client import ProviderClient
from armarium.providers.vendors import COHERE

_TOKENS_PER_TEXT = 4_000
_DEADLINE_S = 10.0
"""Somebody waits for the order, and there is one already."""


def cohere_client(base_url: str | None = None, key: str | None = None) -> ProviderClient:
    """The connection to a reranking endpoint; one on the operator's own machine needs no key."""
    return ProviderClient(COHERE, key, base_url=base_url)


class CohereReranker:
    """A reranking model of the endpoint."""

    def __init__(self, client: ProviderClient, model: str = "rerank-v3.5") -> None:
        self.model = model
        self._client = client

    async def rerank(self, query: str, texts: Sequence[str], top_n: int) -> list[tuple[int, float]]:
        """The `top_n` best as (position in `texts`, relevance), best first."""
        wanted = min(top_n, len(texts))
        if wanted <= 0:
            return []
        body: Json = {
            "model": self.model,
            "query": sendable(query, _TOKENS_PER_TEXT),
            "documents": [sendable(text, _TOKENS_PER_TEXT) for text in texts],
            "top_n": wanted,
        }
        answer = await self._client.post("/rerank", body, urgent=True, deadline_s=_DEADLINE_S)
        ranked = self._checked(answer.get("results"), len(texts))
        return sorted(ranked.items(), key=lambda item: (-item[1], item[0]))[:wanted]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _checked(self, results: object, sent: int) -> dict[int, float]:
        unusable = self._client.vendor.unusable
        if not isinstance(results, list):
            raise unusable("it holds no results")
        ranked: dict[int, float] = {}
        for result in cast("list[object]", results):
            fields = cast("Json", result) if isinstance(result, dict) else {}
            position, score = fields.get("index"), fields.get("relevance_score")
            if type(position) is not int or not 0 <= position < sent or position in ranked:
                raise unusable("its results name texts that were not sent")
            if not isinstance(score, int | float) or not math.isfinite(score):
                raise unusable("its results have no score")
            ranked[position] = float(score)
        if not ranked:
            raise unusable("it holds no results")
        return ranked
