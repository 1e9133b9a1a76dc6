"""Tokenises HTML into tags and text, as browsers do, in linear time on any input."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple


class Token(NamedTuple):
    """A tag, or the text between two tags."""

    start: int
    """The offset in the page."""
    tag: str
    """The name in lower case; empty for text."""
    closing: bool
    content: str
    """The text or the attributes, with references unresolved."""


# Possessive quantifiers, and the end of input closes all constructs: no backtracking.
_MARKUP = re.compile(
    r"<!--.*?(?:--!?>|\Z)"
    r"|<[!?][^>]*+(?:>|\Z)"
    r"|<(?P<closing>/?)(?P<name>[a-zA-Z][^\s/>]*+)"
    r"(?P<attributes>(?:[^>=]++|=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))?+)*+)(?:>|\Z)",
    re.DOTALL,
)
_RAW_TEXT = {
    name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE)
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
}


def tokens(page: str) -> Iterator[Token]:
    """All tags and texts in order, without comments and declarations."""
    position = 0
    while markup := _MARKUP.search(page, position):
        if markup.start() > position:
            yield Token(position, "", False, page[position : markup.start()])
        position = markup.end()
        if (name := markup["name"]) is None:
            continue
        tag = name.lower()
        yield Token(markup.start(), tag, bool(markup["closing"]), markup["attributes"])
        if tag in _RAW_TEXT and not markup["closing"]:
            end = _RAW_TEXT[tag].search(page, position)
            inside = page[position : end.start() if end else len(page)]
            yield Token(position, "", False, inside)
            position += len(inside)
    if position < len(page):
        yield Token(position, "", False, page[position:])


def resolved(text: str) -> str:
    """The text with character references such as `&amp;` resolved."""
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:  # a reference with more digits than Python converts to a number
        return text


def attribute(attributes: str, name: str) -> str:
    """The value of an attribute; empty when it is absent."""
    found = re.search(rf"(?:^|\s){name}\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+))", attributes, re.IGNORECASE)
    return resolved(next((value for value in found.groups() if value), "")) if found else ""
