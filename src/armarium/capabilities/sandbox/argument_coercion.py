"""Converts strings to the integers and booleans that a schema asks for: models write "2" for 2."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from armarium.foundation.schema import JsonSchema
from armarium.foundation.tools import Call

Given = Mapping[str, Any]

_INTEGER = re.compile(r"-?[0-9]{1,16}")
_BOOLEANS = {"true": True, "false": False}


def coerced(schema: JsonSchema) -> Callable[[Call, Given], Given]:
    """A function that converts strings to integers and booleans where the schema asks for them.

    Strings that cannot be converted stay, and fail validation.
    """
    converters = {
        name: _CONVERTERS[described["type"]]
        for name, described in schema.get("properties", {}).items()
        if described.get("type") in _CONVERTERS
    }

    def convert(call: Call, given: Given) -> Given:
        texts = [name for name in converters if isinstance(given.get(name), str)]
        return {**given, **{name: converters[name](given[name]) for name in texts}} if texts else given

    return convert


def _integer(text: str) -> int | str:
    return int(text) if _INTEGER.fullmatch(text.strip()) else text


def _boolean(text: str) -> bool | str:
    return _BOOLEANS.get(text.strip().lower(), text)


_CONVERTERS: dict[str, Callable[[str], Any]] = {"integer": _integer, "boolean": _boolean}
