"""What the rest of Armarium asks of a model, whoever runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Vectors = NDArray[numpy.float32]
    """One row a text, or the single row of a query; each row has length 1."""


class Embedder(Protocol):
    """Turns texts into vectors whose inner product says how near their meanings are."""

    @property
    def model(self) -> str:
        """The name that vectors are kept under; vectors of different models never meet."""
        ...

    @property
    def dimensions(self) -> int | None:
        """How many numbers a vector has. None: known after the first answer."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """The vectors of passages, one row each, in their order."""
        ...

    async def embed_query(self, text: str) -> Vectors:
        """The vector of a question; somebody waits for it."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and memory."""
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
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class Chat(Protocol):
    """Answers in words, as they come."""

    @property
    def model(self) -> str:
        """The model that answers."""
        ...

    def stream(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, temperature: float | None = None
    ) -> AsyncGenerator[str]:
        """The answer piece by piece. Close the iterator (`contextlib.aclosing`) when leaving it early.

        Raises a retryable `ProviderFailed` when the answer breaks off: what came before is not a whole answer.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...


class Reranker(Protocol):
    """Reads query and passages together, which orders few passages better than vectors can."""

    async def rerank(self, query: str, texts: Sequence[str], top_n: int) -> list[tuple[int, float]]:
        """The `top_n` best as (position in `texts`, relevance), best first."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
