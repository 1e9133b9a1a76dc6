"""How much the registry keeps of each thing, and which texts it refuses; the same whichever way they come in."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.storage.columns import to_json

MAX_NAME_CHARS = 200
"""Characters of a language, a file type, a label, a rule, or the name of a scanner."""
MAX_TITLE_CHARS = 500
MAX_REFERENCE_CHARS = 500
MAX_TEXT_CHARS = 10_000
"""Characters of what a scanner says about a finding; the rest is cut off, as nobody would read it."""
MAX_BYTES = 64 * 1024
"""Of an issue's body, and of metadata as JSON."""
MAX_LABELS = 50
MAX_LINE = 2**31 - 1

_UNSEEN = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, halves of characters, and what ends a line."""


def one_line(text: str, name: str, longest: int = MAX_NAME_CHARS) -> str:
    """The text, which must be short and on one line."""
    if len(text) > longest or has_unprintable(text):
        raise ValidationError(f"`{name}` is a text of at most {longest} characters, on one line")
    return text


def required_name(text: str, name: str) -> str:
    """A name that somebody must have given."""
    required(text, name)
    return one_line(text, name)


def required(value: str, name: str) -> None:
    """Refuse what is not there."""
    if not value:
        raise ValidationError(f"`{name}` must not be empty")


def body_text(text: str) -> str:
    """The body of an issue: any number of lines, within reason."""
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ValidationError(f"`body` has at most {MAX_BYTES} bytes", hint="link what is longer")
    return text


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """Metadata as it is stored."""
    text = to_json(dict(metadata))
    if len(text.encode()) > MAX_BYTES:
        raise ValidationError(f"`metadata` has at most {MAX_BYTES} bytes of JSON", hint="keep what is longer in a file")
    return text


def has_unprintable(text: str) -> bool:
    """Whether there is anything in it that no one-line text has."""
    return not text.isprintable() and any(unicodedata.category(char) in _UNSEEN for char in text)


def printable(text: str) -> str:
    """The text on one line, with a blank for what cannot be seen."""
    return "".join(" " if has_unprintable(char) else char for char in text) if has_unprintable(text) else text
