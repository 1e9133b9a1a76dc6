"""Splits the text of a document into chunks, each with its lines or its page for citations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from operator import methodcaller

from armarium.retrieval.chunker.definitions import definitions
from armarium.retrieval.chunker.markdown import Outline, sections
from armarium.retrieval.chunker.segments import merge_segments
from armarium.retrieval.chunker.windows import after_blank_lines, line_windows, prose_boundary, row_boundary, windows
from armarium.retrieval.chunks import Chunk, ChunkLimits, ExtractedText, IndexKind
from armarium.retrieval.spans import LineSpan, PageSpan, Span

_Range = tuple[int, int, str]
"""The start and the end of a chunk, and its context."""

_LINE_BREAK = re.compile("\n")
_HEADER = re.compile(r"[^\n,;\t|]*[,;\t|][^\n]*")
_NUMBER_FIELD = re.compile(r"(?:^|[,;\t|])[\s\"']*[-+]?\d[\d.,:/ -]*[\"'\s]*(?=$|[,;\t|])")
_MAX_HEADER_CHARS = 500


def chunk_document(extracted: ExtractedText, limits: ChunkLimits) -> list[Chunk]:
    """The chunks of a document, in the order of its text. All text except whitespace is in at least one chunk. No chunk
    is longer than `max_chars` or crosses a page break."""
    kind: IndexKind = "code" if extracted.structure == "code" else "text"
    lines = _LineCounter(extracted)
    outline: Outline = []
    chunks: list[Chunk] = []
    page_edges = [*(extracted.page_starts or (0,)), len(extracted.text)]
    for number, (page_start, page_end) in enumerate(pairwise(page_edges), start=1):
        for start, end, context in _ranges(extracted, page_start, page_end, limits, outline):
            start = after_blank_lines(extracted.text, start, end)
            if text := extracted.text[start:end].rstrip():
                end = start + len(text)
                span = PageSpan(number) if extracted.page_starts is not None else lines.span(start, end)
                chunks.append(Chunk(text, start, end, span, context, kind))
    return chunks


class _LineCounter:
    """Computes the lines of chunks, which must be given in the order of their starts."""

    def __init__(self, extracted: ExtractedText) -> None:
        self._text = extracted.text
        self._source_lines = extracted.source_lines
        self._at = 0
        self._line = 0

    def span(self, start: int, end: int) -> Span:
        self._line += self._text.count("\n", self._at, start)
        self._at = start
        first, last = self._line, self._line + self._text.count("\n", start, end)
        if self._source_lines is None:
            return LineSpan(first + 1, last + 1)
        came_from = self._source_lines[first : last + 1]
        return LineSpan(min(line for line, _ in came_from), max(line for _, line in came_from))


def _ranges(extracted: ExtractedText, start: int, end: int, limits: ChunkLimits, outline: Outline) -> Iterator[_Range]:
    text = extracted.text
    match extracted.structure:
        case "plain":
            return ((*window, "") for window in windows(text, start, end, limits, prose_boundary))
        case "rows":
            return _row_ranges(text, start, end, limits)
        case "markdown":
            return _section_ranges(text, start, end, limits, outline)
        case "code":
            return _code_ranges(text, start, end, limits, extracted.language)


def _section_ranges(text: str, start: int, end: int, limits: ChunkLimits, outline: Outline) -> Iterator[_Range]:
    def fits(start: int, end: int) -> bool:
        return end - start <= limits.max_chars

    for segment in merge_segments(sections(text, start, end, outline), limits.min_size, 0, fits):
        context = " > ".join(segment.path)
        for window in windows(text, segment.start, segment.end, limits, prose_boundary):
            yield (*window, context)


def _row_ranges(text: str, start: int, end: int, limits: ChunkLimits) -> Iterator[_Range]:
    start = after_blank_lines(text, start, end)
    header = _HEADER.match(text, start, min(end, start + _MAX_HEADER_CHARS + 1))
    line = header[0] if header and len(header[0]) <= _MAX_HEADER_CHARS else ""
    named = line.lstrip()[:1] not in ("{", "[", "<") and not _NUMBER_FIELD.search(line)
    for window in windows(text, start, end, limits, row_boundary):
        # The first chunk contains the header itself.
        yield (*window, line.strip() if named and window[0] > start else "")


def _code_ranges(text: str, start: int, end: int, limits: ChunkLimits, language: str | None) -> Iterator[_Range]:
    code = text[start:end]
    line_starts: list[int] = [0, *map(methodcaller("end"), _LINE_BREAK.finditer(code, 0, len(code) - 1))]

    def fits(start: int, end: int) -> bool:
        return end - start <= limits.max_chars and code.count("\n", start, end) <= limits.code_max_lines

    segments = None
    if len(code) > limits.max_chars // 2 or not fits(0, len(code)):
        segments = definitions(code, line_starts, language, fits)
    if segments is None:
        for window in line_windows(code, 0, len(code), limits, line_starts):
            yield window[0] + start, window[1] + start, ""
        return
    for segment in merge_segments(segments, limits.min_size, limits.max_chars // 2, fits):
        context = " > ".join(segment.path)
        for window in line_windows(code, segment.start, segment.end, limits, line_starts):
            yield window[0] + start, window[1] + start, context
