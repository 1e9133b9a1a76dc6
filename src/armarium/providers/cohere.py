"""Rerankers behind a Cohere-compatible endpoint, such as Cohere, vLLM or Jina."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from armarium.foundation.schema import Json
from armarium.providers.batches import prepare_input
from armarium.providers.client import ProviderClient
from armarium.providers.vendors import COHERE

_TOKENS_PER_TEXT = 4_000
_DEADLINE_S = 10.0
"""Short, because a caller waits and the fused order is already known."""


def cohere_client(base_url: str | None = None, key: str | None = None) -> ProviderClient:
    """A client for the endpoint. An endpoint on the operator's own machine needs no key."""
    return ProviderClient(COHERE, key, base_url=base_url)


class CohereReranker:
    def __init__(self, client: ProviderClient, model: str = "rerank-v3.5") -> None:
        self.model = model
        self._client = client

    async def rerank(self, query: str, texts: Sequence[str], top_n: int) -> list[tuple[int, float]]:
        if (wanted := min(top_n, len(texts))) <= 0:
            return []
        body: Json = {
            "model": self.model,
            "query": prepare_input(query, _TOKENS_PER_TEXT),
            "documents": [prepare_input(text, _TOKENS_PER_TEXT) for text in texts],
            "top_n": wanted,
        }
        response = await self._client.post("/rerank", body, urgent=True, deadline_s=_DEADLINE_S)
        ranked = self._validated(response.get("results"), len(texts))
        return sorted(ranked.items(), key=lambda item: (-item[1], item[0]))[:wanted]

    async def aclose(self) -> None:
        await self._client.aclose()

    def _validated(self, results: object, sent: int) -> dict[int, float]:
        unusable = self._client.vendor.unusable
        if not isinstance(results, list):
            raise unusable("it contains no results")
        ranked: dict[int, float] = {}
        for result in cast("list[object]", results):
            fields = cast("Json", result) if isinstance(result, dict) else {}
            position, score = fields.get("index"), fields.get("relevance_score")
            if type(position) is not int or not 0 <= position < sent or position in ranked:
                raise unusable("its results refer to texts that were not sent")
            if not isinstance(score, int | float) or not math.isfinite(score):
                raise unusable("its results have no score")
            ranked[position] = float(score)
        if not ranked:
            raise unusable("it contains no results")
        return ranked
