"""The parameters with which tools receive the caller's name, and which parameters a schema declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.foundation.schema import Json, JsonSchema

_USERNAME: Final = "username"
_IDENTITY: Final = frozenset({_USERNAME, "_atlas_user"})
"""`username` is the contract's name; servers written for Atlas declare the other."""
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf")
_SUBSCHEMAS = ("if", "then", "else")
_DECLARATIONS = ("properties", "required")
_CLOSINGS = ("additionalProperties", "unevaluatedProperties")


def identity_parameters(spec: ServerSpec) -> frozenset[str]:
    """The names of parameters of a server's tools that only the gateway sets."""
    return _IDENTITY if spec.username_parameter is None else _IDENTITY | {spec.username_parameter}


def rag_identity(spec: ServerSpec, schema: JsonSchema, username: str) -> Json:
    """The arguments that tell a RAG server's tool who calls: those it declares. The contract's name is also sent to a
    tool that declares none, unless its schema forbids other arguments."""
    declared = [name for name in sorted(identity_parameters(spec)) if declares(schema, name)]
    if not declared and not _is_closed(schema):
        declared = [_USERNAME]
    return dict.fromkeys(declared, username)


def declares(schema: JsonSchema, name: str) -> bool:
    """Whether a schema describes or requires an argument, directly or in a subschema for the same object: a local
    reference, an alternative, a condition."""
    return any(
        isinstance(given := part.get(key), Mapping | list) and name in given
        for part in _parts(schema)
        for key in _DECLARATIONS
    )


def _is_closed(schema: JsonSchema) -> bool:
    return any(part.get(key) is False for part in _parts(schema) for key in _CLOSINGS)


def _parts(schema: JsonSchema) -> Iterator[Mapping[str, Any]]:
    """The schema and its subschemas for the same object."""
    pending: list[object] = [schema]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        # A schema may refer to itself.
        if not isinstance(part, Mapping) or id(cast(object, part)) in seen:
            continue
        subschema = cast(Mapping[str, Any], part)
        seen.add(id(subschema))
        yield subschema
        pending += _subschemas(subschema, schema)


def _subschemas(schema: Mapping[str, Any], root: JsonSchema) -> Iterator[object]:
    for keyword in _SCHEMA_LISTS:
        if isinstance(branches := schema.get(keyword), list):
            yield from cast(list[object], branches)
    yield from (schema[keyword] for keyword in _SUBSCHEMAS if keyword in schema)
    if isinstance(dependent := schema.get("dependentSchemas"), Mapping):
        yield from cast(Mapping[str, object], dependent).values()
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        yield _dereference(root, reference)


def _dereference(root: JsonSchema, reference: str) -> object:
    """The target of a local reference; None if there is none."""
    found: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = cast(Mapping[str, object], found).get(name) if isinstance(found, Mapping) else None
    return found
