"""Finds where a passage stands in a text, so that of a very long line the cited part can be shown."""

from __future__ import annotations

import re
from typing import Any, Final, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_FIRST_WORDS: Final = 6
_BEGINNING_CHARS: Final = 500
_MARKUP: Final = ".{0,40}?"


def shown_part(whole: str, passage: str, max_chars: int) -> tuple[int, str]:
    """Where the part of a text begins that is shown, and that part: all, or so much from a passage on."""
    if len(whole) <= max_chars:
        return 0, whole
    start = _place_of(passage, whole)
    return start, whole[start : start + max_chars]


def _place_of(passage: str, whole: str) -> int:
    """Where a passage begins in a text; 0 where it is not in it.

    It may read differently there, as that of a web page does: then its first words are looked for, with some markup
    between them.
    """
    if (place := whole.find(passage)) >= 0:
        return place
    words = [re.escape(word) for word in _WORD.findall(passage[:_BEGINNING_CHARS])[:_FIRST_WORDS]]
    found = cast(Any, re2).search(f"(?s){_MARKUP.join(words)}", whole) if words else None
    return found.start() if found else 0
