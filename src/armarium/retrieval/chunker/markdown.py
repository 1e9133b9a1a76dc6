"""Splits Markdown into sections with the path of headings above each."""

from __future__ import annotations

import re
from itertools import chain

from armarium.retrieval.chunker.segments import Path, Segment

Outline = list[tuple[int, str]]
"""The current headings, outermost first: level and title."""

_MARKED_LINE = (
    r" {0,3}(?:"
    r"(?P<hashes>\#{1,6})(?:[ \t]+(?P<title>[^\n]*)|(?=\n|\Z))"
    r"|(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)"
    r"|(?P<underline>=+|--+)[ \t]*(?=\n|\Z)"
    r")"
)
_FIRST_MARK = re.compile(_MARKED_LINE)
# Starts with a literal, so that the regular expression engine skips from line to line.
_LATER_MARK = re.compile(r"\n" + _MARKED_LINE)
_FRONT_MATTER = re.compile(r"---[ \t]*\n(?=[\w\"'-][^\n]*:)(?:[^\n]*\n)*?(?:---|\.\.\.)[ \t]*(?=\n|\Z)")
_MAX_FRONT_MATTER_CHARS = 20_000
_NO_SETEXT_TITLE = re.compile(r"[ \t]*(?:[-*+>|#]|\d{1,9}[.)][ \t]|`{3}|~{3}|\Z)| {4}|\t")
_CLOSING_HASHES = re.compile(r"(?:^|[ \t]+)#+[ \t]*$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_EMPHASIS = re.compile(r"[*`]+|\{#[^}]*\}$")
_MAX_TITLE_CHARS = 120


def sections(text: str, start: int, end: int, outline: Outline) -> list[Segment]:
    """The sections of text[start:end], in order and without gaps. Updates `outline`, so that a section that continues
    on the next page keeps its headings."""
    found: list[Segment] = []
    opened = start
    fence = ""
    front_matter = _FRONT_MATTER.match(text, start, min(end, start + _MAX_FRONT_MATTER_CHARS)) if start == 0 else None
    body = front_matter.end() if front_matter else start
    first = _FIRST_MARK.match(text, body, end)
    for mark in chain([first] if first else [], _LATER_MARK.finditer(text, body, end)):
        ticks = mark["fence"]
        if fence:
            if ticks and ticks.startswith(fence) and not mark["info"].strip():
                fence = ""
            continue
        if ticks:
            fence = "" if ticks[0] == "`" and "`" in mark["info"] else ticks
            continue
        if (heading := _heading(text, mark, body)) is None:
            continue
        at, level, title = heading
        if at > opened:
            found.append(Segment(opened, at, _path(outline)))
        opened = max(at, opened)
        while outline and outline[-1][0] >= level:
            outline.pop()
        if title:
            outline.append((level, title))
    if end > opened:
        found.append(Segment(opened, end, _path(outline)))
    return found


def _heading(text: str, mark: re.Match[str], body: int) -> tuple[int, int, str] | None:
    if hashes := mark["hashes"]:
        return mark.start() + (mark[0][0] == "\n"), len(hashes), _readable(_CLOSING_HASHES.sub("", mark["title"] or ""))
    title_start = max(text.rfind("\n", body, mark.start()) + 1, body)
    title = text[title_start : mark.start()]
    if _NO_SETEXT_TITLE.match(title):
        return None
    return title_start, 1 if mark["underline"][0] == "=" else 2, _readable(title)


def _readable(title: str) -> str:
    title = title[: 4 * _MAX_TITLE_CHARS]
    title = _EMPHASIS.sub("", _LINK.sub(r"\1", title))
    return " ".join(title.split())[:_MAX_TITLE_CHARS]


def _path(outline: Outline) -> Path:
    return tuple(title for _, title in outline)
