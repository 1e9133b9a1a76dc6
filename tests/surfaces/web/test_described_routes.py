"""The committed description of the JSON API has every route of a server with everything switched on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from reference.openapi_page import openapi_page
from support.policy_server import policy_server
from support.postgres import running_postgres

REPOSITORY = Path(__file__).parents[3]


def test_the_description_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(json.loads(openapi_page())).validate()


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running_postgres() as address:
        yield address


async def test_every_route_of_a_server_is_described(tmp_path: Path, dsn: str) -> None:
    document = json.loads((REPOSITORY / "docs/reference/openapi.json").read_text())
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    async with policy_server(tmp_path, dsn) as served:
        offered = {
            (route.method, f"/api{route.path_of(capability.name)}")
            for capability in served.server.capabilities
            for route in capability.routes
        }
    assert len(offered) > 40
    assert offered - described == set(), "add them to `ROUTES` of the capability, and run `make docs`"
