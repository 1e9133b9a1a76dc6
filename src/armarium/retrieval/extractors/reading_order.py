"""Sorts the text fragments of a page into reading order, column by column."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TypeVar

_Item = TypeVar("_Item")

_MIN_COLUMN_FRAGMENTS = 5
_MAX_SPANNING_SHARE = 0.5
_MIN_PROSE_CHARS = 15
_MIN_PROSE_FILL = 0.4
_EDGE_TOLERANCE = 4.0
_MAX_UPWARD_SHARE = 0.25
_MAX_COLUMN_SPLITS = 3
_PARAGRAPH_GAP = 1.4
_MAX_JUMPS = 12
"""More jumps than a meaningful order has, and few enough for pairwise comparison."""
_TOUCH = 1.0
_MAX_APART_LINES = 2


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a line without wide gaps, with its bounding box; y grows upwards."""

    text: str
    line: int
    """Fragments of one original line have the same number."""
    left: float
    right: float
    bottom: float
    top: float

    @property
    def middle(self) -> float:
        return (self.bottom + self.top) / 2


def page_text(fragments: Sequence[Fragment]) -> str:
    """The text of a page: lines in reading order, paragraphs separated by empty lines."""
    lines = _lines(in_reading_order(fragments))
    steps = [above[0].middle - below[0].middle for above, below in pairwise(lines)]
    pitch = median([step for step in steps if step > 0] or [0.0])
    text: list[str] = []
    for step, line in zip([0.0, *steps], lines, strict=False):
        if step > pitch * _PARAGRAPH_GAP:
            text.append("")
        text.append(" ".join(fragment.text for fragment in line))
    return "\n".join(text)


def _lines(fragments: Sequence[Fragment]) -> list[list[Fragment]]:
    return _grouped(fragments, lambda before, fragment: before.line == fragment.line)


def _grouped(items: Iterable[_Item], together: Callable[[_Item, _Item], bool]) -> list[list[_Item]]:
    """Consecutive items; a group ends where its last item and the next one are not `together`."""
    groups: list[list[_Item]] = []
    for item in items:
        if groups and together(groups[-1][-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def in_reading_order(fragments: Sequence[Fragment], splits_left: int = _MAX_COLUMN_SPLITS) -> list[Fragment]:
    """The left column, then the right one. Fragments that span both separate the columns above and below them."""
    gutter = _gutter(fragments) if splits_left else None
    if gutter is None:
        return _top_down(fragments)
    left, right, spanning = _sides(fragments, gutter)
    # Short lines above or below both columns belong to the whole page.
    head, foot = _apart(right, left, sign=1), _apart(left, right, sign=-1)
    moved = {id(fragment) for fragment in (*head, *foot)}
    left, right = ([fragment for fragment in side if id(fragment) not in moved] for side in (left, right))
    spanning += [*head, *foot]
    spanning.sort(key=lambda fragment: -fragment.middle)
    heights = [-fragment.middle for fragment in spanning]
    bands: list[tuple[list[Fragment], list[Fragment]]] = [([], []) for _ in range(len(spanning) + 1)]
    for side, column in enumerate((left, right)):
        for fragment in column:
            bands[bisect_left(heights, -fragment.middle)][side].append(fragment)
    ordered: list[Fragment] = []
    for band, below in zip(bands, [*spanning, None], strict=True):
        for column in band:
            ordered += in_reading_order(column, splits_left - 1)
        if below:
            ordered.append(below)
    return ordered


def _sides(fragments: Sequence[Fragment], gutter: float) -> tuple[list[Fragment], list[Fragment], list[Fragment]]:
    left: list[Fragment] = []
    right: list[Fragment] = []
    spanning: list[Fragment] = []
    for fragment in fragments:
        if fragment.right <= gutter:
            left.append(fragment)
        elif fragment.left >= gutter - _EDGE_TOLERANCE:
            right.append(fragment)
        else:
            spanning.append(fragment)
    if left:
        # A page number in the middle belongs to neither column.
        column_end = sorted(fragment.right for fragment in left)[len(left) * 9 // 10]
        spanning += [fragment for fragment in left if fragment.left >= column_end]
        left = [fragment for fragment in left if fragment.left < column_end]
    return left, right, spanning


def _gutter(fragments: Sequence[Fragment]) -> float | None:
    """The left edge of the right column: many fragments start there, few cross it, and both sides are prose."""
    if len(fragments) < 2 * _MIN_COLUMN_FRAGMENTS:
        return None
    start, end = min(fragment.left for fragment in fragments), max(fragment.right for fragment in fragments)
    edges = sorted(
        fragment.left
        for fragment in fragments
        if start + (end - start) * 0.2 < fragment.left < end - (end - start) * 0.15
    )
    most, gutter, first = 0, None, 0
    for index, edge in enumerate(edges):
        while edge - edges[first] > _EDGE_TOLERANCE:
            first += 1
        if index - first + 1 > most:
            most, gutter = index - first + 1, edges[first]
    if gutter is None or most < _MIN_COLUMN_FRAGMENTS:
        return None
    left, right, spanning = _sides(fragments, gutter)
    if len(spanning) > len(fragments) * _MAX_SPANNING_SHARE or not _side_by_side(left, right):
        return None
    return gutter if _is_prose(left, gutter - start) and _is_prose(right, end - gutter) else None


def _is_prose(column: Sequence[Fragment], width: float) -> bool:
    """Whether lines fill the column, unlike the cells of a table."""
    if len(column) < _MIN_COLUMN_FRAGMENTS:
        return False
    typical_chars = median(len(fragment.text) for fragment in column)
    typical_width = median(fragment.right - fragment.left for fragment in column)
    return typical_chars >= _MIN_PROSE_CHARS and typical_width >= width * _MIN_PROSE_FILL


def _side_by_side(left: Sequence[Fragment], right: Sequence[Fragment]) -> bool:
    if not left or not right:
        return False
    lowest_top = min(max(fragment.top for fragment in left), max(fragment.top for fragment in right))
    highest_bottom = max(min(fragment.bottom for fragment in left), min(fragment.bottom for fragment in right))
    return lowest_top > highest_bottom


def _apart(column: Sequence[Fragment], other: Sequence[Fragment], *, sign: int) -> list[Fragment]:
    """One or two lines of a column that are above (1) or below (-1) all of the other column, after a gap."""
    if not other:
        return []
    end = max(sign * (fragment.top if sign > 0 else fragment.bottom) for fragment in other)
    heights = sorted({round(sign * fragment.middle, 1) for fragment in column}, reverse=True)
    steps = [beyond - within for beyond, within in pairwise(heights)]
    beyond = sum(height > end for height in heights)
    if not 0 < beyond <= min(_MAX_APART_LINES, len(steps)) or steps[beyond - 1] <= median(steps) * _PARAGRAPH_GAP:
        return []
    return [fragment for fragment in column if sign * fragment.middle > end]


class _Run:
    """Consecutive lines of the file that go down the page."""

    def __init__(self, lines: list[list[Fragment]]) -> None:
        self.lines = lines
        self.top = max(fragment.top for fragment in lines[0])
        self.bottom = min(fragment.bottom for fragment in lines[-1])

    def is_above(self, other: _Run) -> bool:
        """Whether all of it is above `other`. Runs side by side are not."""
        return self.bottom > other.top - _TOUCH


def _top_down(fragments: Sequence[Fragment]) -> list[Fragment]:
    """The order of the file, run by run, but no run before one that is above it. Within a run, the order of the file is
    correct even for lines side by side. It is ignored if it jumps up too often."""
    lines = _lines(fragments)
    runs = [_Run(run) for run in _grouped(lines, lambda above, line: line[0].middle <= above[0].middle + 1)]
    jumps = len(runs) - 1
    if jumps > max(2, len(lines) * _MAX_UPWARD_SHARE):
        return sorted(fragments, key=lambda fragment: (-round(fragment.middle / 3), fragment.left))
    if not 0 < jumps <= _MAX_JUMPS:
        return list(fragments)
    waiting = [part for run in runs for part in _cut_around(run, runs)]
    ordered: list[Fragment] = []
    while waiting:
        # With wrong bounding boxes, two runs can each be above the other; then the order of the file decides.
        topmost = (run for run in waiting if not any(other.is_above(run) for other in waiting if other is not run))
        first = next(topmost, waiting[0])
        waiting.remove(first)
        ordered += [fragment for line in first.lines for fragment in line]
    return ordered


def _cut_around(run: _Run, runs: Sequence[_Run]) -> list[_Run]:
    """The run, split where another run belongs in between: header and footer are often one run before the text."""
    others = [other for other in runs if other is not run]

    def adjoin(above: _Run, below: _Run) -> bool:
        return not any(above.is_above(other) and other.is_above(below) for other in others)

    parts = _grouped((_Run([line]) for line in run.lines), adjoin)
    return [_Run([line for single in part for line in single.lines]) for part in parts]
