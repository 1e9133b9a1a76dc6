"""Limits on the size of stored values, and checks of texts that callers and reports provide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.storage.columns import has_unprintable, to_json

MAX_NAME_CHARS = 200
"""Of a language, a file type, a label, a rule, or the name of a scanner."""
MAX_TITLE_CHARS = 500
MAX_REFERENCE_CHARS = 500
MAX_TEXT_CHARS = 10_000
"""Of a finding's message and suggestion. The rest is cut off."""
MAX_BYTES = 64 * 1024
"""Of an issue's body, and of metadata as JSON."""
MAX_LABELS = 50
MAX_LINE = 2**31 - 1


def one_line(text: str, name: str, longest: int = MAX_NAME_CHARS) -> str:
    if len(text) > longest or has_unprintable(text):
        raise ValidationError(f"`{name}` is a text of at most {longest} characters, on one line")
    return text


def check_name(text: str | None, name: str) -> None:
    """Check a name, unless it is absent."""
    check_present(text, name)
    one_line(text or "", name)


def check_present(value: str | None, name: str) -> None:
    """Check that a value is not empty, unless it is absent."""
    if value == "":
        raise ValidationError(f"`{name}` must not be empty")


def body_text(text: str) -> str:
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise ValidationError(f"`body` has at most {MAX_BYTES} bytes", hint="link what is longer")
    return text


def metadata_json(metadata: Mapping[str, Any]) -> str:
    text = to_json(dict(metadata))
    if len(text.encode()) > MAX_BYTES:
        raise ValidationError(f"`metadata` has at most {MAX_BYTES} bytes of JSON", hint="keep what is longer in a file")
    return text


def printable(text: str) -> str:
    """The text on one line, with spaces for unprintable characters."""
    return "".join(" " if has_unprintable(char) else char for char in text) if has_unprintable(text) else text
