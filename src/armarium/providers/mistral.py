"""Mistral's embedding models (`mistral-embed`, `codestral-embed`) and chat models."""

from __future__ import annotations

from armarium.providers.batches import BatchLimits
from armarium.providers.client import ProviderClient
from armarium.providers.hosted_chat import HostedChat
from armarium.providers.hosted_embedder import HostedEmbedder

_DIMENSIONS = {"mistral-embed": 1024, "codestral-embed": 1536}
_LIMITS = BatchLimits(texts=128, tokens=16_000, tokens_per_text=8_000)
"""The endpoint accepts 16,384 tokens per request; the models read 8,192 tokens of a text."""


class MistralEmbedder(HostedEmbedder):
    """`mistral-embed` for prose, `codestral-embed` for code."""

    def __init__(
        self, client: ProviderClient, model: str = "mistral-embed", *, output_dimension: int | None = None
    ) -> None:
        super().__init__(
            client,
            model,
            _LIMITS,
            dimensions=output_dimension or _DIMENSIONS.get(model),
            extra={"output_dimension": output_dimension} if output_dimension else None,
        )


class MistralChat(HostedChat):
    """A chat model by Mistral."""

    def __init__(self, client: ProviderClient, model: str = "mistral-small-2506") -> None:
        super().__init__(client, model)
