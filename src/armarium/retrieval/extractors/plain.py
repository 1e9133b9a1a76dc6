"""Extracts what is text already: code, prose, Markdown and data."""

from __future__ import annotations

from armarium.retrieval.chunks import Extracted, Structure
from armarium.retrieval.document_types import Format
from armarium.retrieval.encodings import decode

_ROWS = frozenset({"csv", "tsv", "jsonl"})


def extract_plain(form: Format, data: bytes) -> Extracted:
    """The file's own lines."""
    return Extracted(decode(data), structure=_structure(form), language=form.language, is_file=True)


def _structure(form: Format) -> Structure:
    if form.doc_type == "code":
        return "code"
    if form.doc_type == "md":
        return "markdown"
    return "rows" if form.name in _ROWS else "plain"
