"""Models behind HTTP: chat and embedding models with an OpenAI-compatible API, rerankers with one like Cohere's."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, cast

import anyio

from armarium.foundation.schema import Json
from armarium.foundation.surrogates import replace_unpaired_surrogates
from armarium.providers.batches import BatchLimits, prepare_input, split_batches
from armarium.providers.client import ProviderClient
from armarium.providers.errors import ProviderError, ProviderFailed
from armarium.providers.interfaces import Message

if TYPE_CHECKING:
    from armarium.providers.interfaces import Vectors

_QUERY_DEADLINE_S = 15.0
_PERHAPS_TOO_LARGE = (400, 413, 422)
_RERANKED_TOKENS_PER_TEXT = 4_000
_RERANK_DEADLINE_S = 10.0
"""Short, because a caller waits and the fused order is already known."""


class _HostedModel:
    """A model of a provider, with its client."""

    def __init__(self, client: ProviderClient, model: str) -> None:
        self.model = model
        self._client = client

    async def aclose(self) -> None:
        await self._client.aclose()


class HostedChat(_HostedModel):
    async def stream(self, messages: Sequence[Message]) -> AsyncGenerator[str]:
        """The response, piece by piece. Raises when it ends early."""
        body: Json = {
            "model": self.model,
            "messages": [
                {"role": message.role, "content": replace_unpaired_surrogates(message.content)} for message in messages
            ],
            "stream": True,
        }
        events = self._client.events(
            "/chat/completions", body, is_last=lambda event: _first_choice(event).get("finish_reason") is not None
        )
        async with aclosing(events):
            async for event in events:
                choice = _first_choice(event)
                if choice.get("finish_reason") == "error":
                    raise self._client.vendor.unavailable(
                        f"{self._client.vendor.name} failed in the middle of its response"
                    )
                if text := _text(choice):
                    yield text


def _first_choice(event: Json) -> Json:
    # The last event of some servers only reports the usage and has no choice.
    choices = event.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return cast("Json", choices[0])
    return {}


def _text(choice: Json) -> str:
    """The text of an event, or of the complete response of a server that does not stream."""
    message = choice.get("delta") or choice.get("message")
    if not isinstance(message, dict):
        return ""
    content: object = cast("Json", message).get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    # Reasoning models send pieces of several types; only those of type "text" belong to the response.
    pieces = [cast("dict[str, Any]", piece) for piece in cast("list[object]", content) if isinstance(piece, dict)]
    return "".join(str(piece.get("text") or "") for piece in pieces if piece.get("type") == "text")


class HostedEmbedder(_HostedModel):
    """An embedding model behind HTTP. Subclasses define what differs between providers."""

    limits: ClassVar[BatchLimits]
    dimensions_field: ClassVar[str]
    """The field of a request that asks for shorter vectors."""
    known_dimensions: ClassVar[Mapping[str, int]] = {}

    def __init__(self, client: ProviderClient, model: str, *, output_dimension: int | None = None) -> None:
        super().__init__(client, model)
        self.dimensions = output_dimension or self.known_dimensions.get(model)
        self._extra = {self.dimensions_field: output_dimension} if output_dimension else {}

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of chunks, one row each, in the order of the texts. Batches are sent concurrently."""
        import numpy

        if not texts:
            return numpy.zeros((0, self.dimensions or 0), numpy.float32)
        inputs = [prepare_input(text, self.limits.tokens_per_text) for text in texts]
        batches = split_batches(inputs, self.limits)
        embedded: dict[int, Vectors] = {}
        failure: ProviderError | None = None

        async def work() -> None:
            nonlocal failure
            try:
                # All workers share one generator.
                for positions in batches:
                    embedded[positions.start] = await self._embed_batch(inputs[positions.start : positions.stop])
            except ProviderError as error:
                failure = failure or error
                group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for _ in range(self._client.concurrency):
                group.start_soon(work)
        if failure is not None:
            raise failure
        return numpy.concatenate([embedded[start] for start in sorted(embedded)])

    async def embed_query(self, text: str) -> Vectors:
        return (await self._request([prepare_input(text, self.limits.tokens_per_text)], urgent=True))[0]

    async def _embed_batch(self, inputs: Sequence[str]) -> Vectors:
        import numpy

        try:
            return await self._request(inputs, urgent=False)
        except ProviderFailed as error:
            if len(inputs) == 1 or error.private.get("status") not in _PERHAPS_TOO_LARGE:
                raise
        # Token counts are estimates, so a full batch may exceed the limit. Any other cause fails in a half as well.
        half = len(inputs) // 2
        return numpy.concatenate([await self._embed_batch(inputs[:half]), await self._embed_batch(inputs[half:])])

    async def _request(self, inputs: Sequence[str], *, urgent: bool) -> Vectors:
        body: Json = {"model": self.model, "input": list(inputs), **self._extra}
        deadline_s = _QUERY_DEADLINE_S if urgent else None
        response = await self._client.post("/embeddings", body, urgent=urgent, deadline_s=deadline_s)
        vectors = self._validated(response.get("data"), len(inputs))
        self.dimensions = vectors.shape[1]
        return vectors

    def _validated(self, rows: object, expected: int) -> Vectors:
        """The rows in the order of their inputs, each normalised to length 1. Raises when the response is invalid."""
        import numpy

        unusable = self._client.vendor.unusable
        if not isinstance(rows, list) or len(cast("list[object]", rows)) != expected:
            raise unusable(f"it does not contain {expected} embeddings")
        placed: dict[int, object] = {}
        for position, row in enumerate(cast("list[object]", rows)):
            fields = cast("Json", row) if isinstance(row, dict) else {}
            index = fields.get("index", position)
            placed[index if isinstance(index, int) else -1] = fields.get("embedding")
        if placed.keys() != set(range(expected)):
            raise unusable("the indexes of its embeddings do not match the inputs")
        try:
            vectors = numpy.array([placed[position] for position in range(expected)], numpy.float64)
        except (ValueError, TypeError) as failure:
            raise unusable("its embeddings are not rows of numbers") from failure
        if vectors.ndim != 2 or vectors.shape[1] != (self.dimensions or vectors.shape[1] or -1):
            raise unusable(f"its embeddings do not have {self.dimensions or 'any'} dimensions")
        with numpy.errstate(over="ignore"):
            lengths = numpy.linalg.norm(vectors, axis=1, keepdims=True)
        if not numpy.isfinite(lengths).all():
            raise unusable("its embeddings contain numbers that are not finite")
        lengths[lengths == 0] = 1.0
        return (vectors / lengths).astype(numpy.float32)


class MistralEmbedder(HostedEmbedder):
    """`mistral-embed` for prose, `codestral-embed` for code."""

    # The endpoint accepts 16,384 tokens per request; the models read 8,192 tokens of a text.
    limits = BatchLimits(texts=128, tokens=16_000, tokens_per_text=8_000)
    dimensions_field = "output_dimension"
    known_dimensions: ClassVar = {"mistral-embed": 1024, "codestral-embed": 1536}


class OpenAIEmbedder(HostedEmbedder):
    """A model behind an OpenAI-compatible endpoint, such as OpenAI, Ollama, vLLM or llama.cpp."""

    # Far below OpenAI's limit, so that a model on the operator's own machine finishes a batch before the deadline.
    limits = BatchLimits(texts=64, tokens=32_000, tokens_per_text=8_000)
    dimensions_field = "dimensions"


class CohereReranker(_HostedModel):
    """A reranker behind a Cohere-compatible endpoint, such as Cohere, vLLM or Jina."""

    def __init__(self, client: ProviderClient, model: str = "rerank-v3.5") -> None:
        super().__init__(client, model)

    async def rerank(self, query: str, texts: Sequence[str], top_n: int) -> list[tuple[int, float]]:
        if (wanted := min(top_n, len(texts))) <= 0:
            return []
        body: Json = {
            "model": self.model,
            "query": prepare_input(query, _RERANKED_TOKENS_PER_TEXT),
            "documents": [prepare_input(text, _RERANKED_TOKENS_PER_TEXT) for text in texts],
            "top_n": wanted,
        }
        response = await self._client.post("/rerank", body, urgent=True, deadline_s=_RERANK_DEADLINE_S)
        ranked = self._validated(response.get("results"), len(texts))
        return sorted(ranked.items(), key=lambda item: (-item[1], item[0]))[:wanted]

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
