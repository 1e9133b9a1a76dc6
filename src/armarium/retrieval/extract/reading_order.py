"""Puts the pieces of a page's text into the order they are read in: one column after the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

_MIN_COLUMN_PIECES = 5
_MAX_SPANNING_SHARE = 0.5
_MIN_PROSE_CHARS = 15
_MIN_PROSE_FILL = 0.4
_EDGE_TOLERANCE = 4.0
_MAX_UPWARD_SHARE = 0.25
_MAX_COLUMN_SPLITS = 3
_PARAGRAPH_GAP = 1.4


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one line without wide gaps, and where on the page it stands; y grows upwards."""

    text: str
    line: int
    """Pieces of the same number were on one line to begin with."""
    left: float
    right: float
    bottom: float
    top: float

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2


def page_text(pieces: Sequence[Piece]) -> str:
    """The text of a page: lines in reading order, paragraphs apart by an empty line."""
    lines = _lines(in_reading_order(pieces))
    steps = [above[0].middle - below[0].middle for above, below in pairwise(lines)]
    pitch = median([step for step in steps if step > 0] or [0.0])
    text: list[str] = []
    for step, line in zip([0.0, *steps], lines, strict=False):
        if step > pitch * _PARAGRAPH_GAP:
            text.append("")
        text.append(" ".join(piece.text for piece in line))
    return "\n".join(text)


def _lines(pieces: Sequence[Piece]) -> list[list[Piece]]:
    lines: list[list[Piece]] = []
    for piece in pieces:
        if lines and lines[-1][-1].line == piece.line:
            lines[-1].append(piece)
        else:
            lines.append([piece])
    return lines


def in_reading_order(pieces: Sequence[Piece], splits_left: int = _MAX_COLUMN_SPLITS) -> list[Piece]:
    """Down the left column, then the right one; what spans both stands between what is above and below it."""
    gutter = _gutter(pieces) if splits_left else None
    if gutter is None:
        return _top_down(pieces)
    left, right, spanning = _sides(pieces, gutter)
    spanning.sort(key=lambda piece: -piece.middle)
    heights = [-piece.middle for piece in spanning]
    bands: list[tuple[list[Piece], list[Piece]]] = [([], []) for _ in range(len(spanning) + 1)]
    for side, column in enumerate((left, right)):
        for piece in column:
            bands[bisect_left(heights, -piece.middle)][side].append(piece)
    ordered: list[Piece] = []
    for band, below in zip(bands, [*spanning, None], strict=True):
        for column in band:
            ordered += in_reading_order(column, splits_left - 1)
        if below:
            ordered.append(below)
    return ordered


def _sides(pieces: Sequence[Piece], gutter: float) -> tuple[list[Piece], list[Piece], list[Piece]]:
    left: list[Piece] = []
    right: list[Piece] = []
    spanning: list[Piece] = []
    for piece in pieces:
        if piece.right <= gutter:
            left.append(piece)
        elif piece.left >= gutter - _EDGE_TOLERANCE:
            right.append(piece)
        else:
            spanning.append(piece)
    if left:
        # A page number in the middle stands between the columns, and belongs to neither.
        column_end = sorted(piece.right for piece in left)[len(left) * 9 // 10]
        spanning += [piece for piece in left if piece.left >= column_end]
        left = [piece for piece in left if piece.left < column_end]
    return left, right, spanning


def _gutter(pieces: Sequence[Piece]) -> float | None:
    """Where the right column begins: an edge that many pieces start at and few cross, with prose on both sides."""
    if len(pieces) < 2 * _MIN_COLUMN_PIECES:
        return None
    start, end = min(piece.left for piece in pieces), max(piece.right for piece in pieces)
    edges = sorted(
        piece.left for piece in pieces if start + (end - start) * 0.2 < piece.left < end - (end - start) * 0.15
    )
    most, gutter, first = 0, None, 0
    for index, edge in enumerate(edges):
        while edge - edges[first] > _EDGE_TOLERANCE:
            first += 1
        if index - first + 1 > most:
            most, gutter = index - first + 1, edges[first]
    if gutter is None or most < _MIN_COLUMN_PIECES:
        return None
    left, right, spanning = _sides(pieces, gutter)
    if len(spanning) > len(pieces) * _MAX_SPANNING_SHARE or not _side_by_side(left, right):
        return None
    return gutter if _is_prose(left, gutter - start) and _is_prose(right, end - gutter) else None


def _is_prose(column: Sequence[Piece], width: float) -> bool:
    """Whether lines fill the column, as the cells of a table do not."""
    if len(column) < _MIN_COLUMN_PIECES:
        return False
    typical_chars = median(len(piece.text) for piece in column)
    typical_width = median(piece.right - piece.left for piece in column)
    return typical_chars >= _MIN_PROSE_CHARS and typical_width >= width * _MIN_PROSE_FILL


def _side_by_side(left: Sequence[Piece], right: Sequence[Piece]) -> bool:
    if not left or not right:
        return False
    lowest_top = min(max(piece.top for piece in left), max(piece.top for piece in right))
    highest_bottom = max(min(piece.bottom for piece in left), min(piece.bottom for piece in right))
    return lowest_top > highest_bottom


def _top_down(pieces: Sequence[Piece]) -> list[Piece]:
    """As the file has them, which is nearly always right, unless they keep jumping up the page."""
    heights = [line[0].middle for line in _lines(pieces)]
    upward = sum(1 for above, below in pairwise(heights) if below > above + 1)
    if upward <= max(2, len(heights) * _MAX_UPWARD_SHARE):
        return list(pieces)
    return sorted(pieces, key=lambda piece: (-round(piece.middle / 3), piece.left))
