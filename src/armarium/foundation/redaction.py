"""What of a call's arguments may be written down."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from typing import Any

HIDDEN = "[hidden]"
"""Stands for what must not even be recognised."""

_LONGEST_PLAIN_TEXT = 1024
# No tool has as many or as long; whoever sends them does not get to fill the log.
_LONGEST_NAME = 100
_MOST_ARGUMENTS = 100


def redacted(
    arguments: Mapping[str, Any], content_fields: frozenset[str], secret_fields: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """The arguments for a log or the audit trail: file content, and anything long, is reduced to its fingerprint, and
    of a secret there is nothing at all."""
    return {
        name[:_LONGEST_NAME]: HIDDEN
        if name in secret_fields
        else (fingerprint(value) if _must_shrink(name, value, content_fields) else value)
        for name, value in itertools.islice(arguments.items(), _MOST_ARGUMENTS)
    }


def _must_shrink(name: str, value: object, content_fields: frozenset[str]) -> bool:
    if name in content_fields:
        return True
    if isinstance(value, str):
        return len(value) > _LONGEST_PLAIN_TEXT
    return isinstance(value, list | dict) and len(repr(value)) > _LONGEST_PLAIN_TEXT  # pyright: ignore[reportUnknownArgumentType] any JSON


def fingerprint(value: object) -> dict[str, Any]:
    """Length and hash: enough to recognise a content, not to have any of it."""
    text = value if isinstance(value, str) else repr(value)
    encoded = text.encode("utf-8", "backslashreplace")
    return {"length": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}
