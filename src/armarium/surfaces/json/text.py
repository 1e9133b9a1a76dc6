"""Decodes and encodes messages as JSON, with a slower path for unpaired surrogates."""

from __future__ import annotations

import json
import logging
import math
import re
from typing import Any, NoReturn, cast

import orjson
from mcp_types import INTERNAL_ERROR

from armarium.foundation.schema import Json
from armarium.foundation.surrogates import replace_unpaired_surrogates

_log = logging.getLogger(__name__)

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class NotJson(Exception):
    """The text is not valid JSON."""


class SurrogateObject(dict[str, Any]):
    """An object decoded from a text that may contain unpaired surrogates."""


def decode(text: bytes) -> Any:
    """Decode a JSON text; raises `NotJson`. JSON can escape an unpaired surrogate, and orjson rejects such a text. It
    is decoded here nevertheless: the request keeps its id, and the error can name the argument. The objects of such a
    text are `SurrogateObject`."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not _SURROGATE_ESCAPE.search(text):
            raise NotJson from error
    try:
        return json.loads(
            text.decode(), object_hook=SurrogateObject, parse_constant=reject_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise NotJson from error


def encode(message: Json, *, newline: bool = False) -> bytes:
    """Encode a JSON-RPC message. One that JSON cannot represent becomes an internal error, so that the client gets a
    response."""
    try:
        text = dumps(message)
    except (TypeError, ValueError):
        _log.exception("a message could not be encoded as JSON", extra={"id": message.get("id")})
        error = {"code": INTERNAL_ERROR, "message": "Internal error"}
        text = dumps({"jsonrpc": "2.0", "id": message.get("id"), "error": error})
    return text + b"\n" if newline else text


def dumps(value: Any) -> bytes:
    """Encode any value, with "?" for unpaired surrogates, which many clients cannot read."""
    try:
        return orjson.dumps(value)
    except TypeError:
        encodable = replace_surrogates(value)
    try:
        return orjson.dumps(encodable)
    except TypeError:
        # Integers may have any size.
        return json.dumps(encodable, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def replace_surrogates(value: Any) -> Any:
    """The value with "?" for every unpaired surrogate in its strings and names."""
    if isinstance(value, str):
        return replace_unpaired_surrogates(value)
    if isinstance(value, list):
        return [replace_surrogates(inner) for inner in cast(list[Any], value)]
    if isinstance(value, dict):
        return {replace_surrogates(name): replace_surrogates(inner) for name, inner in cast(Json, value).items()}
    return value


def reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else reject_constant(number)
