"""Selects the indexes that a query searches, and recognises code and identifiers."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, Literal, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

from armarium.foundation.surrogates import replace_unpaired_surrogates
from armarium.retrieval.chunks import IndexKind

IndexChoice = Literal["auto", "text", "code", "both"]

_KINDS: Final[tuple[IndexKind, ...]] = ("text", "code")

# An identifier: snake_case, lowerCamelCase, a call, a qualified name. Not PascalCase, which brand names use too.
# RE2, because callers choose the text: its time is linear in the length of any text.
_IDENTIFIER: Any = cast(Any, re2).compile(
    r"\b[A-Za-z]\w*?[A-Za-z0-9]_[A-Za-z0-9]\w*|\b[a-z]{2,}[A-Z][a-z]\w*|\b[A-Za-z_]\w*\(|\b\w+::\w+|"
    r"\b[a-z_]\w+\.[a-z_]\w*\("
)

# How lines of code start or end, and sentences do not.
_CODE_LINE: Final = re.compile(
    r"^\s*(?:def |class |fn |func |import |from \S+ import|return\b|if \(|for \(|\w+ = |self\.|public |private |"
    r"static |const |let |var |#include|package |@\w+|\}|\))|[{};:,(]$|\w\(.*\)$",
)
_MIN_CODE_LINE_SHARE: Final = 0.4
_LINE_SAMPLE_CHARACTERS: Final = 200
"""Lines of code are shorter, and a longer line must not take quadratic time."""


def looks_like_code(text: str) -> bool:
    """Whether a text is source code, judged by its lines."""
    lines = [line.rstrip()[:_LINE_SAMPLE_CHARACTERS] for line in text.splitlines() if line.strip()]
    found = sum(_CODE_LINE.search(line) is not None for line in lines)
    return len(lines) > 1 and found >= _MIN_CODE_LINE_SHARE * len(lines)


def contains_identifier(query: str) -> bool:
    """Whether the query contains a programming identifier, which lexical search finds best."""
    return _IDENTIFIER.search(replace_unpaired_surrogates(query)) is not None


def indexes_for(choice: IndexChoice, available: Collection[IndexKind]) -> tuple[IndexKind, ...]:
    """The indexes to search. `auto` selects every index with chunks that pass the filters. The wording of a query never
    excludes an index: plain questions are asked about code as often as about documents."""
    if choice == "both":
        return _KINDS
    if choice != "auto":
        return (choice,)
    return tuple(kind for kind in _KINDS if kind in available) or ("text",)
