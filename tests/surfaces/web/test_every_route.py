"""Valid and invalid requests to every route of a server with everything, checked against its description."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis import GenerationMode

from armarium.foundation.security.identity import key_hash
from support.postgres import running_postgres
from support.server import ServerProcess, installed_command, write_config
from support.soak import is_soak
from support.tried_routes import MODES, operations_of, try_operation

Json = dict[str, Any]

DESCRIPTION = Path(__file__).parents[3] / "docs/reference/openapi.json"
"""That of a server with everything; see `test_described_routes`."""
KEY = "key-of-the-operator"
HEADERS = {"authorization": f"Bearer {KEY}"}
EXAMPLES = 100 if is_soak() else 4
"""For each operation, valid ones and as many invalid ones."""


def document() -> Json:
    """The description, without the key: the test sends it with every request."""
    described = json.loads(DESCRIPTION.read_text())
    described.pop("security", None)
    described["components"].pop("securitySchemes", None)
    return described


OPERATIONS = operations_of(schemathesis.openapi.from_dict(document()))


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with all capabilities, whose caller may do everything. Nothing leaves the machine."""
    base = tmp_path_factory.mktemp("served")
    for name in ("root", "project", "corpus"):
        (base / name).mkdir()
        (base / name / "a.md").write_text("# Harbour\n\nShips leave at high tide.\n")
    groups = ["admin", "metrics"]
    with running_postgres() as dsn:
        settings: Json = {
            "state_dir": str(base / "state"),
            "server": {"port": 0},
            "network": "off",
            "limits": {"requests_per_second": None, "calls_in_flight": 1000},
            "security": {
                "auth": "keys",
                "keys": [{"username": "operator", "groups": groups, "key_sha256": key_hash(KEY)}],
            },
            "sandbox": {"roots": [{"name": "work", "path": str(base / "root"), "allowed_tools": ["*"]}]},
            "store": {"dsn": dsn, "rate": {"calls_per_second": 1e6, "burst": 10**6}},
            "registry": {"project": str(base / "project")},
            "corpus": {"root": str(base / "corpus")},
            "gateway": {
                "config_dir": str(base / "config"),
                "admin_group": "admin",
                "downloads": {"base_url": "https://links.invalid"},
                "limits": {"rate_per_minute": None},
            },
        }
        command = [installed_command("armarium"), "serve", "--config", str(write_config(base, settings))]
        with ServerProcess(command) as process:
            yield process.url


def test_every_operation_that_is_served_is_tried(address: str) -> None:
    served = httpx.get(f"{address}/api/openapi.json", headers=HEADERS, timeout=60).json()["paths"]
    tried = {(each.path, each.method.lower()) for each in OPERATIONS}
    offered = {(path, method) for path, methods in served.items() for method in methods}
    assert offered - tried == {("/api/events", "get")}


def tries() -> list[Any]:
    """Each operation with valid requests, and with invalid ones if there are any: each text is valid in a path."""
    return [
        pytest.param(operation, mode, id=f"{operation.label} {mode.value}")
        for operation in OPERATIONS
        for mode in MODES
        if mode is GenerationMode.POSITIVE or operation.body or operation.query
    ]


@pytest.mark.parametrize(("operation", "mode"), tries())
def test_whatever_is_sent_is_answered_as_described(operation: Any, mode: GenerationMode, address: str) -> None:
    try_operation(operation, mode, examples=EXAMPLES, base_url=address, headers=HEADERS)
