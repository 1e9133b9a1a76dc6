"""Mistral's embedding models (`mistral-embed`, `codestral-embed`) and chat models."""

from __future__ import annotations

from typing import ClassVar

from armarium.providers.batches import BatchLimits
from armarium.providers.hosted_chat import HostedChat
from armarium.providers.hosted_embedder import HostedEmbedder


class MistralEmbedder(HostedEmbedder):
    """`mistral-embed` for prose, `codestral-embed` for code."""

    # The endpoint accepts 16,384 tokens per request; the models read 8,192 tokens of a text.
    limits = BatchLimits(texts=128, tokens=16_000, tokens_per_text=8_000)
    dimensions_field = "output_dimension"
    known_dimensions: ClassVar = {"mistral-embed": 1024, "codestral-embed": 1536}


class MistralChat(HostedChat):
    """A chat model by Mistral."""
