"""Parses RE2 patterns as far as a line search needs it: literals, anchors, groups.

RE2 itself decides what is valid and what matches. Other elements become `Unknown`, which affects only speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

_TOKEN = re.compile(
    r"""
      \\Q (?P<quoted> .*? ) (?: \\E | \Z )
    | \\x (?: \{ (?P<hex> [0-9A-Fa-f]+ ) \} | (?P<hex2> [0-9A-Fa-f]{2} ) )
    | \\ (?P<octal> 0 [0-7]{0,2} | [1-7] [0-7]{1,2} )
    | (?P<endless> \\ [pP] \{ [^}]*+ \Z | \( \? P? < [^>]*+ \Z )
    | (?P<class> \\ [pP] (?: \{ [^}]* \} | . ) | \\ [dDsSwW] | \. )
    | \\ (?P<escape> . )
    | \[ (?P<members> \^? \]? (?: \[ : \^? \w+ : \] | \\ . | [^\]\\] )*+ ) \]
    | (?P<unclosed> \[ )
    | \( \? (?P<setflags> [imsU]* (?: - [imsU]+ )? ) \)
    | (?P<open> \( (?: \? P? < [^>]* > | \? (?P<flags> [imsU]* (?: - [imsU]+ )? ) : )? )
    | (?P<close> \) )
    | (?P<or> \| )
    | (?P<repeat> (?: [*+?] | \{ (?P<least> \d+ ) (?P<range> , (?P<most> \d* ) )? \} ) \?? )
    | (?P<char> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ANCHORS: dict[str, AnchorKind] = {"\\A": "begin", "^": "begin", "\\z": "end", "$": "end", "\\b": "word", "\\B": "word"}
_FEW_MEMBERS = re.compile(r"[^\^\-\\\[\]]{1,4}")
_BROKEN = frozenset({"endless", "unclosed"})
"""What RE2 rejects. Parsing stops here: a further one would be searched for up to the end of the pattern."""
_MAX_NESTING = 100
_MAX_LENGTH = 10_000

AnchorKind = Literal["begin", "end", "word"]


@dataclass(frozen=True, slots=True)
class Char:
    """One character. If case is ignored, it is an ASCII letter in lower case."""

    text: str
    fold: bool


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any other text: a class, a dot, or anything that is not analysed."""

    source: str
    """Its source in the pattern."""
    fold: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    """A condition on the position, without text."""

    kind: AnchorKind


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A repetition, at most `most` times; None means unlimited."""

    part: Node
    least: int
    most: int | None


Node = Char | Unknown | Anchor | Sequence | Choice | Repeat


@dataclass(slots=True)
class _Group:
    """A group that is still open while the pattern is parsed."""

    fold: bool
    branches: list[Node] = field(default_factory=list["Node"])
    parts: list[Node] = field(default_factory=list["Node"])

    def next_branch(self) -> None:
        self.branches.append(self.parts[0] if len(self.parts) == 1 else Sequence(tuple(self.parts)))
        self.parts = []

    def node(self) -> Node:
        self.next_branch()
        return self.branches[0] if len(self.branches) == 1 else Choice(tuple(self.branches))


def parse(pattern: str, *, fold: bool) -> Node | None:
    """Parse a pattern that RE2 accepts. Returns None if it is too long or too deeply nested."""
    if len(pattern) > _MAX_LENGTH:
        return None
    groups = [_Group(fold)]
    kind = None
    for token in _TOKEN.finditer(pattern):
        group = groups[-1]
        kind_before, kind = kind, token.lastgroup
        # `lastgroup` is the last group closed, and the outer ones of a nested pair close last.
        if kind == "open":
            groups.append(_Group(_fold_after(token["flags"] or "", group.fold)))
            if len(groups) > _MAX_NESTING:
                return None
        elif kind == "close":
            if len(groups) == 1:
                return None
            groups.pop()
            groups[-1].parts.append(group.node())
        elif kind == "or":
            group.next_branch()
        elif kind == "setflags":
            group.fold = _fold_after(token["setflags"], group.fold)
        elif kind in _BROKEN:
            return None
        elif kind == "repeat":
            # RE2 rejects a repetition of a repetition, except of a group.
            if not group.parts or kind_before == "repeat":
                return None
            group.parts.append(_repeat(group.parts.pop(), token))
        else:
            group.parts.extend(_text(token, group.fold))
    return groups[0].node() if len(groups) == 1 else None


def _fold_after(flags: str, fold: bool) -> bool:
    on, _, off = flags.partition("-")
    return (fold or "i" in on) and "i" not in off


def _repeat(part: Node, token: re.Match[str]) -> Node:
    if token["least"] is None:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[token["repeat"][0]]
        return Repeat(part, least, most)
    least = int(token["least"])
    if token["range"] is None:
        return Repeat(part, least, least)
    return Repeat(part, least, int(token["most"]) if token["most"] else None)


def _text(token: re.Match[str], fold: bool) -> Iterator[Node]:
    if token[0] in _ANCHORS:
        yield Anchor(_ANCHORS[token[0]])
    elif token["quoted"] is not None:
        for char in token["quoted"]:
            yield _char(char, fold)
    elif token["members"] is not None:
        few = _FEW_MEMBERS.fullmatch(token["members"])
        yield Choice(tuple(_char(char, fold) for char in token["members"])) if few else Unknown(token[0], fold)
    elif token["class"] is not None:
        yield Unknown(token[0], fold)
    else:
        char = _single_character(token)
        yield Unknown(token[0], fold) if char is None else _char(char, fold)


def _single_character(token: re.Match[str]) -> str | None:
    if token["char"] is not None:
        return token["char"]
    if token["hex"] or token["hex2"]:
        return chr(int(token["hex"] or token["hex2"], 16))
    if token["octal"]:
        return chr(int(token["octal"], 8))
    escaped: str = token["escape"]
    return _CONTROL.get(escaped, None if escaped.isalnum() else escaped)


def _char(char: str, fold: bool) -> Node:
    if char == "\n" or "\ud800" <= char <= "\udfff" or (fold and not char.isascii()):
        return Unknown(char, fold)
    if fold and char.isalpha():
        return Char(char.lower(), fold=True)
    return Char(char, fold=False)


def buffer_pattern(pattern: str, node: Node | None, *, strip_cr: bool) -> str | None:
    """The same pattern for a buffer of many lines: every anchor refers to its line.

    With `strip_cr` a line ends before its carriage return, and the result may also match text that includes the
    return: the caller looks again at lines that have one. None: no such pattern; look at each line by itself.
    """
    anchors = {"begin": "(?m:^)", "end": r"(?m:\r?$)" if strip_cr else "(?m:$)"}
    pieces: list[str] = []
    has_end = False
    for token in _TOKEN.finditer(pattern):
        source = token[0]
        if token.lastgroup in _BROKEN or source == "\\C":  # the only element that matches a line feed
            return None
        kind = _ANCHORS.get(source, "word")
        has_end = has_end or kind == "end"
        pieces.append(anchors.get(kind, source))
    if strip_cr and has_end and (node is None or _tests_after_end(node)):
        return None
    return "".join(pieces)


def _tests_after_end(node: Node) -> bool:
    """Whether `^` or `\\b` may be tested behind `$`, where a carriage return would already have been consumed."""
    match node:
        case Sequence(parts):
            ended = False
            for part in parts:
                if (ended and has_anchor(part, "begin", "word")) or _tests_after_end(part):
                    return True
                ended = ended or has_anchor(part, "end")
            return False
        case Choice(branches):
            return any(_tests_after_end(branch) for branch in branches)
        case Repeat(part):
            return has_anchor(part, "end") and has_anchor(part, "begin", "word")
        case _:
            return False


def has_anchor(node: Node, *kinds: AnchorKind) -> bool:
    """Whether the pattern has an anchor, by default of any kind."""
    match node:
        case Anchor(kind):
            return not kinds or kind in kinds
        case Sequence(parts) | Choice(parts):
            return any(has_anchor(part, *kinds) for part in parts)
        case Repeat(part):
            return has_anchor(part, *kinds)
        case _:
            return False


def unbalanced_parenthesis(pattern: str) -> int:
    opened: list[int] = []
    for token in _TOKEN.finditer(pattern):
        if token.lastgroup in _BROKEN:
            break
        if token["open"]:
            opened.append(token.start())
        elif token["close"]:
            if not opened:
                return token.start()
            opened.pop()
    return opened[-1] if opened else 0
