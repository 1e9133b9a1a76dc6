"""The routes of questions, answers and threads: whatever is sent, the response is as the description says."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cache
from typing import Any

import pytest
import schemathesis
from openapi_spec_validator import OpenAPIV31SpecValidator
from schemathesis import GenerationMode

from armarium.capabilities.corpus.manifest import MANIFEST
from armarium.capabilities.gateway.route_tools import ASK
from armarium.foundation.routes import Route, bind_routes
from armarium.surfaces.console.threads.tools import ROUTES, TOOLS
from armarium.surfaces.web.openapi import openapi_document
from support.corpus_calls import write_lighthouse
from support.server import ServerProcess, installed_command, write_config
from support.tried_routes import MODES, operations_of, try_operation

Json = dict[str, Any]


def description() -> Json:
    """The routes without a server behind them. The server under test wants no key."""
    routes = [("corpus", route) for route in MANIFEST.declared_routes()]
    routes += [("console", route) for route in bind_routes(ROUTES, [tool.spec for tool in TOOLS])]
    routes += [("gateway", Route("POST", "/rag/ask", ASK.spec, "Ask sources", at_root=True, streams=True))]
    document = openapi_document(routes)
    del document["security"], document["components"]["securitySchemes"]
    return document


@cache
def operations() -> list[Any]:
    return operations_of(schemathesis.openapi.from_dict(description()))


def tries() -> Iterator[Any]:
    for operation in operations():
        for mode in MODES:
            # Without arguments there is nothing invalid to send.
            if mode is GenerationMode.POSITIVE or operation.body or operation.query or operation.path_parameters:
                yield pytest.param(operation, mode, id=f"{operation.method} {operation.path} {mode.value}")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    base = tmp_path_factory.mktemp("questions")
    write_lighthouse(base / "lighthouse")
    settings = {
        "state_dir": str(base / "state"),
        "server": {"port": 0},
        "security": {"auth": "none"},
        "limits": {"requests_per_second": None},
        "corpus": {"root": str(base / "lighthouse"), "ingest": {"watch": False}},
        "gateway": {"config_dir": str(base / "config"), "watch": False, "limits": {"rate_per_minute": None}},
    }
    command = [installed_command("armarium"), "serve", "--config", str(write_config(base, settings))]
    with ServerProcess(command) as process:
        yield process.url


def test_the_description_is_valid() -> None:
    OpenAPIV31SpecValidator(description()).validate()


@pytest.mark.parametrize(("operation", "mode"), [*tries()])
def test_whatever_is_sent_to_a_route_is_answered_as_described(
    address: str, operation: Any, mode: GenerationMode
) -> None:
    def never_fails(context: Any, response: Any, case: Any) -> None:
        # Reading and asking may have to wait for the index.
        assert response.status_code < 500 or response.status_code == 503, f"{response.status_code}: {response.text}"

    try_operation(operation, mode, fault=never_fails, examples=10, base_url=address)
