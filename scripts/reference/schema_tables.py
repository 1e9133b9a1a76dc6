"""Turns a JSON Schema into rows a person can read: names, types in words, defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from pydantic import TypeAdapter

from armarium.foundation.settings import Duration

Schema = Mapping[str, Any]

_LARGEST_SAID = 10**12
"""Bounds beyond this are there for safety and say nothing to a reader."""


@dataclass(frozen=True, slots=True)
class Field:
    """One property of an object."""

    name: str
    type: str
    required: bool
    default: Any
    """None when there is none."""
    description: str
    schema: Schema


def definitions_of(schema: Schema) -> Schema:
    """The named parts of a schema, under the name that its draft has for them."""
    return schema.get("$defs") or schema.get("definitions") or {}


def fields_of(schema: Schema, definitions: Schema, defaults: Schema | None = None) -> Generator[Field]:
    """The properties of an object; `defaults` are those its parent gives it, instead of its own."""
    required = schema.get("required", ())
    for name, node in schema.get("properties", {}).items():
        default = (defaults or {}).get(name, node.get("default"))
        if "x-form" in node and name not in (defaults or {}):
            default = TypeAdapter[Any](Duration).dump_python(default, mode="json")
        yield Field(
            name,
            type_in_words(node, definitions),
            name in required,
            default,
            " ".join(str(node.get("description", "")).split()),
            node,
        )


def answer_fields(
    schema: Schema, definitions: Schema, prefix: str = "", always: bool = True
) -> Generator[tuple[str, str, bool]]:
    """Every field of an answer, nested ones by their path: name, type, and whether it is always there."""
    for field in fields_of(schema, definitions):
        there = always and field.required
        path = f"{prefix}{field.name}"
        yield path, field.type, there
        yield from _fields_of_any(
            [
                list(answer_fields(inner, definitions, f"{path}[]." if is_list else f"{path}.", always=there))
                for inner, is_list in nested_objects(field.schema, definitions)
            ]
        )


def _fields_of_any(forms: Sequence[Sequence[tuple[str, str, bool]]]) -> Generator[tuple[str, str, bool]]:
    """The fields of an object that has one of several forms: only what all of them have is sure to be there."""
    types: dict[str, list[str]] = {}
    sure: Counter[str] = Counter()
    for name, kind, always in chain.from_iterable(forms):
        types.setdefault(name, []).append(kind)
        sure[name] += always
    for name, kinds in types.items():
        yield name, " or ".join(dict.fromkeys(kinds)), sure[name] == len(forms)


def nested_objects(node: Schema, definitions: Schema) -> Generator[tuple[Schema, bool]]:
    """The objects a property holds, and whether it holds a list of them."""
    for option in _options(node):
        if option.get("type") == "array":
            for inner, _ in nested_objects(option.get("items", {}), definitions):
                yield inner, True
            continue
        resolved = _resolved(option, definitions)
        if "properties" in resolved:
            yield resolved, False
        for form in resolved.get("oneOf", ()):
            yield from nested_objects(form, definitions)


def type_in_words(node: Schema, definitions: Schema) -> str:
    """For instance `list of strings`, `integer, 1 to 1000` or `one of a, b`."""
    if "x-form" in node:
        return str(node["x-form"])
    return " or ".join(dict.fromkeys(_one_type(option, definitions) for option in _options(node)))


def _options(node: Schema) -> list[Schema]:
    """What a property may be, null left out: an optional one may simply be missing."""
    return [option for option in node.get("anyOf", [node]) if option.get("type") != "null"]


def _one_type(node: Schema, definitions: Schema) -> str:
    resolved = _resolved(node, definitions)
    if "enum" in resolved:
        return "one of " + ", ".join(f"`{value}`" for value in resolved["enum"])
    if "const" in resolved:
        return f"`{resolved['const']}`"
    match resolved.get("type"):
        case "array":
            return f"list of {_plural(type_in_words(resolved.get('items', {}), definitions))}"
        case "object" if isinstance(values := resolved.get("additionalProperties"), Mapping):
            return f"{_plural(type_in_words(cast(Schema, values), definitions))} by name"
        case "boolean":
            return "true or false"
        case "integer" | "number" as kind:
            return kind + _bounds(resolved)
        case None:
            return "any JSON"
        case kind:
            return str(kind)


def _plural(words: str) -> str:
    return words + "s" if words in ("string", "integer", "number", "object") else words


def _bounds(node: Schema) -> str:
    low, above, high = (node.get(rule) for rule in ("minimum", "exclusiveMinimum", "maximum"))
    if above is not None and node.get("type") == "integer":
        low, above = above + 1, None
    if high is not None and high > _LARGEST_SAID:
        high = None
    if low is not None and high is not None:
        return f", {low} to {high}"
    said = {"at least": low, "more than": above, "at most": high}
    return "".join(f", {words} {bound}" for words, bound in said.items() if bound is not None)


def _resolved(node: Schema, definitions: Schema) -> Schema:
    reference = node.get("$ref")
    return definitions[str(reference).rpartition("/")[2]] if reference else node
