"""Joins the pages of a document into one text that remembers where each began."""

from __future__ import annotations

from collections.abc import Sequence


def joined_pages(pages: Sequence[str]) -> tuple[str, list[int]]:
    """The text of all pages, and where in it each page starts. A page without text has no length."""
    starts: list[int] = []
    pieces: list[str] = []
    length = 0
    for page in pages:
        starts.append(length)
        if text := page.strip("\n"):
            pieces.append(text + "\n")
            length += len(text) + 1
    return "".join(pieces), starts
