"""Creates the unified diff of two versions of a file, in bounded time."""

from __future__ import annotations

import io
import os
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_CONTEXT_LINES = 3
_NO_NEWLINE = b"\n\\ No newline at end of file\n"
# The search for the shortest edit is quadratic in the number of edits. Beyond these limits (a few seconds) a region is
# shown as replaced, which is correct but longer than necessary.
_MAX_EDITS = 2_000
_MAX_STEPS = 5_000_000


class Change(NamedTuple):
    """Lines [old_from, old_to) of the old version became lines [new_from, new_to) of the new one."""

    old_from: int
    old_to: int
    new_from: int
    new_to: int


def unified_diff(before: bytes | None, after: bytes, path: str) -> bytes:
    """The diff from `before` (None: no file) to `after`; empty if no line differs."""
    old, new = io.BytesIO(before or b"").readlines(), io.BytesIO(after).readlines()
    changes = _Comparison(old, new).changes()
    if not changes:
        return b""
    old_name = b"/dev/null" if before is None else _header_name(f"a/{path}")
    parts = [b"--- ", old_name, b"\n+++ ", _header_name(f"b/{path}"), b"\n"]
    for group in _groups(changes):
        parts += _hunk(old, new, group)
    return b"".join(parts)


def _header_name(name: str) -> bytes:
    raw = os.fsencode(name)
    if any(char < " " or char in '"\\\x7f' or "\udc80" <= char <= "\udcff" for char in name):
        shown = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in raw)
        return b'"' + "".join(shown).encode() + b'"'
    # A tab ends the name, so that the name can contain spaces.
    return raw + b"\t" if b" " in raw else raw


def _groups(changes: list[Change]) -> Iterator[list[Change]]:
    """Group changes whose context overlaps into one hunk."""
    group = [changes[0]]
    for change in changes[1:]:
        if change.old_from - group[-1].old_to > 2 * _CONTEXT_LINES:
            yield group
            group = []
        group.append(change)
    yield group


def _hunk(old: list[bytes], new: list[bytes], group: list[Change]) -> Iterator[bytes]:
    first, last = group[0], group[-1]
    lead = min(_CONTEXT_LINES, first.old_from)
    trail = min(_CONTEXT_LINES, len(old) - last.old_to)
    old_range = _range(first.old_from - lead, last.old_to + trail)
    new_range = _range(first.new_from - lead, last.new_to + trail)
    yield f"@@ -{old_range} +{new_range} @@\n".encode()
    at = first.old_from - lead
    for change in group:
        yield from _signed(b" ", old[at : change.old_from])
        yield from _signed(b"-", old[change.old_from : change.old_to])
        yield from _signed(b"+", new[change.new_from : change.new_to])
        at = change.old_to
    yield from _signed(b" ", old[at : at + trail])


def _range(start: int, end: int) -> str:
    # An empty range names the line before it.
    return f"{start + 1},{end - start}" if end > start else f"{start},0"


def _signed(sign: bytes, lines: list[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield sign + line if line.endswith(b"\n") else sign + line + _NO_NEWLINE


class _Comparison:
    """Finds the changes: lines that are unique on both sides are anchors; shortest edits fill the gaps."""

    def __init__(self, old: list[bytes], new: list[bytes]) -> None:
        self._old, self._new = old, new
        self._steps_left = _MAX_STEPS

    def changes(self) -> list[Change]:
        whole = self._trimmed(Change(0, len(self._old), 0, len(self._new)))
        changes: list[Change] = []
        old_from, new_from = whole.old_from, whole.new_from
        for old_at, new_at in [*self._anchors(whole), (whole.old_to, whole.new_to)]:
            gap = self._trimmed(Change(old_from, old_at, new_from, new_at))
            if gap.old_from < gap.old_to and gap.new_from < gap.new_to:
                changes += self._shortest_edit(gap) or [gap]
            elif gap.old_from < gap.old_to or gap.new_from < gap.new_to:
                changes.append(gap)
            old_from, new_from = old_at + 1, new_at + 1
        return changes

    def _trimmed(self, region: Change) -> Change:
        old_from, old_to, new_from, new_to = region
        while old_from < old_to and new_from < new_to and self._old[old_from] == self._new[new_from]:
            old_from, new_from = old_from + 1, new_from + 1
        while old_from < old_to and new_from < new_to and self._old[old_to - 1] == self._new[new_to - 1]:
            old_to, new_to = old_to - 1, new_to - 1
        return Change(old_from, old_to, new_from, new_to)

    def _anchors(self, region: Change) -> list[tuple[int, int]]:
        """Pairs of equal lines, unique on each side of the region, in the longest run that both sides order alike."""
        old_counts = Counter(self._old[region.old_from : region.old_to])
        new_counts = Counter(self._new[region.new_from : region.new_to])
        new_places = {self._new[at]: at for at in range(region.new_from, region.new_to)}
        pairs: list[tuple[int, int]] = []
        for old_at in range(region.old_from, region.old_to):
            line = self._old[old_at]
            if old_counts[line] == 1 and new_counts[line] == 1:
                pairs.append((old_at, new_places[line]))
        return _longest_rising(pairs)

    def _shortest_edit(self, gap: Change) -> list[Change] | None:
        """The shortest edit script (Myers' greedy algorithm), or None if it takes too many steps.

        reached[d][i] is how far down the old side d edits come on diagonal 2 * i - d (old index minus new index).
        """
        old, new = self._old[gap.old_from : gap.old_to], self._new[gap.new_from : gap.new_to]
        reached: list[array[int]] = []
        for edits in range(min(len(old) + len(new), _MAX_EDITS) + 1):
            row = array("q")
            for i in range(edits + 1):
                x = 0
                if reached:
                    before = reached[-1]
                    x = before[i] if _is_addition(before, i, edits) else before[i - 1] + 1
                y = x - (2 * i - edits)
                start = x
                while x < len(old) and y < len(new) and old[x] == new[y]:
                    x, y = x + 1, y + 1
                self._steps_left -= 1 + x - start
                row.append(x)
                if x >= len(old) and y >= len(new):
                    return _traced_back(reached, x, y, gap)
            if self._steps_left < 0:
                return None
            reached.append(row)
        return None


def _is_addition(row: array[int], i: int, edits: int) -> bool:
    """Whether the best path comes from row[i] by adding a line, not from row[i - 1] by removing one."""
    return i == 0 or (i < edits and row[i - 1] < row[i])


def _traced_back(reached: list[array[int]], x: int, y: int, gap: Change) -> list[Change]:
    changes: list[Change] = []
    for edits in range(len(reached), 0, -1):
        row, i = reached[edits - 1], (x - y + edits) // 2
        added = _is_addition(row, i, edits)
        before = i if added else i - 1
        x = row[before]
        y = x - (2 * before - (edits - 1))
        old_at, new_at = gap.old_from + x, gap.new_from + y
        change = Change(old_at, old_at + (not added), new_at, new_at + added)
        if changes and (change.old_to, change.new_to) == (changes[-1].old_from, changes[-1].new_from):
            later = changes.pop()
            change = Change(change.old_from, later.old_to, change.new_from, later.new_to)
        changes.append(change)
    return changes[::-1]


def _longest_rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence whose second members rise; the first members already do."""
    tails: list[int] = []  # tails[n]: the smallest second member that ends a run of n + 1
    tail_pairs: list[int] = []
    before: list[int] = []
    for at, (_, second) in enumerate(pairs):
        length = bisect_left(tails, second)
        before.append(tail_pairs[length - 1] if length else -1)
        if length == len(tails):
            tails.append(second)
            tail_pairs.append(at)
        else:
            tails[length] = second
            tail_pairs[length] = at
    run: list[tuple[int, int]] = []
    at = tail_pairs[-1] if tail_pairs else -1
    while at >= 0:
        run.append(pairs[at])
        at = before[at]
    return run[::-1]
