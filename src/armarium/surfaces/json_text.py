"""Messages as JSON: read and written quickly, and by the slower way when there are half characters in them."""

from __future__ import annotations

import json
import logging
import math
import re
from typing import Any, NoReturn, cast

import orjson
from mcp_types import INTERNAL_ERROR

from armarium.foundation.schema import Json

_log = logging.getLogger(__name__)

_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


class NotJson(Exception):
    """What came is not JSON."""


class Suspect(dict[str, Any]):
    """An object of a text with half a character somewhere in it."""


def decoded(text: bytes) -> Any:
    """The value that a text stands for.

    JSON can spell half of a character that takes two escapes; orjson refuses it. Such a text is read all the same, so
    that the request keeps its id and the tool can say which of its arguments is wrong; its objects are `Suspect`.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if _HALF_CHARACTER.search(text):
            return _with_half_characters(text)
        raise NotJson from error


def encoded(message: Json, *, newline: bool = False) -> bytes:
    """The message as JSON, with "?" for half characters, which many clients cannot read. One that JSON cannot carry
    becomes an error: the client must not wait in vain."""
    option = orjson.OPT_APPEND_NEWLINE if newline else 0
    try:
        return orjson.dumps(message, option=option)
    except TypeError:
        whole = without_half_characters(message)
    try:
        return orjson.dumps(whole, option=option)
    except TypeError:
        _log.exception("a message could not be written as JSON", extra={"id": whole.get("id")})
        error = {"code": INTERNAL_ERROR, "message": "Internal error"}
        return orjson.dumps({"jsonrpc": "2.0", "id": whole.get("id"), "error": error}, option=option)


def is_whole(text: str) -> bool:
    """Whether there is no half of a character in a text."""
    return text.isascii() or _whole(text) == text


def _with_half_characters(text: bytes) -> Any:
    try:
        return json.loads(text.decode(), object_hook=Suspect, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NotJson from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else _refuse(number)


def without_half_characters(value: Any) -> Any:
    """The value with "?" for half characters."""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list):
        return [without_half_characters(inner) for inner in cast(list[Any], value)]
    if isinstance(value, dict):
        items = cast(Json, value).items()
        return {without_half_characters(name): without_half_characters(inner) for name, inner in items}
    return value


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
