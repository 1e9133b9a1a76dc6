"""The text of a document, the chunks it is split into, and the limits of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from armarium.retrieval.spans import Span

IndexKind = Literal["text", "code"]
RepType = Literal["raw_text", "ocr_markdown", "transcript", "annotation_json", "annotation_text"]
Structure = Literal["plain", "markdown", "code", "rows"]
"""Where a text is split: at paragraphs, at headings, at definitions, or at lines that are independent records."""


@dataclass(frozen=True, slots=True)
class ExtractedText:
    """The text of a document and its structure."""

    text: str
    """Lines end with `\\n`. Contains no NUL and no unpaired surrogates, so that it can be stored and sent anywhere."""
    structure: Structure = "plain"
    language: str | None = None
    """For `code`: the name of its format. A language without a grammar is split by lines."""
    title: str | None = None
    """The title in the document's metadata, if any."""
    page_starts: Sequence[int] | None = None
    """The offset in `text` of each page or slide, the first at 0. None: the document has no pages."""
    source_lines: Sequence[tuple[int, int]] | None = None
    """For each line of `text`, the first and last line of the file that it comes from. None: citations count the lines
    of `text` itself."""
    is_file: bool = False
    """Whether the lines of `text` are the lines of the file."""
    rep_type: RepType = "raw_text"


def join_pages(pages: Sequence[str]) -> tuple[str, list[int]]:
    """The text of all pages, and the offset at which each page starts. A page without text has no length."""
    starts: list[int] = []
    pieces: list[str] = []
    length = 0
    for page in pages:
        starts.append(length)
        if text := page.strip("\n"):
            pieces.append(text + "\n")
            length += len(text) + 1
    return "".join(pieces), starts


@dataclass(frozen=True, slots=True)
class ExtractLimits:
    """Bounds of size. Time is not bounded here: callers run extraction in a process that they can kill."""

    max_pages: int = 2_000
    """Further pages of a PDF are skipped and counted."""
    max_cells: int = 500_000
    """Further rows of a workbook are skipped."""
    max_messages: int = 10_000
    """Further messages of a mailbox are skipped."""
    max_unpacked_bytes: int = 256 * 1024 * 1024
    """The total uncompressed size of a zipped document."""
    max_part_bytes: int = 96 * 1024 * 1024
    """The uncompressed size of one part. Its parsed tree needs ten times as much memory."""
    max_ratio: int = 200
    """The compression ratio of a zipped document."""
    max_parts: int = 20_000
    """The number of parts in a zipped document."""


DEFAULT_LIMITS = ExtractLimits()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document that is embedded, found and cited."""

    text: str
    """Exactly `extracted.text[start:end]`."""
    start: int
    end: int
    span: Span
    context: str
    """The path of headings above it, or of the definitions around it. Indexed with the text, but not cited."""
    index_kind: IndexKind


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    max_chars: int = 2500
    overlap_chars: int = 250
    """How much of a chunk the next one repeats when the split is inside a paragraph or statement."""
    min_chars: int = 200
    """Smaller neighbours are merged if they are under the same heading or definition."""
    code_max_lines: int = 200
    code_overlap_lines: int = 30
    """How many lines neighbouring windows over code share, within `overlap_chars`."""

    @property
    def min_size(self) -> int:
        """`min_chars`, but at most half of `max_chars`, so that two chunks of this size always fit into one."""
        return min(self.min_chars, self.max_chars // 2)
