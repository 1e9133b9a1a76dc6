"""Which arguments a tool's schema speaks of, however it says so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from armarium.foundation.schema import JsonSchema

_MANY = ("allOf", "anyOf", "oneOf")
_ONE = ("if", "then", "else")


def declares(schema: JsonSchema, name: str) -> bool:
    """Whether an argument of that name is described or required, by the schema itself or by one that it applies to the
    same object: a reference within it, an alternative, a condition."""
    to_look_at: list[object] = [schema]
    seen: set[int] = set()
    while to_look_at:
        part = to_look_at.pop()
        # A schema may refer to itself.
        if not isinstance(part, Mapping) or id(cast(object, part)) in seen:
            continue
        known = cast(Mapping[str, Any], part)
        seen.add(id(known))
        if _names(known.get("properties"), name) or _names(known.get("required"), name):
            return True
        to_look_at += _applied(known, schema)
    return False


def _names(part: object, name: str) -> bool:
    return isinstance(part, Mapping | list) and name in part


def _applied(part: Mapping[str, Any], root: JsonSchema) -> Iterator[object]:
    for word in _MANY:
        if isinstance(branches := part.get(word), list):
            yield from cast(list[object], branches)
    for word in _ONE:
        yield part.get(word)
    if isinstance(dependent := part.get("dependentSchemas"), Mapping):
        yield from cast(Mapping[str, object], dependent).values()
    if isinstance(reference := part.get("$ref"), str) and reference.startswith("#"):
        yield _at(root, reference)


def _at(root: JsonSchema, reference: str) -> object:
    """What a reference within the document points to; None when there is nothing."""
    found: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = cast(Mapping[str, object], found).get(name) if isinstance(found, Mapping) else None
    return found
