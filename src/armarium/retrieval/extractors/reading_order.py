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
_MAX_JUMPS = 12
"""More than the file's order has on a page for a reason; comparing each with each must stay cheap."""
_TOUCH = 1.0
_MAX_APART_LINES = 2


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
    # Short lines above or below both columns belong to the page, whichever side they stand on.
    head, foot = _apart(right, left, sign=1), _apart(left, right, sign=-1)
    moved = {id(piece) for piece in (*head, *foot)}
    left, right = ([piece for piece in side if id(piece) not in moved] for side in (left, right))
    spanning += [*head, *foot]
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


def _apart(column: Sequence[Piece], other: Sequence[Piece], *, sign: int) -> list[Piece]:
    """The one or two lines of a column that lie beyond all of the other one, above (1) or below (-1), after a gap."""
    if not other:
        return []
    end = max(sign * (piece.top if sign > 0 else piece.bottom) for piece in other)
    heights = sorted({round(sign * piece.middle, 1) for piece in column}, reverse=True)
    steps = [beyond - within for beyond, within in pairwise(heights)]
    beyond = sum(height > end for height in heights)
    if not 0 < beyond <= min(_MAX_APART_LINES, len(steps)) or steps[beyond - 1] <= median(steps) * _PARAGRAPH_GAP:
        return []
    return [piece for piece in column if sign * piece.middle > end]


class _Run:
    """Lines that follow each other in the file and down the page."""

    def __init__(self, lines: list[list[Piece]]) -> None:
        self.lines = lines
        self.top = max(piece.top for piece in lines[0])
        self.bottom = min(piece.bottom for piece in lines[-1])

    def is_above(self, other: _Run) -> bool:
        """Whether all of it is; what stands side by side is not."""
        return self.bottom > other.top - _TOUCH


def _top_down(pieces: Sequence[Piece]) -> list[Piece]:
    """As the file has them, run by run, but no run before one that is above it.

    The file's order within a run is right even where lines stand side by side. Only where it keeps jumping up the page
    it means nothing.
    """
    lines = _lines(pieces)
    runs = _runs(lines)
    jumps = len(runs) - 1
    if jumps > max(2, len(lines) * _MAX_UPWARD_SHARE):
        return sorted(pieces, key=lambda piece: (-round(piece.middle / 3), piece.left))
    if not 0 < jumps <= _MAX_JUMPS:
        return list(pieces)
    waiting = [part for run in runs for part in _cut_around(run, runs)]
    ordered: list[Piece] = []
    while waiting:
        # Boxes that lie can make each of two runs the one above; then the file's order decides.
        topmost = (run for run in waiting if not any(other.is_above(run) for other in waiting if other is not run))
        first = next(topmost, waiting[0])
        waiting.remove(first)
        ordered += [piece for line in first.lines for piece in line]
    return ordered


def _runs(lines: Sequence[list[Piece]]) -> list[_Run]:
    runs: list[list[list[Piece]]] = []
    for line in lines:
        if runs and line[0].middle <= runs[-1][-1][0].middle + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return [_Run(run) for run in runs]


def _cut_around(run: _Run, runs: Sequence[_Run]) -> list[_Run]:
    """The run in parts, where others belong in between: a header and a footer are often one run, before the text."""
    parts = [[run.lines[0]]]
    for above, below in pairwise(_Run([line]) for line in run.lines):
        if any(above.is_above(other) and other.is_above(below) for other in runs if other is not run):
            parts.append(below.lines)
        else:
            parts[-1] += below.lines
    return [_Run(part) for part in parts]
