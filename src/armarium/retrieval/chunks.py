"""What extraction hands to chunking, and what chunking hands on: a document's text, and the passages cut from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from armarium.retrieval.spans import Span

IndexKind = Literal["text", "code"]
RepType = Literal["raw_text", "ocr_markdown", "transcript", "annotation_json", "annotation_text"]
Structure = Literal["plain", "markdown", "code", "rows"]
"""How a text is cut: at paragraphs, at headings, at definitions, at lines that each stand for themselves."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a document, and what is known about its structure."""

    text: str
    """Line ends are `\\n`; no NUL and no half surrogates, so that it can be stored and sent anywhere."""
    structure: Structure = "plain"
    language: str | None = None
    """For `code`: the name of its grammar, as `retrieval.document_types` knows it; None when there is none."""
    title: str | None = None
    """The document's own title, where the format has one."""
    page_starts: Sequence[int] | None = None
    """Where in `text` each page or slide begins, the first at 0. None: the document has no pages."""
    source_lines: Sequence[tuple[int, int]] | None = None
    """For each line of `text`, the first and last line of the file it came from. None: the lines are the file's own, or
    the file has none and lines of `text` are what a citation counts."""
    is_file: bool = False
    """Whether the lines of `text` are the lines of the file itself."""
    rep_type: RepType = "raw_text"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: what is embedded, found and cited."""

    text: str
    """Exactly `extracted.text[start:end]`."""
    start: int
    end: int
    span: Span
    context: str
    """What stands above it: the path of headings, or the definitions it is inside of. Found with it, not cited."""
    index_kind: IndexKind
