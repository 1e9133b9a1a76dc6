"""Parses globs: `*` and `?` in a name, `**` for any directories, `[a-z]`, `[!x]`, `{a,b}`, and `\\` before a character.

`**` is special only as a whole name of the path; elsewhere it is a star. No wildcard stands for a "/".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from armarium.foundation.files.errors import InvalidPattern

_MAX_ALTERNATIVES = 1000
_MAX_ITEMS = 200_000
_MAX_LENGTH = 64 * 1024
_MAX_NESTING = 20
_CLASS = re.compile(r"\[(?P<negation>[!^]?)(?P<members>(?:\\.|[^\\\]])*)\]", re.DOTALL)
_CLASS_MEMBER = re.compile(r"\\?(.)(?:-\\?(.))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Segment:
    """Matches one name of a path."""

    regex: str
    literal: str | None = None
    """The text, if the segment has no wildcards."""
    suffix: str | None = None
    """The text after the star, if the segment is a star and a text; "" matches every name."""
    piece: str = ""
    """The longest text that every matching name contains."""
    second_piece: str = ""
    """The second longest; "" if there is none."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """A pattern without braces, as a list of segments; None stands for `**`."""

    segments: tuple[Segment | None, ...]
    only_directories: bool = False


def parse_glob(pattern: str) -> list[Alternative]:
    """Expand braces, and split each alternative into segments."""
    if len(pattern) > _MAX_LENGTH:
        raise InvalidPattern(f"invalid pattern: longer than {_MAX_LENGTH} characters")
    return [_alternative(items) for items in _Parser(pattern).alternatives()]


@dataclass(frozen=True, slots=True)
class _Item:
    """A token of a pattern: a star, a slash, or a regular expression for one character."""

    regex: str
    literal: str | None = None


_STAR = _Item("*")
_SLASH = _Item("/")
_ANY = _Item(".")
_Items = tuple[_Item, ...]


class _Parser:
    """Parses one pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def alternatives(self) -> list[_Items]:
        found = self._sequence(0)
        if self._at < len(self._pattern):
            raise _invalid("'}' has no '{' before it", self._at)
        return found

    def _sequence(self, nesting: int) -> list[_Items]:
        """Parse up to the end, or up to the "," or "}" that ends an alternative."""
        found: list[_Items] = [()]
        plain: list[_Item] = []
        while self._at < len(self._pattern):
            char = self._pattern[self._at]
            if char == "}" or (char == "," and nesting):
                break
            if char == "{":
                opened = self._at
                found = self._product(found, [tuple(plain)], opened)
                found = self._product(found, self._braces(nesting + 1), opened)
                plain = []
            else:
                plain.append(self._item(char))
        return self._product(found, [tuple(plain)], self._at)

    def _product(self, heads: list[_Items], tails: list[_Items], position: int) -> list[_Items]:
        items = len(tails) * sum(map(len, heads)) + len(heads) * sum(map(len, tails))
        if len(heads) * len(tails) > _MAX_ALTERNATIVES or items > _MAX_ITEMS:
            raise _invalid("the braces stand for too many patterns", position)
        return [head + tail for head in heads for tail in tails]

    def _braces(self, nesting: int) -> list[_Items]:
        opened = self._at
        if nesting > _MAX_NESTING:
            raise _invalid("braces are nested too deeply", opened)
        options: list[_Items] = []
        while self._at < len(self._pattern) and self._pattern[self._at] != "}":
            self._at += 1
            options += self._sequence(nesting)
        if self._at >= len(self._pattern):
            raise _invalid("'{' is not closed", opened)
        self._at += 1
        return options

    def _item(self, char: str) -> _Item:
        if char == "[":
            return self._class()
        self._at += 1
        if char == "*":
            return _STAR
        if char == "?":
            return _ANY
        if char == "\\":
            if self._at == len(self._pattern):
                raise _invalid("'\\' has nothing behind it", self._at - 1)
            char = self._pattern[self._at]
            self._at += 1
        return _SLASH if char == "/" else _Item(re.escape(char), char)

    def _class(self) -> _Item:
        opened = self._at
        found = _CLASS.match(self._pattern, opened)
        if found is None:
            raise _invalid("'[' is not closed", opened)
        if not found["members"]:
            raise _invalid("'[' holds nothing; write '\\]' for the bracket itself", opened)
        ranges: list[str] = []
        for member in _CLASS_MEMBER.finditer(self._pattern, *found.span("members")):
            low, high = member.groups(default="")
            if high and low > high:
                raise _invalid(f"'{low}-{high}' is not in order", member.start())
            ranges.append(f"{re.escape(low)}-{re.escape(high)}" if high else re.escape(low))
        self._at = found.end()
        return _Item(f"[{'^' if found['negation'] else ''}{''.join(ranges)}]")


def _invalid(reason: str, position: int) -> InvalidPattern:
    return InvalidPattern(
        f"invalid pattern: {reason} at position {position}",
        hint="a backslash takes a special character literally: \\*, \\[, \\{",
        position=position,
    )


def _alternative(items: _Items) -> Alternative:
    names: list[list[_Item]] = [[]]
    for item in items:
        if item is _SLASH:
            names.append([])
        else:
            names[-1].append(item)
    # A path relative to the searched directory: "/x" and "./x" are "x", and "x/" is "x" if it is a directory.
    only_directories = len(names) > 1 and not names[-1]
    segments: list[Segment | None] = []
    for name in names:
        text = [item.literal for item in name]
        if text in ([], ["."]):
            continue
        if text == [".", "."]:
            raise InvalidPattern("invalid pattern: '..' leads out of the searched directory")
        if name != [_STAR, _STAR]:
            segments.append(_segment(name))
        elif not segments or segments[-1] is not None:
            segments.append(None)
    return Alternative(tuple(segments), only_directories)


def _segment(items: list[_Item]) -> Segment:
    regex = _segment_regex(items)
    pieces = [""]
    for item in items:
        if item.literal is None:
            pieces.append("")
        else:
            pieces[-1] += item.literal
    if len(pieces) == 1:
        return Segment(regex, literal=pieces[0], piece=pieces[0])
    suffix = pieces[1] if items[0] is _STAR and len(pieces) == 2 else None
    longest, second, *_ = sorted(pieces, key=len, reverse=True)
    return Segment(regex, suffix=suffix, piece=longest, second_piece=second)


def _segment_regex(items: list[_Item]) -> str:
    """A regular expression that never backtracks over a star, so that hostile patterns stay fast. What follows a star
    may be taken at the first place where it fits, because the next star can take up whatever comes then. Only the last
    star must reach to the end."""
    groups: list[list[str]] = [[]]
    for item in items:
        if item is _STAR:
            groups.append([])
        else:
            groups[-1].append(item.regex)
    head, *rest = ["".join(group) for group in groups]
    middle = "".join(f"(?>.*?{text})" for text in rest[:-1] if text)
    return head + middle + "".join(f".*{text}" for text in rest[-1:])
