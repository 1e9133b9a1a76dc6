"""Merges small neighbouring segments of a document under the same heading or definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Path = tuple[str, ...]
"""The headings or definitions around a segment, outermost first."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A structural part of a document, such as a section or a definition."""

    start: int
    end: int
    path: Path
    is_definition: bool = False


@dataclass(slots=True)
class _Group:
    """Merged segments. `place` is the path of the first one, `path` the context of all."""

    start: int
    end: int
    place: Path
    path: Path
    is_definition: bool


Fits = Callable[[int, int], bool]
"""Whether text[start:end] is small enough for one chunk."""


def merge_segments(segments: Iterable[Segment], min_size: int, max_definitions_size: int, fits: Fits) -> list[Segment]:
    """The segments in order, with small and related neighbours merged.

    A segment smaller than `min_size` is merged with the next one, or else with the previous one. Definitions are merged
    up to `max_definitions_size`; other code with the same path, such as the statements of a function, while it fits.
    """
    done: list[_Group] = []
    group: _Group | None = None

    def close(closing: _Group) -> None:
        last = done[-1] if done else None
        small = closing.end - closing.start < min_size
        if small and last and _related(last.place, closing.place) and fits(last.start, closing.end):
            _join(last, closing, min_size)
        else:
            done.append(closing)

    for segment in segments:
        if group and _joins(group, segment, min_size, max_definitions_size):
            is_small = group.end - group.start < min_size
            # A segment that must be split anyway can start a little earlier.
            if fits(group.start, segment.end) or (is_small and not fits(segment.start, segment.end)):
                _join(group, segment, min_size)
                continue
        if group:
            close(group)
        group = _Group(segment.start, segment.end, segment.path, segment.path, segment.is_definition)
    if group:
        close(group)
    return [Segment(each.start, each.end, each.path, each.is_definition) for each in done]


def _joins(group: _Group, segment: Segment, min_size: int, max_definitions_size: int) -> bool:
    if not _related(group.place, segment.path):
        return False
    if group.end - group.start < min_size:
        return True
    if group.is_definition != segment.is_definition:
        return False
    if group.is_definition:
        return segment.end - group.start <= max_definitions_size
    return max_definitions_size > 0 and group.path == segment.path


def _related(first: Path, second: Path) -> bool:
    """Whether the paths are siblings, or one is the parent of the other."""
    if len(first) == len(second):
        return first[:-1] == second[:-1]
    return second[: len(first)] == first or second == first[:-1]


def _join(group: _Group, added: Segment | _Group, min_size: int) -> None:
    shared = 0
    for ours, theirs in zip(group.path, added.path, strict=False):
        if ours != theirs:
            break
        shared += 1
    path = group.path[:shared]
    # A small part, such as an import above a class, does not change the path.
    if path == group.path and group.end - group.start < min_size:
        path = added.path
    elif path == added.path and added.end - added.start < min_size:
        path = group.path
    group.path = path
    group.end = added.end
    group.is_definition = group.is_definition or added.is_definition
