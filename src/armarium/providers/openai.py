"""Embedding and chat models behind an OpenAI-compatible endpoint, such as OpenAI, Ollama, vLLM or llama.cpp."""

from __future__ import annotations

from armarium.providers.batches import BatchLimits
from armarium.providers.client import ProviderClient
from armarium.providers.hosted_chat import HostedChat
from armarium.providers.hosted_embedder import HostedEmbedder
from armarium.providers.retry import RetryPolicy
from armarium.providers.vendors import OPENAI


def openai_client(
    base_url: str | None = None, key: str | None = None, *, retry_policy: RetryPolicy | None = None
) -> ProviderClient:
    """A client for the endpoint. An endpoint on the operator's own machine needs no key."""
    return ProviderClient(OPENAI, key, base_url=base_url, retry_policy=retry_policy)


class OpenAIEmbedder(HostedEmbedder):
    """An embedding model."""

    # Far below OpenAI's limit, so that a model on the operator's own machine finishes a batch before the deadline.
    limits = BatchLimits(texts=64, tokens=32_000, tokens_per_text=8_000)
    dimensions_field = "dimensions"


class OpenAIChat(HostedChat):
    """A chat model."""
