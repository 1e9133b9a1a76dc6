"""Redacts arguments for logs and the audit log."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

HIDDEN = "[hidden]"
"""Replaces secrets."""

UNKNOWN = "[unknown]"
"""Stands for unknown arguments, which are only counted: their names and values may be anything."""

_LONGEST_PLAIN_TEXT = 1024


def redacted(
    arguments: Mapping[str, Any],
    known: Collection[str],
    content_fields: frozenset[str] = frozenset(),
    secret_fields: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The arguments without confidential values. File content and long values become fingerprints, secrets are
    replaced, and arguments that are not `known` are only counted."""
    written: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in known:
            continue
        if name in secret_fields:
            value = HIDDEN
        elif _must_shrink(name, value, content_fields):
            value = fingerprint(value)
        written[name] = value
    unknown = len(arguments) - len(written)
    return written | {UNKNOWN: unknown} if unknown else written


def _must_shrink(name: str, value: object, content_fields: frozenset[str]) -> bool:
    if name in content_fields:
        return True
    if isinstance(value, str):
        return len(value) > _LONGEST_PLAIN_TEXT
    return isinstance(value, list | dict) and len(repr(value)) > _LONGEST_PLAIN_TEXT  # pyright: ignore[reportUnknownArgumentType] any JSON


def fingerprint(value: object) -> dict[str, Any]:
    """Length and hash of a value."""
    text = value if isinstance(value, str) else repr(value)
    encoded = text.encode("utf-8", "backslashreplace")
    return {"length": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}
