"""Converts a JSON Schema into table rows: names, types in words, defaults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from pydantic import TypeAdapter

from armarium.foundation.settings.model import Duration

Schema = Mapping[str, Any]

_LARGEST_SHOWN_BOUND = 10**12
"""Larger bounds exist for safety and are not shown."""


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
    """The definitions of a schema, whatever key its draft uses for them."""
    return schema.get("$defs") or schema.get("definitions") or {}


def fields_of(schema: Schema, definitions: Schema, defaults: Schema | None = None) -> Generator[Field]:
    """The properties of an object. `defaults` from its parent replace its own."""
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


def result_fields(
    schema: Schema, definitions: Schema, prefix: str = "", always: bool = True
) -> Generator[tuple[str, str, bool]]:
    """Every field of a result, nested fields by their path: name, type, and whether it is always present."""
    for field in fields_of(schema, definitions):
        present = always and field.required
        path = f"{prefix}{field.name}"
        yield path, field.type, present
        yield from _fields_of_any(
            [
                list(result_fields(inner, definitions, f"{path}[]." if is_list else f"{path}.", always=present))
                for inner, is_list in nested_objects(field.schema, definitions)
            ]
        )


def _fields_of_any(forms: Sequence[Sequence[tuple[str, str, bool]]]) -> Generator[tuple[str, str, bool]]:
    """The fields of an object with several forms: only fields of all forms are always present."""
    types: dict[str, list[str]] = {}
    always_present: Counter[str] = Counter()
    for name, kind, always in chain.from_iterable(forms):
        types.setdefault(name, []).append(kind)
        always_present[name] += always
    for name, kinds in types.items():
        yield name, " or ".join(dict.fromkeys(kinds)), always_present[name] == len(forms)


def nested_objects(node: Schema, definitions: Schema) -> Generator[tuple[Schema, bool]]:
    """The objects in a property, and whether the property is a list of them."""
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
    """The alternatives of a property without null, which means that it is optional."""
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
    if high is not None and high > _LARGEST_SHOWN_BOUND:
        high = None
    if low is not None and high is not None:
        return f", {low} to {high}"
    bounds = {"at least": low, "more than": above, "at most": high}
    return "".join(f", {words} {bound}" for words, bound in bounds.items() if bound is not None)


def _resolved(node: Schema, definitions: Schema) -> Schema:
    reference = node.get("$ref")
    return definitions[str(reference).rpartition("/")[2]] if reference else node
