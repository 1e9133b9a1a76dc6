"""Rules about paths by name, in every spelling, for files with credentials and for what agents may not write."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from typing import Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

from armarium.foundation.files.ignore import IgnoreRules

Setting = bool | tuple[str, ...]
"""A list of patterns in the settings: the defaults, nothing, or the defaults with further patterns."""

_engine: Any = cast(Any, re2)._re2.RE2
_UNANCHORED: Any = _engine.Anchor.UNANCHORED

_IGNORABLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Characters that some file systems ignore in names (Default_Ignorable_Code_Point)."""
_EXPRESSION_BYTES = 64 * 1024 * 1024
_NEVER = r"[^\x00-\x{10FFFF}]"
_ESCAPED = re.compile(r"\\(.)")
_ENDING = re.compile(r"(?<=[^/. ])[. ]+(?=/|$)")
"""What FAT and NTFS ignore at the end of a name."""


def fold(path: str) -> str:
    """The same text for all spellings of a path that a file system may treat as one."""
    folded = path.lower()
    if not path.isascii():
        folded = _IGNORABLE.sub("", unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold()))
    if folded[-1:] in (".", " ") or "./" in folded or " /" in folded:
        folded = _ENDING.sub("", folded)
    return folded


def patterns_of(setting: Setting, defaults: Sequence[str]) -> tuple[str, ...]:
    """The patterns that a setting stands for: adding one pattern must not disable the defaults."""
    if isinstance(setting, bool):
        return tuple(defaults) if setting else ()
    return (*defaults, *setting)


def added_patterns(patterns: Sequence[str], defaults: Sequence[str]) -> list[str]:
    """Those of the patterns that are not defaults and hide something."""
    return [line for line in patterns if line not in defaults and not line.startswith("!")]


_State = tuple[int, int]
"""Index of a pattern, and of its part that the next name must match."""


class PathRules:
    """Patterns in .gitignore syntax that match a name in every spelling. Everything below a matching directory
    matches."""

    def __init__(self, patterns: Sequence[str], defaults: Sequence[str] = ()) -> None:
        """Compile the patterns, which begin with the defaults if they contain them. Raises `InvalidPattern`."""
        self.patterns = tuple(patterns)
        lines = [fold(line) for line in patterns]
        known = len(defaults) if self.patterns[: len(defaults)] == tuple(defaults) else 0
        # Later patterns do not show anything in a directory that the defaults name.
        lines = [*as_directories(lines[:known]), *as_directories(lines[known:])]
        self._rules = IgnoreRules.from_lines(lines)
        self._parts = [_parts(line) for line in lines if line and line[0] != "#"]
        forms = name_forms(lines)
        self._may_match = name_filter(forms)
        self._names: Any = None if forms is None else _any_of(*forms)

    def match(self, path: str, is_directory: bool | None = False) -> bool:
        """Whether the path, relative to the root, or any directory above it matches. `is_directory` is None for a link,
        which may stand for both."""
        return self._rules.in_hidden_directory(fold(path)) or self.match_entry(path, is_directory)

    def may_match(self, name: str) -> bool:
        """False if no pattern can match an entry of that name in a directory that does not match."""
        return self._may_match(fold(name))

    def match_entry(self, path: str, is_directory: bool | None) -> bool:
        """Whether the path itself matches, if the directories above it are known not to."""
        folded = fold(path)
        if not self._may_match(folded.rpartition("/")[2]):
            return False
        kinds = (False, True) if is_directory is None else (is_directory,)
        return any(self._rules.hides_entry(folded, kind) for kind in kinds)

    def may_match_any(self, names: Iterable[str]) -> bool:
        """False if no pattern can match any of the names in a directory that does not match. One pass over all names:
        almost every directory ends here."""
        together = "\n".join(names)
        if self._names is None or not together.isascii():
            return True
        text = together.lower().encode()
        return self._names.Match(_UNANCHORED, text, 0, len(text))[0][0] >= 0

    def judge_alike(self, path: str, moved: str) -> bool:
        """Whether nothing below the directory `path` could begin to match if the directory were at `moved`."""
        (shows, matches), (shows_there, matches_there) = self._context(path), self._context(moved)
        return matches_there <= matches and shows <= shows_there

    def can_match_below(self, path: str) -> bool:
        """Whether any pattern could match something below the directory `path`."""
        return bool(self._context(path)[1])

    def _context(self, path: str) -> tuple[frozenset[_State], frozenset[_State]]:
        """How far each pattern has matched at a directory: negated patterns, and the others. Directories with the same
        context are judged alike below."""
        states = {state for index in range(len(self._parts)) for state in self._reached(index, 0)}
        for name in filter(None, fold(path).split("/")):
            following: set[_State] = set()
            for index, position in states:
                parts = self._parts[index][1]
                if position == len(parts) or (part := parts[position]) is None:
                    following.update(self._reached(index, position))
                elif part(name):
                    following.update(self._reached(index, position + 1))
            states = following
        shows = frozenset(state for state in states if self._parts[state[0]][0])
        return shows, frozenset(states) - shows

    def _reached(self, index: int, position: int) -> list[_State]:
        parts, reached = self._parts[index][1], [(index, position)]
        while position < len(parts) and parts[position] is None:  # `**` may match nothing
            position += 1
            reached.append((index, position))
        return reached


def _parts(line: str) -> tuple[bool, list[Callable[[str], object] | None]]:
    """Whether the pattern is negated, and a matcher for each name of a path. None stands for any number of names."""
    negated, body = line.startswith("!"), line.removeprefix("!").rstrip()
    names = [name for name in body.split("/") if name]
    if "/" not in body.rstrip("/"):
        names.insert(0, "**")
    return negated, [
        None if name == "**" else re.compile(translate(_ESCAPED.sub(_as_set, name))).match for name in names
    ]


def _as_set(escaped: re.Match[str]) -> str:
    return f"[{escaped[1]}]" if escaped[1] in "*?[" else escaped[1]


def as_directories(lines: Sequence[str]) -> list[str]:
    """`a/**` rewritten as `/a/`, which excludes the same files without checking each of them, unless a later pattern
    includes something below `a` again."""
    settled = max((number for number, line in enumerate(lines, 1) if line.startswith("!")), default=0)
    directories = [(line.removesuffix("/**"), line) for line in lines[settled:]]
    return [*lines[:settled]] + [
        line if body == line or body in ("", "**") else f"{body}/" if "/" in body else f"/{body}/"
        for body, line in directories
    ]


NameForms = tuple[frozenset[str], tuple[str, ...], tuple[str, ...]]
"""Whole names, beginnings and ends of names."""


def name_forms(lines: Sequence[str]) -> NameForms | None:
    """The names that the patterns could exclude in a directory that is not excluded; None if it could be any. Only the
    last part of a pattern counts: if it is plain text with at most one star, a comparison is enough."""
    names: set[str] = set()
    prefixes: set[str] = set()
    suffixes: set[str] = set()
    for line in lines:
        if not line or line[0] in "#!":
            continue
        last = line.removesuffix("/").rpartition("/")[2]
        # Of `a*b`, the beginning is enough: the filter may let more names pass.
        text = last.partition("*")[0] or last[1:]
        if not text or line != line.strip() or "**" in last or any(char in text for char in "*?[]\\"):
            return None
        if text == last:
            names.add(last)
        elif last[0] == "*":
            suffixes.add(text)
        else:
            prefixes.add(text)
    return frozenset(names), tuple(prefixes), tuple(suffixes)


def name_filter(forms: NameForms | None) -> Callable[[str], bool]:
    """A fast test whether any pattern could exclude a name."""
    if forms is None:
        return lambda name: True
    names, prefixes, suffixes = forms
    return lambda name: name in names or name.endswith(suffixes) or name.startswith(prefixes)


def _any_of(names: frozenset[str], prefixes: Sequence[str], suffixes: Sequence[str]) -> Any:
    """An expression that finds such a name among lines."""
    options: Any = cast(Any, re2).Options()
    options.never_capture = True
    options.max_mem = _EXPRESSION_BYTES

    def either(texts: Iterable[str]) -> str:
        return "|".join(_engine.QuoteMeta(text.encode()).decode() for text in sorted(texts)) or _NEVER

    whole = f"^(?:{either(names)}|(?:{either(prefixes)}).*)"
    return _engine(f"(?m)(?:{whole}|(?:{either(suffixes)}))[. ]*$".encode(), options)
