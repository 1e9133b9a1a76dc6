"""Chooses the embedding, chat and reranking models, from the settings and from what the index was built with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from armarium.capabilities.corpus.errors import IndexVersionMismatch
from armarium.capabilities.corpus.settings import CorpusSettings, MistralSettings, OpenAISettings
from armarium.foundation.errors import ConfigError
from armarium.foundation.security.network import permits
from armarium.foundation.settings.file_secrets import revealed
from armarium.providers.client import ProviderClient
from armarium.providers.hosted import CohereReranker, HostedChat, MistralEmbedder, OpenAIEmbedder
from armarium.providers.interfaces import Chat, Embedder, Reranker
from armarium.providers.local.embedder import LocalEmbedder
from armarium.providers.vendors import COHERE, MISTRAL, OPENAI, Vendor
from armarium.retrieval.chunks import IndexKind

Provider = Literal["local", "mistral", "openai"]


@dataclass(frozen=True, slots=True)
class Models:
    embedders: Mapping[IndexKind, Embedder]
    chat: Chat | None
    reranker: Reranker | None

    async def aclose(self) -> None:
        parts = {id(each): each for each in (*self.embedders.values(), self.chat, self.reranker) if each is not None}
        for part in parts.values():
            await part.aclose()


def choose_models(settings: CorpusSettings, built_with: Mapping[IndexKind, str | None]) -> Models:
    """The models to use. `built_with` names those of an existing index, which `auto` keeps."""
    vendors = _Vendors(settings)
    embedders = vendors.embedders(_embedding_provider(settings, built_with["text"]))
    for kind, model in built_with.items():
        if model is not None and model != embedders[kind].model:
            raise IndexVersionMismatch(
                f"the index was built with {model}, the settings ask for {embedders[kind].model}",
                hint="run: dir2mcp reindex",
            )
    rerank, reranker = settings.rerank, None
    if rerank.base_url is not None:
        client = ProviderClient(COHERE, rerank.api_key, base_url=rerank.base_url)
        reranker = CohereReranker(client, rerank.model)
    return Models(embedders, vendors.chat(), reranker)


def _embedding_provider(settings: CorpusSettings, built_with: str | None) -> Provider:
    asked = settings.embedding.provider
    if asked != "auto":
        return asked
    owners: dict[str | None, Provider] = {
        settings.openai.embed_text_model: "openai",
        settings.mistral.embed_text_model: "mistral",
        LocalEmbedder.model: "local",
    }
    if built_with is not None and built_with in owners:
        return owners[built_with]
    return "mistral" if _may_choose_mistral(settings) else "local"


def destinations(settings: CorpusSettings, built_with: str | None) -> list[tuple[str, str]]:
    """The addresses to which text is sent, each with the purpose. `built_with` is the model of an existing index."""
    addresses = {"mistral": settings.mistral.base_url, "openai": settings.openai.base_url}
    embedding, chat = _embedding_provider(settings, built_with), _chat_provider(settings)
    found = [(addresses[embedding], "embeddings")] if embedding != "local" else []
    found += [(addresses[chat], "answers")] if chat != "none" else []
    return found + ([(settings.rerank.base_url, "reranking")] if settings.rerank.base_url is not None else [])


def _chat_provider(settings: CorpusSettings) -> Literal["none", "mistral", "openai"]:
    if not settings.rag.generate_answer:
        return "none"
    if settings.chat.provider != "auto":
        return settings.chat.provider
    if _may_choose_mistral(settings):
        return "mistral"
    return "openai" if settings.openai.chat_model and permits(settings.openai.base_url) else "none"


def _may_choose_mistral(settings: CorpusSettings) -> bool:
    """Whether `auto` may choose it: there is a key, and the network may be used."""
    return revealed(settings.mistral.api_key) is not None and permits(settings.mistral.base_url)


class _Vendors:
    """The models of the configured vendors. Models of one vendor share its client, and with it the rate limit."""

    def __init__(self, settings: CorpusSettings) -> None:
        self._settings = settings

    def embedders(self, provider: Provider) -> dict[IndexKind, Embedder]:
        if provider == "local":
            local = LocalEmbedder()
            return {"text": local, "code": local}
        if provider == "mistral":
            text, code = self._settings.mistral.embed_text_model, self._settings.mistral.embed_code_model
            return {"text": MistralEmbedder(self._mistral, text), "code": MistralEmbedder(self._mistral, code)}
        openai = self._settings.openai
        if openai.embed_text_model is None:
            raise ConfigError("embedding.provider is openai, but openai.embed_text_model is not set")
        text = OpenAIEmbedder(self._openai, openai.embed_text_model)
        same = openai.embed_code_model in (None, openai.embed_text_model)
        return {"text": text, "code": text if same else OpenAIEmbedder(self._openai, openai.embed_code_model or "")}

    def chat(self) -> Chat | None:
        provider = _chat_provider(self._settings)
        if provider == "none":
            return None
        if provider == "mistral":
            return HostedChat(self._mistral, self._settings.mistral.chat_model)
        if self._settings.openai.chat_model is None:
            raise ConfigError("chat.provider is openai, but openai.chat_model is not set")
        return HostedChat(self._openai, self._settings.openai.chat_model)

    @cached_property
    def _mistral(self) -> ProviderClient:
        if revealed(self._settings.mistral.api_key) is None:
            variable = "MISTRAL_API_KEY"
            hint = f"set {variable}, or run: dir2mcp config init"
            raise ConfigError(f"Missing {variable}", hint=hint, variable=variable)
        return self._client(MISTRAL, self._settings.mistral)

    @cached_property
    def _openai(self) -> ProviderClient:
        return self._client(OPENAI, self._settings.openai)

    def _client(self, vendor: Vendor, section: MistralSettings | OpenAISettings) -> ProviderClient:
        rate = self._settings.embedding.requests_per_minute
        return ProviderClient(vendor, section.api_key, base_url=section.base_url, requests_per_minute=rate)
