"""Who embeds and who reranks: the local model, or an endpoint that is asked with the caller's own key and no other."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from armarium.capabilities.store.errors import SearchBackendError
from armarium.capabilities.store.settings import EmbeddingSettings, RerankSettings
from armarium.foundation.errors import ConfigError
from armarium.providers.cohere import CohereReranker, cohere_client
from armarium.providers.interfaces import Embedder, Reranker
from armarium.providers.local.embedder import LocalEmbedder
from armarium.providers.openai import OpenAIEmbedder, openai_client
from armarium.providers.pacing import Patience

CALLERS_REMEMBERED: Final = 32
_RERANK_PATH = "/rerank"
# A job is tried again by its queue, and a search does without: nobody gains by trying again here.
_ONE_TRY: Final = Patience(tries=1, try_s=20.0, deadline_s=30.0)


class KeyMissing(SearchBackendError):
    """The endpoint is asked with the caller's key, and the call came without one. Asking again does not help."""

    retryable = False


def model_name(embedding: EmbeddingSettings) -> str:
    """The name that vectors are kept under."""
    return LocalEmbedder.model if embedding.provider == "local" else embedding.model


class _Closable(Protocol):
    async def aclose(self) -> None: ...


ModelT = TypeVar("ModelT", bound=_Closable)


class StoreModels:
    """The models of one store, for indexing and for searching alike."""

    def __init__(self, embedding: EmbeddingSettings, rerank: RerankSettings, *, local: Embedder | None = None) -> None:
        self._local = (local or LocalEmbedder()) if embedding.provider == "local" else None
        self.model = self._local.model if self._local else model_name(embedding)
        """The name that vectors are kept under."""
        self._embedders = _ByCaller[Embedder](
            lambda key: OpenAIEmbedder(
                openai_client(embedding.base_url, key, patience=_ONE_TRY),
                embedding.model,
                output_dimension=embedding.dimensions,
            )
        )
        self._rerankers: _ByCaller[Reranker] | None = None
        if rerank.enabled:
            base_url = _rerank_base(rerank.endpoint)
            self._rerankers = _ByCaller(lambda key: CohereReranker(cohere_client(base_url, key), rerank.model))

    @asynccontextmanager
    async def embedder(self, key: str | None) -> AsyncGenerator[Embedder]:
        """What turns text into vectors for this caller."""
        if self._local is not None:
            yield self._local
            return
        if not key:
            raise KeyMissing("texts are embedded with the caller's key, and there is none", hint="send your API key")
        async with self._embedders.lent(key) as embedder:
            yield embedder

    @asynccontextmanager
    async def reranker(self, key: str | None) -> AsyncGenerator[Reranker | None]:
        """What puts chunks in order for this caller; None when nothing does."""
        if self._rerankers is None or not key:
            yield None
            return
        async with self._rerankers.lent(key) as reranker:
            yield reranker

    async def aclose(self) -> None:
        """Let go of all of them."""
        if self._local is not None:
            await self._local.aclose()
        await self._embedders.aclose()
        if self._rerankers is not None:
            await self._rerankers.aclose()


@dataclass(slots=True)
class _Lent(Generic[ModelT]):
    model: ModelT
    users: int = 0


class _ByCaller(Generic[ModelT]):
    """Models with open connections, one for each caller of late. Callers are told apart by a hash of their key."""

    def __init__(self, make: Callable[[str], ModelT]) -> None:
        self._make = make
        self._known: OrderedDict[bytes, _Lent[ModelT]] = OrderedDict()

    @asynccontextmanager
    async def lent(self, key: str) -> AsyncGenerator[ModelT]:
        caller = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        lent = self._known.get(caller)
        if lent is None:
            lent = self._known[caller] = _Lent(self._make(key))
        self._known.move_to_end(caller)
        lent.users += 1
        try:
            yield lent.model
        finally:
            lent.users -= 1
            await self._let_go_of_the_oldest()

    async def aclose(self) -> None:
        while self._known:
            _, lent = self._known.popitem()
            await lent.model.aclose()

    async def _let_go_of_the_oldest(self) -> None:
        idle = [caller for caller, lent in self._known.items() if not lent.users]
        for caller in idle[: max(0, len(self._known) - CALLERS_REMEMBERED)]:
            await self._known.pop(caller).model.aclose()


def _rerank_base(endpoint: str) -> str:
    """The endpoint without the last part of its path, which the request brings itself."""
    base, path, rest = endpoint.rstrip("/").rpartition(_RERANK_PATH)
    if not path or rest:
        raise ConfigError(
            "store.search.rerank.endpoint does not end in /rerank", hint="for example https://api.cohere.com/v2/rerank"
        )
    return base
