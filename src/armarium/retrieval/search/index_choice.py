"""Decides which indexes a query searches, and what its wording says about weights."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, Literal, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

from armarium.retrieval.chunks import IndexKind

IndexChoice = Literal["auto", "text", "code", "both"]

_KINDS: Final[tuple[IndexKind, ...]] = ("text", "code")

# A name as programs write it: snake_case, lowerCamel, a call, a path of names. Not PascalCase, which brands use too.
# RE2, because callers choose the text: its time is linear in the length, whatever the text is.
_PROGRAM_NAME: Any = cast(Any, re2).compile(
    r"\b[A-Za-z]\w*?[A-Za-z0-9]_[A-Za-z0-9]\w*|\b[a-z]{2,}[A-Z][a-z]\w*|\b[A-Za-z_]\w*\(|\b\w+::\w+|"
    r"\b[a-z_]\w+\.[a-z_]\w*\("
)

# How lines of programs begin or end, and sentences do not.
_CODE_LINE: Final = re.compile(
    r"^\s*(?:def |class |fn |func |import |from \S+ import|return\b|if \(|for \(|\w+ = |self\.|public |private |"
    r"static |const |let |var |#include|package |@\w+|\}|\))|[{};:,(]$|\w\(.*\)$",
)
_CODE_LINES_FROM: Final = 0.4
_LINE_SAMPLE_CHARACTERS: Final = 200
"""How much of a line is looked at: lines of programs are shorter, and a longer one must not cost quadratic time."""


def looks_like_code(text: str) -> bool:
    """Whether a text whose name says nothing is a piece of a program."""
    lines = [line.rstrip()[:_LINE_SAMPLE_CHARACTERS] for line in text.splitlines() if line.strip()]
    found = sum(_CODE_LINE.search(line) is not None for line in lines)
    return len(lines) > 1 and found >= _CODE_LINES_FROM * len(lines)


def names_something(query: str) -> bool:
    """Whether the query writes out a name as programs do, which is found by its letters."""
    return _PROGRAM_NAME.search(query.encode("utf-8", "replace").decode()) is not None


def indexes_for(choice: IndexChoice, available: Collection[IndexKind]) -> tuple[IndexKind, ...]:
    """The indexes to search; `auto` means each of those that hold something the filters allow.

    The wording of a query never rules an index out: plain questions are asked about code as often as about documents.
    """
    if choice == "both":
        return _KINDS
    if choice != "auto":
        return (choice,)
    return tuple(kind for kind in _KINDS if kind in available) or ("text",)
