"""Cursors of lists: where a page ended, as text that callers send back."""

from __future__ import annotations

import base64
import binascii
from typing import Any, cast

import orjson

from armarium.capabilities.registry.errors import ValidationError

_MAX_CHARS = 8192


def cursor_of(*position: str | int) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(position)).decode().rstrip("=")


def position_in(cursor: str, *kinds: type) -> list[Any]:
    """The values of a cursor. Raises `ValidationError` unless they have these types."""
    try:
        text = cursor[:_MAX_CHARS]
        values: object = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        values = None
    found = cast("list[Any]", values) if isinstance(values, list) else []
    if [type(each) for each in found] != [*kinds]:
        raise ValidationError("`cursor` is not one of this list", hint="send `next` of a page, with the same filter")
    return found
