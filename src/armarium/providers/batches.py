"""Splits texts into batches within the limits of an embedding endpoint."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

_BYTES_PER_TOKEN = 3
"""In UTF-8. Prose has four or five bytes per token and source code about three; a Chinese character has three bytes and
is often one token. The estimate is high on purpose: the endpoint rejects a batch that is too large."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    texts: int
    tokens: int
    """For all texts together."""
    tokens_per_text: int
    """Longer texts are truncated: the model would ignore the rest."""


def prepare_input(text: str, tokens: int) -> str:
    """The text as an endpoint accepts it: valid Unicode, not empty, and truncated to about `tokens`."""
    encoded = text.encode("utf-8", "replace")[: tokens * _BYTES_PER_TOKEN]
    # Endpoints reject empty inputs, and one of them would fail the whole batch.
    return encoded.decode("utf-8", "ignore") or " "


def estimated_tokens(text: str) -> int:
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1


def split_batches(texts: Sequence[str], limits: BatchLimits) -> Generator[range]:
    """The positions of the texts in each batch, in order and without gaps."""
    start = tokens = 0
    for position, text in enumerate(texts):
        own = estimated_tokens(text)
        if position > start and (position - start >= limits.texts or tokens + own > limits.tokens):
            yield range(start, position)
            start, tokens = position, 0
        tokens += own
    if start < len(texts):
        yield range(start, len(texts))
