"""What of a passage is embedded."""

from __future__ import annotations

from armarium.providers.local.compact import compact
from armarium.retrieval.chunks import IndexKind


def embedded_text(kind: IndexKind, context: str, text: str) -> str:
    """The passage as a model reads it: what stands above it first, and code without its white space."""
    body = compact(text) if kind == "code" else text
    return f"{context}\n{body}" if context else body
