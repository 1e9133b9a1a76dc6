"""Puts small neighbouring pieces of a document together, as far as they belong under the same heading or definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

Path = tuple[str, ...]
"""The headings or definitions something stands under, outermost first."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document that its own structure sets apart."""

    start: int
    end: int
    path: Path
    is_definition: bool = False


@dataclass(slots=True)
class _Group:
    """Pieces put together. `place` is where the first one stood, `path` what all of them stand under."""

    start: int
    end: int
    place: Path
    path: Path
    is_definition: bool


Fits = Callable[[int, int], bool]
"""Whether text[start:end] is small enough for one passage."""


def gathered(pieces: Iterable[Piece], least: int, room_for_definitions: int, fits: Fits) -> list[Piece]:
    """The pieces, in order, with neighbours joined that are too small to stand alone or are parts of one thing.

    Smaller than `least` joins what follows, or else what went before. Definitions join while they are together no
    longer than `room_for_definitions`; other code of the same place, such as statements of one function, as long as
    it fits.
    """
    done: list[_Group] = []
    group: _Group | None = None

    def close(closing: _Group) -> None:
        last = done[-1] if done else None
        small = closing.end - closing.start < least
        if small and last and _related(last.place, closing.place) and fits(last.start, closing.end):
            _join(last, closing, least)
        else:
            done.append(closing)

    for piece in pieces:
        if group and _joins(group, piece, least, room_for_definitions) and _has_room(group, piece, least, fits):
            _join(group, piece, least)
            continue
        if group:
            close(group)
        group = _Group(piece.start, piece.end, piece.path, piece.path, piece.is_definition)
    if group:
        close(group)
    return [Piece(each.start, each.end, each.path, each.is_definition) for each in done]


def _joins(group: _Group, piece: Piece, least: int, room_for_definitions: int) -> bool:
    if not _related(group.place, piece.path):
        return False
    if group.end - group.start < least:
        return True
    if group.is_definition != piece.is_definition:
        return False
    if group.is_definition:
        return piece.end - group.start <= room_for_definitions
    return room_for_definitions > 0 and group.path == piece.path


def _has_room(group: _Group, piece: Piece, least: int, fits: Fits) -> bool:
    if fits(group.start, piece.end):
        return True
    # What has to be cut anyway can as well begin a little earlier.
    return group.end - group.start < least and not fits(piece.start, piece.end)


def _related(first: Path, second: Path) -> bool:
    """Siblings, or one right under the other."""
    if len(first) == len(second):
        return first[:-1] == second[:-1]
    return second[: len(first)] == first or second == first[:-1]


def _join(group: _Group, added: Piece | _Group, least: int) -> None:
    shared = 0
    for ours, theirs in zip(group.path, added.path, strict=False):
        if ours != theirs:
            break
        shared += 1
    path = group.path[:shared]
    # A heading without a text, or an import above a class, does not hide what the rest is about.
    if path == group.path and group.end - group.start < least:
        path = added.path
    elif path == added.path and added.end - added.start < least:
        path = group.path
    group.path = path
    group.end = added.end
    group.is_definition = group.is_definition or added.is_definition
