"""Property tests of every route: valid and invalid requests, by callers and administrators, over real servers."""

from __future__ import annotations

import copy
from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import BaseModel
from schemathesis import GenerationMode

from armarium.capabilities.gateway.admin.service import Administration, administration_routes
from armarium.capabilities.gateway.config.entries import DataSource, ServerEntry
from armarium.capabilities.gateway.tools import ASK, DOWNLOAD, SESSION_TOOLS, TOOLS, download_route, gateway_routes
from armarium.surfaces.operations.calls import AUDIT, own_calls_routes
from armarium.surfaces.web.openapi import openapi_document
from support.gateway_server import HOSTILE, GatewayServer, headers_of, rag_entry, started
from support.tried_routes import operations_of, try_operation

Json = dict[str, Any]

REGISTRY: Json = {
    "notes": rag_entry("harbour", "tides"),
    "law": rag_entry("cases", groups=["admin"]),
    "wiki": rag_entry("pages", "drafts", dataSources=[{"id": "drafts", "groups": ["editors"], "authMode": "bearer"}]),
}
HINTED = "hinted"
"""A server that is only described, for hints to come and go."""
REAL_SOURCES = ["notes:harbour", "tides", "law:cases", "wiki:pages", "wiki:drafts"]
REAL_SERVERS = [*REGISTRY, "armarium", "odd"]
SERVER = "/api/admin/mcp/servers/{server}"
MADE_SOURCES = ["made-source", "a:b c"]
MADE_SERVERS = ["made", "made-too"]
"""What administrators' requests change: the others are to stay."""
NOT_OURS = frozenset({502, 503, 504})
"""Said of a server behind the gateway, in the contract's words."""


def description() -> Json:
    """The API of a server with only the gateway, without anything behind it."""
    tools = [tool.spec for tool in (*TOOLS, ASK, *SESSION_TOOLS)]
    routes = [
        *gateway_routes(tools),
        download_route(DOWNLOAD.spec, lambda name, token: None),
        *administration_routes(cast(Administration, None), admin_group="admin"),
    ]
    calls = own_calls_routes(Path("unused"), lambda principal, apikey_hash: False)
    return openapi_document([*(("gateway", route) for route in routes), *((AUDIT, route) for route in calls)])


def tempting() -> Json:
    """The same with names that mean something here, and with bodies of the right form where the description leaves the
    form to the schema of the files."""
    document = described_once()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            servers = REAL_SERVERS
            if "/admin/" in path and method != "get":
                servers = [HINTED] if "/sources/" in path else MADE_SERVERS
            names = {"server": servers, "source": MADE_SOURCES}
            for parameter in operation["parameters"]:
                if parameter["name"] in names:
                    parameter["schema"] = {"enum": names[parameter["name"]]}
    for path in ("/api/rag/search", "/api/rag/synthesize"):
        _body(document, path, "post")["properties"]["sources"]["items"] = {"enum": REAL_SOURCES}
    _body(document, "/api/rag/tokens", "post")["properties"]["source"] = {"enum": REAL_SOURCES}
    entry = _form(document, ServerEntry) | {"required": ["command"]}
    for other_way in ("type", "url", "headers", "env"):
        del entry["properties"][other_way]
    _body(document, SERVER, "put").update(entry)
    _body(document, "/api/admin/mcp/check", "post")["properties"] |= {"entry": entry, "server": {"enum": MADE_SERVERS}}
    _body(document, f"{SERVER}/sources/{{source}}", "put").update(_form(document, DataSource))
    return document


def described_once() -> Json:
    """The description, for one to change. Everybody has their key: what becomes of those without is tried elsewhere."""
    document = copy.deepcopy(description())
    del document["security"], document["components"]["securitySchemes"]
    return document


def _body(document: Json, path: str, method: str) -> Json:
    return document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"]


def _form(document: Json, model: type[BaseModel]) -> Json:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    document["components"]["schemas"] |= schema.pop("$defs", {})
    return schema


def tries() -> list[Any]:
    """Every operation with how its requests are made; some have nothing that could be wrong."""
    made: list[tuple[str, Any, GenerationMode]] = []
    for operation in operations_of(schemathesis.openapi.from_dict(described_once())):
        made.append(("right", operation, GenerationMode.POSITIVE))
        if any(True for _ in operation.iter_parameters()) or operation.body:
            made.append(("wrong", operation, GenerationMode.NEGATIVE))
    for operation in operations_of(schemathesis.openapi.from_dict(tempting())):
        made.append(("tempting", operation, GenerationMode.POSITIVE))
    return [pytest.param(operation, mode, id=f"{operation.label} {how}") for how, operation, mode in made]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[GatewayServer]:
    base = tmp_path_factory.mktemp("routes")
    with started(base, watch=False) as running:
        running.write("rag-mcp.json", {**REGISTRY, HINTED: {"enabled": False}})
        running.write("mcp.json", {"odd": HOSTILE})
        with running.api("root") as admin:
            assert admin.post("/admin/mcp/reload").status_code == 200
            assert {"armarium", *REGISTRY} == set(admin.get("/config").json()["authorized_servers"])
        yield running


def fault_of_ours(context: Any, response: Any, case: Any) -> None:
    """A server behind the gateway may fail, which is told in the contract's words; the gateway may not."""
    told = response.status_code in NOT_OURS and response.json().get("results", {}).get("error", {}).get("code")
    assert response.status_code < 500 or told, f"{response.status_code}: {response.text[:1000]}"


def denied(context: Any, response: Any, case: Any) -> None:
    """Nobody but administrators gets further than the manifest."""
    assert response.status_code == 403, response.text[:1000]


def harmless(case: Any) -> None:
    """What a made server would start or reach, if it is there, is not."""
    entry = case.body.get("entry", case.body) if isinstance(case.body, dict) else None
    if case.method in ("POST", "PUT") and isinstance(entry, dict):
        replaced = {"command": "/nowhere/to/be/found", "url": "http://127.0.0.1:9/mcp"}
        for name in replaced.keys() & entry.keys():
            if isinstance(entry[name], str):
                entry[name] = replaced[name]


@pytest.mark.parametrize("user", ["root", "anna"])
@pytest.mark.parametrize(("operation", "mode"), tries())
def test_whatever_is_sent_to_the_gateway_is_answered_as_described(
    operation: Any, user: str, mode: GenerationMode, server: GatewayServer
) -> None:
    outside = user == "anna" and "/admin/" in operation.path
    try_operation(
        operation,
        mode,
        fault=fault_of_ours,
        prepare=harmless,
        examples=10,
        also=[denied] if outside else [],
        base_url=server.process.url,
        headers=headers_of(user),
    )


def test_the_description_that_is_served_is_the_one_that_is_tried(server: GatewayServer) -> None:
    with server.api("anna") as api:
        served = api.get("/openapi.json").json()
    OpenAPIV31SpecValidator(served).validate()
    tried = description()
    others = {"operations", "console"}
    paths = {
        path: operations
        for path, operations in served["paths"].items()
        if not all(others.issuperset(operation["tags"]) for operation in operations.values())
    }
    assert paths == tried["paths"]
    assert served["components"]["schemas"].items() >= tried["components"]["schemas"].items()
    assert sum(len(operations) for operations in paths.values()) == 28


def test_after_all_that_the_servers_that_were_there_are_well(server: GatewayServer) -> None:
    with server.api("root") as admin, server.api("anna") as anna:
        seen = {each["name"]: each for each in admin.get("/admin/mcp").json()["servers"]}
        assert {name: seen[name]["health"]["connections"] for name in REGISTRY} == dict.fromkeys(REGISTRY, 1)
        found = anna.post("/rag/search", json={"query": "tide", "sources": ["notes:tides", "wiki:pages"]})
        assert {hit["resourceId"] for hit in found.json()["results"]["hits"]} == {"notes:tides", "wiki:pages"}
