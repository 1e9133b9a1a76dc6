"""Cuts texts into the requests that an embedding endpoint takes: so many at once, so long altogether."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

_BYTES_PER_TOKEN = 3
"""Of UTF-8. Prose has four or five and source code about three; a Chinese character is three bytes and often a token.
A request that is estimated too small is refused, one estimated too large only goes out less full."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one request may hold."""

    texts: int
    tokens: int
    """For all texts together."""
    tokens_per_text: int
    """What is beyond them is cut off: the model would not read it."""


def sendable(text: str, tokens: int) -> str:
    """The text as an endpoint accepts it: valid Unicode, not empty, and not longer than about so many tokens."""
    encoded = text.encode("utf-8", "replace")[: tokens * _BYTES_PER_TOKEN]
    # Endpoints refuse an empty input, and one such passage must not fail its whole batch.
    return encoded.decode("utf-8", "ignore") or " "


def estimated_tokens(text: str) -> int:
    """About how many tokens the text has."""
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN + 1


def batches(texts: Sequence[str], limits: BatchLimits) -> Generator[range]:
    """The positions of the texts that go into each request, in order and without a gap."""
    start = tokens = 0
    for position, text in enumerate(texts):
        own = estimated_tokens(text)
        if position > start and (position - start >= limits.texts or tokens + own > limits.tokens):
            yield range(start, position)
            start, tokens = position, 0
        tokens += own
    if start < len(texts):
        yield range(start, len(texts))
