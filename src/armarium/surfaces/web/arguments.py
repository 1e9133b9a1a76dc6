"""Converts an HTTP request to the arguments of a tool, typed by the schema of the tool."""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl

import orjson

from armarium.foundation.errors import InvalidArgument
from armarium.foundation.routes import Place, Route
from armarium.foundation.schema import Json, JsonSchema
from armarium.surfaces.json.bounds import TooManyValues, decode_body
from armarium.surfaces.json.text import NotJson, SurrogateObject

_MAX_QUERY_FIELDS = 1000
_MAX_NAME_SHOWN = 60
_BELONGS: dict[Place, str] = {
    "path": "is already in the path",
    "query": "belongs in the query",
    "body": "belongs in the body",
    "preset": "cannot be chosen here",
}


async def arguments_of(
    route: Route, in_path: Mapping[str, str], query_string: bytes, body: bytes, max_values: int
) -> Json:
    """The arguments in path, query and body. Raises `InvalidArgument` if one is misplaced or repeated. The dispatcher
    validates names and values against the schema of the tool."""
    arguments = arguments_in_query(route, in_path, fields_of(query_string))
    in_body = await _in_body(route, body, max_values)
    for name, value in in_body.items():
        _check_place(route, name, "body")
        if name in arguments:  # an unknown argument in both places
            raise _given_twice(name)
        arguments[name] = value
    arguments |= route.presets
    # Keeps the mark, so that the dispatcher checks for unpaired surrogates.
    return SurrogateObject(arguments) if isinstance(in_body, SurrogateObject) else arguments


def arguments_in_query(route: Route, in_path: Mapping[str, str], fields: Mapping[str, list[str]]) -> Json:
    """The arguments in path and query. Raises `InvalidArgument` if one is misplaced or repeated."""
    arguments: Json = {name: _value(text, *_schema_of(route, name)) for name, text in in_path.items()}
    for name, texts in fields.items():
        _check_place(route, name, "query")
        arguments[name] = _repeated(texts, route, name)
    return arguments


def fields_of(query_string: bytes) -> dict[str, list[str]]:
    try:
        pairs = parse_qsl(
            query_string.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_QUERY_FIELDS
        )
    except ValueError as error:
        raise InvalidArgument("the query is not percent-encoded UTF-8, or has too many fields") from error
    fields: defaultdict[str, list[str]] = defaultdict(list)
    for name, text in pairs:
        fields[name].append(text)
    return fields


async def _in_body(route: Route, body: bytes, max_values: int) -> Json:
    if not body:
        return {}
    if not route.takes_body:
        # Not ignored: silently dropping a condition such as `if_match` would be worse than an error.
        raise InvalidArgument(f"{route.method} takes no body; its arguments belong in the query")
    if route.raw_body is not None:
        return {route.raw_body: base64.b64encode(body).decode()}
    try:
        value = await decode_body(body, max_values)
    except NotJson as error:
        raise InvalidArgument("the body is not valid JSON") from error
    except TooManyValues:
        raise InvalidArgument(f"the body has more than {max_values} values") from None
    if route.whole_body is not None:
        # Only an object carries the mark itself; a list or a string may contain unpaired surrogates.
        whole = {route.whole_body: value}
        return whole if type(value) is dict else SurrogateObject(whole)
    if not isinstance(value, dict):
        raise InvalidArgument("the body must be a JSON object of arguments")
    return cast(Json, value)


def _check_place(route: Route, name: str, place: Place) -> None:
    right_place = route.place_of(name)
    if right_place is not None and right_place != place:
        raise InvalidArgument(f"`{name}` {_BELONGS[right_place]}", field=name)


def _given_twice(name: str) -> InvalidArgument:
    return InvalidArgument(f"`{name[:_MAX_NAME_SHOWN]}` is given twice", field=name[:_MAX_NAME_SHOWN])


def _repeated(texts: list[str], route: Route, name: str) -> Any:
    schema, definitions = _schema_of(route, name)
    lists = [each for each in _alternatives(schema, definitions) if each.get("type") == "array"]
    if lists:
        return [_value(text, lists[0].get("items", {}), definitions) for text in texts]
    if len(texts) > 1:
        raise _given_twice(name)
    return _value(texts[0], schema, definitions)


def _schema_of(route: Route, name: str) -> tuple[JsonSchema, JsonSchema]:
    schema = route.tool.input_schema
    return schema.get("properties", {}).get(name, {}), schema.get("$defs", {})


def _value(text: str, schema: JsonSchema, definitions: JsonSchema) -> Any:
    """Convert a string to the type in the schema. A string that does not fit is left for the schema check."""
    types = {each.get("type", "string") for each in _alternatives(schema, definitions)}
    if "string" in types:
        return text
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if isinstance(value, bool):
        return value if "boolean" in types else text
    return value if isinstance(value, int | float) and types & {"integer", "number"} else text


def _alternatives(schema: JsonSchema, definitions: JsonSchema) -> list[JsonSchema]:
    reference = str(schema.get("$ref", ""))
    if reference:
        return _alternatives(definitions.get(reference.removeprefix("#/$defs/"), {}), {})
    branches: list[JsonSchema] = schema.get("anyOf") or schema.get("oneOf") or []
    if branches:
        return [plain for branch in branches for plain in _alternatives(branch, definitions)]
    types: object = schema.get("type")
    return [{**schema, "type": each} for each in cast(list[str], types)] if isinstance(types, list) else [schema]
