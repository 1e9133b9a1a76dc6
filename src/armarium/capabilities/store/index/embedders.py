"""Embedders and rerankers: the local model, or endpoints that receive the caller's own key."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from armarium.capabilities.store.errors import SearchBackendError
from armarium.capabilities.store.settings import EmbeddingSettings, RerankSettings
from armarium.foundation.errors import ConfigError
from armarium.providers.client import ProviderClient
from armarium.providers.hosted import CohereReranker, OpenAIEmbedder
from armarium.providers.interfaces import Embedder, Reranker
from armarium.providers.local.embedder import LocalEmbedder
from armarium.providers.retry import RetryPolicy
from armarium.providers.vendors import COHERE, OPENAI

MAX_CACHED_CALLERS: Final = 32
_RERANK_PATH = "/rerank"
# No retries here: the queue retries a job, and a search continues without a model.
_ONE_TRY: Final = RetryPolicy(max_attempts=1, attempt_timeout_s=20.0, deadline_s=30.0)


class KeyMissing(SearchBackendError, retryable=False):
    """The endpoint needs the caller's key, and the call has none. A retry does not help."""


ModelT = TypeVar("ModelT", Embedder, Reranker)


class StoreModels:
    """The embedder and the reranker of one store, shared by indexing and search."""

    def __init__(
        self,
        *,
        local: Embedder | None = None,
        hosted: EmbeddingSettings | None = None,
        reranker: RerankSettings | None = None,
    ) -> None:
        """Use the `hosted` embedder, or else the `local` one (the built-in model by default)."""
        self._local: Embedder | None = None
        self._embedders: _CallerPool[Embedder] | None = None
        if hosted is None:
            self._local = local or LocalEmbedder()
            self.model = self._local.model
            """The model name stored with each vector."""
        else:
            self.model = hosted.model
            self._embedders = _CallerPool(
                lambda key: OpenAIEmbedder(
                    ProviderClient(OPENAI, key, base_url=hosted.base_url, retry_policy=_ONE_TRY),
                    hosted.model,
                    output_dimension=hosted.dimensions,
                )
            )
        self._rerankers: _CallerPool[Reranker] | None = None
        if reranker is not None:
            base_url = _rerank_base(reranker.endpoint)
            self._rerankers = _CallerPool(
                lambda key: CohereReranker(ProviderClient(COHERE, key, base_url=base_url), reranker.model)
            )

    @asynccontextmanager
    async def embedder(self, key: str | None) -> AsyncGenerator[Embedder]:
        if self._embedders is None:
            assert self._local is not None, "there is a local embedder or a hosted one"
            yield self._local
            return
        if not key:
            raise KeyMissing("texts are embedded with the caller's key, and there is none", hint="send your API key")
        async with self._embedders.borrow(key) as embedder:
            yield embedder

    def reranks(self, key: str | None) -> bool:
        """Whether the results of the caller with this key are reranked."""
        return self._rerankers is not None and bool(key)

    @asynccontextmanager
    async def reranker(self, key: str | None) -> AsyncGenerator[Reranker]:
        """The reranker for the caller with this key; only if `reranks`."""
        assert self._rerankers is not None, "no reranker is configured"
        assert key is not None, "results are reranked with the caller's key"
        async with self._rerankers.borrow(key) as reranker:
            yield reranker

    async def aclose(self) -> None:
        for model in (self._local, self._embedders, self._rerankers):
            if model is not None:
                await model.aclose()


@dataclass(slots=True)
class _Borrowed(Generic[ModelT]):
    model: ModelT
    users: int = 0


class _CallerPool(Generic[ModelT]):
    """Models with open connections, one for each recent caller. Callers are identified by a hash of their key."""

    def __init__(self, create: Callable[[str], ModelT]) -> None:
        self._create = create
        self._by_caller: OrderedDict[bytes, _Borrowed[ModelT]] = OrderedDict()

    @asynccontextmanager
    async def borrow(self, key: str) -> AsyncGenerator[ModelT]:
        caller = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        borrowed = self._by_caller.get(caller)
        if borrowed is None:
            borrowed = self._by_caller[caller] = _Borrowed(self._create(key))
        self._by_caller.move_to_end(caller)
        borrowed.users += 1
        try:
            yield borrowed.model
        finally:
            borrowed.users -= 1
            idle = [caller for caller, borrowed in self._by_caller.items() if not borrowed.users]
            for oldest in idle[: max(0, len(self._by_caller) - MAX_CACHED_CALLERS)]:
                await self._by_caller.pop(oldest).model.aclose()

    async def aclose(self) -> None:
        while self._by_caller:
            _, borrowed = self._by_caller.popitem()
            await borrowed.model.aclose()


def _rerank_base(endpoint: str) -> str:
    """The endpoint without the last segment of its path, which the client appends."""
    base, path, rest = endpoint.rstrip("/").rpartition(_RERANK_PATH)
    if not path or rest:
        raise ConfigError(
            "store.search.rerank.endpoint does not end in /rerank", hint="for example https://api.cohere.com/v2/rerank"
        )
    return base
