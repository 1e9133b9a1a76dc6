"""The interfaces of embedders, chat models and rerankers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Vectors = NDArray[numpy.float32]
    """One row per text, or the single row of a query; each row has length 1."""


class Embedder(Protocol):
    """Turns texts into vectors whose inner product is their semantic similarity."""

    @property
    def model(self) -> str:
        """The name that vectors are stored under. Vectors of different models are never compared."""
        ...

    @property
    def dimensions(self) -> int | None:
        """The length of a vector. None: not known before the first response."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of chunks, one row each, in the order of the texts."""
        ...

    async def embed_query(self, text: str) -> Vectors:
        """The vector of a query. Runs ahead of chunks, because a caller waits for it."""
        ...

    async def aclose(self) -> None:
        """Release connections and memory."""
        ...


@runtime_checkable
class CodeCompactor(Protocol):
    """An embedder that needs source code without its indentation and line breaks."""

    def compact_code(self, code: str) -> str:
        """The code as the model reads it."""
        ...


def embedding_input(embedder: Embedder, context: str, text: str, *, is_code: bool) -> str:
    """The text to embed for a chunk: its context, if any, on the first line, then its text as this model reads it."""
    body = embedder.compact_code(text) if is_code and isinstance(embedder, CodeCompactor) else text
    return f"{context}\n{body}" if context else body


@dataclass(frozen=True, slots=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


class Chat(Protocol):
    """A chat model that streams its response."""

    @property
    def model(self) -> str: ...

    def stream(self, messages: Sequence[Message]) -> AsyncGenerator[str]:
        """The response, piece by piece. Close the iterator (`contextlib.aclosing`) when leaving it early. Raises a
        retryable `ProviderFailed` when the response ends early: the pieces so far are incomplete."""
        ...

    async def aclose(self) -> None: ...


class Reranker(Protocol):
    """Scores each text together with the query, which ranks a few texts better than vectors do."""

    async def rerank(self, query: str, texts: Sequence[str], top_n: int) -> list[tuple[int, float]]:
        """The `top_n` best as (position in `texts`, relevance), best first."""
        ...

    async def aclose(self) -> None: ...
