"""The OpenAPI document of the JSON API: valid, complete, and consistent with the responses."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel
from schemathesis import GenerationMode
from typing_extensions import TypedDict

from armarium.capabilities.store.manifest import MANIFEST
from armarium.foundation.routes import Route
from armarium.foundation.tools import Args, Call, ErrorStyle, local_tool
from armarium.surfaces.web.openapi import openapi_document
from support.notes_api import KEY, caller_of, demo
from support.tried_routes import MODES, operations_of, try_operation

HEADERS = {"authorization": f"Bearer {KEY}", "host": "127.0.0.1"}
NOT_MEANT_TO_WORK = r"/(looking|changing|failures|half)"


class Leaf(BaseModel):
    """Something that is referred to."""

    name: str


class Tree(BaseModel):
    """Something that refers to itself."""

    leaf: Leaf
    below: list[Tree] = []


class PlantArgs(Args):
    """What to plant."""

    garden: str
    tree: Tree


class Planted(TypedDict):
    tree: Leaf


async def plant(call: Call, args: PlantArgs) -> Planted:
    """Plant a tree."""
    return {"tree": args.tree.leaf}


def described_api() -> Any:
    """The demo's API, as schemathesis reads it off the server."""
    loaded = schemathesis.openapi.from_asgi("/api/openapi.json", demo().app.asgi, headers=HEADERS)
    return loaded.exclude(path_regex=NOT_MEANT_TO_WORK)


async def description() -> dict[str, Any]:
    async with caller_of(demo().app) as carol:
        answer = await carol.get("/api/openapi.json")
    assert answer.status_code == 200
    return answer.json()


async def test_the_description_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(await description()).validate()


def test_the_description_of_the_store_is_valid_openapi() -> None:
    document = openapi_document([("store", route) for route in MANIFEST.declared_routes()])
    OpenAPIV31SpecValidator(document).validate()
    assert set(document["components"]["schemas"]) >= {"Refusal", "store.Error"}
    assert document["paths"]["/api/store/{project}/file"].keys() == {"get", "put", "patch", "delete"}


async def test_every_route_is_described_with_its_arguments_where_they_stand() -> None:
    paths = (await description())["paths"]
    put = paths["/api/demo/notes/{number}"]["put"]
    assert [(each["name"], each["in"], each["required"]) for each in put["parameters"]] == [
        ("title", "query", True),
        ("number", "path", True),
    ]
    body = put["requestBody"]["content"]["application/json"]["schema"]
    assert (list(body["properties"]), body["additionalProperties"]) == (["text"], False)
    assert put["requestBody"]["required"] is False
    assert "requestBody" not in paths["/api/demo/notes"]["get"]
    limit = next(each for each in paths["/api/demo/notes"]["get"]["parameters"] if each["name"] == "limit")
    assert limit == {
        "name": "limit",
        "in": "query",
        "required": False,
        "description": "Most notes.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
    }


async def test_answers_and_errors_are_described() -> None:
    document = await description()
    made = document["paths"]["/api/demo/notes"]["post"]["responses"]
    assert list(made) == ["201", "400", "401", "default"]
    assert made["201"]["content"]["application/json"]["schema"]["required"] == ["number", "title"]
    assert made["400"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/demo.Error"}
    dropped = document["paths"]["/api/demo/notes/{number}"]["delete"]["responses"]
    assert "content" not in dropped["204"]
    assert document["security"] == [{"bearer": []}]


async def test_the_names_of_operations_are_unique_and_those_of_their_tools_where_they_can_be() -> None:
    paths = (await description())["paths"]
    names = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(set(names)) == len(names)
    assert {"find_notes", "write_note_put", "write_note_patch"} <= set(names)


def test_definitions_become_components_and_references_follow_them() -> None:
    document = openapi_document([("garden", Route("POST", "/{garden}", local_tool("plant", plant), "Plant"))])
    OpenAPIV31SpecValidator(document).validate()
    body = document["paths"]["/api/garden/{garden}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["properties"]["tree"] == {"$ref": "#/components/schemas/plant.arguments.Tree"}
    tree = document["components"]["schemas"]["plant.arguments.Tree"]["properties"]
    assert tree["leaf"] == {"$ref": "#/components/schemas/plant.arguments.Leaf"}
    assert tree["below"]["items"] == {"$ref": "#/components/schemas/plant.arguments.Tree"}
    assert "$defs" not in str(document)


def test_a_tool_with_an_envelope_of_its_own_is_described_with_it() -> None:
    style = ErrorStyle(lambda error: {"oops": error.code}, {"type": "object", "required": ["oops"]})
    tools = [local_tool("plant", plant), local_tool("uproot", plant, errors=style)]
    document = openapi_document([("garden", Route("POST", f"/{tool.name}", tool, "Do")) for tool in tools])
    uproot = document["paths"]["/api/garden/uproot"]["post"]["responses"]["400"]["content"]["application/json"]
    assert uproot["schema"] == {"$ref": "#/components/schemas/uproot.Error"}
    assert document["components"]["schemas"]["uproot.Error"]["required"] == ["oops"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("operation", operations_of(described_api()), ids=lambda operation: operation.label)
def test_whatever_is_sent_to_a_described_route_is_answered_as_described(operation: Any, mode: GenerationMode) -> None:
    try_operation(operation, mode, headers=HEADERS)
