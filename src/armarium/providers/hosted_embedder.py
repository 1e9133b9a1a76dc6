"""Embedding models behind an OpenAI-compatible HTTP endpoint: batched requests, validated and normalised vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

import anyio

from armarium.foundation.schema import Json
from armarium.providers.batches import BatchLimits, prepare_input, split_batches
from armarium.providers.client import ProviderClient
from armarium.providers.errors import ProviderError, ProviderFailed

if TYPE_CHECKING:
    from armarium.providers.interfaces import Vectors

_QUERY_DEADLINE_S = 15.0
_PERHAPS_TOO_LARGE = (400, 413, 422)


class HostedEmbedder:
    """An embedding model behind HTTP. Subclasses define what differs between providers."""

    limits: ClassVar[BatchLimits]
    dimensions_field: ClassVar[str]
    """The field of a request that asks for shorter vectors."""
    known_dimensions: ClassVar[Mapping[str, int]] = {}

    def __init__(self, client: ProviderClient, model: str, *, output_dimension: int | None = None) -> None:
        self.model = model
        self.dimensions = output_dimension or self.known_dimensions.get(model)
        self._client = client
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

    async def aclose(self) -> None:
        await self._client.aclose()

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
