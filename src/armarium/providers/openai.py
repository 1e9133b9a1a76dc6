"""Any endpoint that speaks as OpenAI's does: OpenAI itself, Ollama, vLLM, llama.cpp."""

from __future__ import annotations

from armarium.providers.batches import BatchLimits
from armarium.providers.client import ProviderClient
from armarium.providers.hosted_chat import HostedChat
from armarium.providers.hosted_embedder import HostedEmbedder
from armarium.providers.retry import Patience
from armarium.providers.vendors import OPENAI

_TOKENS_PER_TEXT = 8_000
_TEXTS = 64
_TOKENS = 32_000
"""Far below what OpenAI takes: a model on the operator's own machine answers a smaller batch before the deadline."""


def openai_client(
    base_url: str | None = None, key: str | None = None, *, patience: Patience | None = None
) -> ProviderClient:
    """The connection that all models of one endpoint share; one on the operator's own machine needs no key."""
    return ProviderClient(OPENAI, key, base_url=base_url, patience=patience)


class OpenAIEmbedder(HostedEmbedder):
    """An embedding model of the endpoint. Several open models want a prefix before passages, queries or both."""

    def __init__(
        self,
        client: ProviderClient,
        model: str,
        *,
        output_dimension: int | None = None,
        tokens_per_text: int = _TOKENS_PER_TEXT,
        passage_prefix: str = "",
        query_prefix: str = "",
    ) -> None:
        super().__init__(
            client,
            model,
            BatchLimits(texts=_TEXTS, tokens=_TOKENS, tokens_per_text=tokens_per_text),
            dimensions=output_dimension,
            extra={"dimensions": output_dimension} if output_dimension else None,
            passage_prefix=passage_prefix,
            query_prefix=query_prefix,
        )


class OpenAIChat(HostedChat):
    """A chat model of the endpoint."""

    def __init__(self, client: ProviderClient, model: str) -> None:
        # OpenAI's newer models refuse the name that every other server knows.
        hosted_by_openai = client.host == "api.openai.com"
        super().__init__(client, model, max_tokens_field="max_completion_tokens" if hosted_by_openai else "max_tokens")
