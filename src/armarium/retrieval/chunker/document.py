"""Cuts the text of a document into passages, each with the lines or the page that a citation of it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from operator import methodcaller

from armarium.retrieval.chunker.definitions import definitions
from armarium.retrieval.chunker.limits import ChunkLimits
from armarium.retrieval.chunker.markdown import Outline, sections
from armarium.retrieval.chunker.segments import gathered
from armarium.retrieval.chunker.windows import (
    after_blank_lines,
    line_windows,
    prose_boundary,
    row_boundary,
    windows,
)
from armarium.retrieval.chunks import Chunk, Extracted, IndexKind
from armarium.retrieval.spans import Lines, Page, Span

Passage = tuple[int, int, str]
"""Where a passage begins and ends, and its context."""

_LINE_BREAK = re.compile("\n")
_HEADER = re.compile(r"[^\n,;\t|]*[,;\t|][^\n]*")
_NUMBER_FIELD = re.compile(r"(?:^|[,;\t|])[\s\"']*[-+]?\d[\d.,:/ -]*[\"'\s]*(?=$|[,;\t|])")
_MAX_HEADER_CHARS = 500


def chunk(extracted: Extracted, limits: ChunkLimits) -> list[Chunk]:
    """The passages of a document, in the order of its text.

    Everything but whitespace is in at least one passage, no passage is longer than `max_chars`, none crosses a page.
    """
    kind: IndexKind = "code" if extracted.structure == "code" else "text"
    places = _Places(extracted)
    outline: Outline = []
    chunks: list[Chunk] = []
    for number, (page_start, page_end) in enumerate(_pages(extracted), start=1):
        for start, end, context in _passages(extracted, page_start, page_end, limits, outline):
            start = after_blank_lines(extracted.text, start, end)
            text = extracted.text[start:end].rstrip()
            if text:
                end = start + len(text)
                span = Page(number) if extracted.page_starts is not None else places.lines(start, end)
                chunks.append(Chunk(text, start, end, span, context, kind))
    return chunks


class _Places:
    """Tells the lines of passages that are asked for in the order of their beginnings."""

    def __init__(self, extracted: Extracted) -> None:
        self._text = extracted.text
        self._source_lines = extracted.source_lines
        self._at = 0
        self._line = 0

    def lines(self, start: int, end: int) -> Span:
        self._line += self._text.count("\n", self._at, start)
        self._at = start
        first, last = self._line, self._line + self._text.count("\n", start, end)
        if self._source_lines is None:
            return Lines(first + 1, last + 1)
        came_from = self._source_lines[first : last + 1]
        return Lines(min(line for line, _ in came_from), max(line for _, line in came_from))


def _pages(extracted: Extracted) -> Iterator[tuple[int, int]]:
    edges = [*(extracted.page_starts or (0,)), len(extracted.text)]
    return pairwise(edges)


def _passages(extracted: Extracted, start: int, end: int, limits: ChunkLimits, outline: Outline) -> Iterator[Passage]:
    text = extracted.text
    match extracted.structure:
        case "plain":
            return ((*window, "") for window in windows(text, start, end, limits, prose_boundary))
        case "rows":
            return _row_passages(text, start, end, limits)
        case "markdown":
            return _section_passages(text, start, end, limits, outline)
        case "code":
            return _code_passages(text, start, end, limits, extracted.language)


def _section_passages(text: str, start: int, end: int, limits: ChunkLimits, outline: Outline) -> Iterator[Passage]:
    def fits(start: int, end: int) -> bool:
        return end - start <= limits.max_chars

    for piece in gathered(sections(text, start, end, outline), limits.least, 0, fits):
        context = " > ".join(piece.path)
        for window in windows(text, piece.start, piece.end, limits, prose_boundary):
            yield (*window, context)


def _row_passages(text: str, start: int, end: int, limits: ChunkLimits) -> Iterator[Passage]:
    start = after_blank_lines(text, start, end)
    header = _HEADER.match(text, start, min(end, start + _MAX_HEADER_CHARS + 1))
    named = header is not None and len(header[0]) <= _MAX_HEADER_CHARS and _is_header(header[0])
    for window in windows(text, start, end, limits, row_boundary):
        # The first passage holds the header itself.
        yield (*window, header[0].strip() if header and named and window[0] > start else "")


def _is_header(line: str) -> bool:
    return line.lstrip()[:1] not in ("{", "[", "<") and not _NUMBER_FIELD.search(line)


def _code_passages(text: str, start: int, end: int, limits: ChunkLimits, language: str | None) -> Iterator[Passage]:
    code = text[start:end]
    line_starts: list[int] = [0, *map(methodcaller("end"), _LINE_BREAK.finditer(code, 0, len(code) - 1))]

    def fits(start: int, end: int) -> bool:
        return end - start <= limits.max_chars and code.count("\n", start, end) <= limits.code_max_lines

    pieces = None
    if len(code) > limits.max_chars // 2 or not fits(0, len(code)):
        pieces = definitions(code, line_starts, language, fits)
    if pieces is None:
        for window in line_windows(code, 0, len(code), limits, line_starts):
            yield window[0] + start, window[1] + start, ""
        return
    for piece in gathered(pieces, limits.least, limits.max_chars // 2, fits):
        context = " > ".join(piece.path)
        for window in line_windows(code, piece.start, piece.end, limits, line_starts):
            yield window[0] + start, window[1] + start, context
