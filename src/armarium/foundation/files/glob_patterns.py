"""Matches globs during a walk: selects names in a directory, and the subdirectories that can contain a match.

The pattern is an automaton over the names of a path, and the walk tracks its states. So a fixed depth or a literal
directory in the pattern excludes everything else from the walk.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, cached_property

from armarium.foundation.files.glob_syntax import Alternative, Segment, parse_glob
from armarium.foundation.files.walk import Entries, Selection

_State = tuple[int, int]
"""Index of an alternative, and of its segment that the next name must match."""

_EVERY_NAME = Segment(".*", suffix="")


def glob_selection(pattern: str) -> Selection:
    """Selects paths below the searched directory that match a glob."""
    return _Program(parse_glob(pattern)).start()


def filter_selection(pattern: str) -> Selection:
    """Selects files that match a filter: by name at any depth, or by path if the filter contains a "/"."""
    alternatives = parse_glob(pattern)
    if "/" not in pattern:
        alternatives = [Alternative((None, *alternative.segments)) for alternative in alternatives]
    return _Program(alternatives).start()


def path_matcher(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a path matches a file filter, without a walk."""
    directories: dict[str, Selection | None] = {"": filter_selection(pattern)}

    def within(directory: str) -> Selection | None:
        if directory not in directories:
            above, _, name = directory.rpartition("/")
            around = within(above)
            directories[directory] = around.enter(name) if around else None
        return directories[directory]

    def fits(path: str) -> bool:
        directory, _, name = path.rpartition("/")
        selection = within(directory)
        return isinstance(selection, _GlobSelection) and selection.takes(name)

    return fits


class _Program:
    """A compiled pattern, and its cached selections."""

    def __init__(self, alternatives: list[Alternative]) -> None:
        self.alternatives = alternatives
        self._selections: dict[frozenset[_State], _GlobSelection] = {}
        self.matcher = cache(_matcher)

    def start(self) -> Selection:
        states = {(number, 0) for number, alternative in enumerate(self.alternatives) if alternative.segments}
        return self.selection(states) or _GlobSelection(self, frozenset())

    def selection(self, states: set[_State]) -> _GlobSelection | None:
        """The selection for these states and those reached if `**` matches nothing."""
        for number, index in tuple(states):
            segments = self.alternatives[number].segments
            if segments[index] is None and index + 1 < len(segments):
                states.add((number, index + 1))
        if not states:
            return None
        key = frozenset(states)
        if key not in self._selections:
            self._selections[key] = _GlobSelection(self, key)
        return self._selections[key]


class _GlobSelection:
    """The states of the pattern in one directory."""

    def __init__(self, program: _Program, states: frozenset[_State]) -> None:
        self._program = program
        self._stays: set[_State] = set()
        self._moves: list[tuple[Callable[[str], object], _State]] = []
        wanted: list[Segment] = []
        wanted_directories: list[Segment] = []
        for number, index in sorted(states):
            alternative = program.alternatives[number]
            segment = alternative.segments[index]
            if segment is None:
                self._stays.add((number, index))
            elif index + 1 < len(alternative.segments):
                self._moves.append((program.matcher(segment), (number, index + 1)))
            if all(following is None for following in alternative.segments[index + 1 :]):
                (wanted_directories if alternative.only_directories else wanted).append(segment or _EVERY_NAME)
        self._choose = _chooser(wanted, wanted_directories)
        self._named = _matcher(*wanted)

    def choose(self, entries: Entries, directory: str, /) -> Entries:
        return self._choose(entries)

    def takes(self, name: str) -> bool:
        """Whether a file of that name in this directory is selected."""
        return bool(self._named(name))

    def enter(self, name: str, /) -> Selection | None:
        moved = [state for matches, state in self._moves if matches(name)]
        return self._program.selection({*self._stays, *moved}) if moved else self._otherwise

    @cached_property
    def _otherwise(self) -> Selection | None:
        """The selection below a name that does not advance the pattern. In a large tree these are most names."""
        return self._program.selection(set(self._stays))


def _matcher(*segments: Segment) -> Callable[[str], object]:
    if all(segment.literal is not None for segment in segments):
        return frozenset(segment.literal for segment in segments).__contains__
    return re.compile("|".join(f"(?:{segment.regex})" for segment in segments), re.DOTALL).fullmatch


def _chooser(wanted: list[Segment], wanted_directories: list[Segment]) -> Callable[[Entries], Entries]:
    """A function that selects entries of a listing. A substring test for each name is cheaper than a call."""
    if any(segment.suffix == "" for segment in wanted):
        return lambda entries: entries
    named, directories = _matcher(*wanted), _matcher(*wanted_directories)
    if wanted_directories:
        return lambda entries: [
            entry
            for entry in entries
            if named(entry.name) or (directories(entry.name) and entry.is_dir(follow_symlinks=False))
        ]
    if len(wanted) == 1 and (second := wanted[0].second_piece):
        # The longest substring may be a common prefix of all names.
        first = wanted[0].piece
        return lambda entries: [
            entry for entry in entries if first in entry.name and second in entry.name and named(entry.name)
        ]
    piece = min((segment.piece for segment in wanted), key=len, default="")
    if piece and all(piece in segment.piece for segment in wanted):
        return lambda entries: [entry for entry in entries if piece in entry.name and named(entry.name)]
    suffixes = tuple(segment.suffix for segment in wanted if segment.suffix is not None)
    if len(suffixes) == len(wanted):
        return lambda entries: [entry for entry in entries if entry.name.endswith(suffixes)]
    return lambda entries: [entry for entry in entries if named(entry.name)]
