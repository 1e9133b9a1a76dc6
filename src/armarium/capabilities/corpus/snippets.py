"""The part of a passage that shows why it was found."""

from __future__ import annotations

import re

_LONGEST = 600
_WORD = re.compile(r"\w{2,}")
_STEM_CHARS = 5
# A line, or a sentence of it, or a stretch of words: prose is often written with a whole paragraph on one line.
_UNIT = re.compile(r"[^\n]{0,200}?(?:\n|[.!?]\s+(?=\S)|[。！？]|$)|[^\n]{1,200}(?<=\s)|[^\n]{1,200}")


def snippet(query: str, text: str) -> str:
    """The passage, or as much of it as fits, from where most of the query's words come together."""
    if len(text) <= _LONGEST:
        return text
    asked = _stems(query)
    units = [unit.span() for unit in _UNIT.finditer(text) if unit[0].strip()]
    held = [asked & _stems(text[start:end]) for start, end in units]
    best, most = 0, 0
    for first, (start, _) in enumerate(units):
        together: set[str] = set()
        for (_, end), stems in zip(units[first:], held[first:], strict=True):
            if end - start > _LONGEST:
                break
            together |= stems
        # Of equals the one that begins with a word of the query, so that what was asked for is read first.
        worth = 2 * len(together) + bool(held[first])
        if worth > most:
            best, most = start, worth
    return _cut(text, best)


def _stems(text: str) -> set[str]:
    return {word.lower()[:_STEM_CHARS] for word in _WORD.findall(text)}


def _cut(text: str, start: int) -> str:
    begins_a_line = start == 0 or text[start - 1] == "\n"
    mark, rest = ("" if begins_a_line else "… "), text[start:].rstrip("\n")
    if len(rest) <= _LONGEST:
        return mark + rest
    end = rest.rfind("\n", _LONGEST // 2, _LONGEST)
    return mark + rest[: end if end > 0 else _LONGEST].rstrip() + " …"
