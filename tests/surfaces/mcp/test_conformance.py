"""The official conformance suite, run against our transport."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from support.mcp_messages import program_command
from support.server import ServerProcess

ROOT = Path(__file__).parents[3]
SUITE = ROOT / "tests/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
NODE = Path(sys.executable).with_name("node")

ACTIVE_SCENARIOS = (
    "completion-complete",
    "dns-rebinding-protection",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "logging-set-level",
    "ping",
    "prompts-get-embedded-resource",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-with-image",
    "prompts-list",
    "resources-list",
    "resources-read-binary",
    "resources-read-text",
    "resources-subscribe",
    "resources-templates-read",
    "resources-unsubscribe",
    "server-initialize",
    "server-sse-multiple-streams",
    "tools-call-audio",
    "tools-call-elicitation",
    "tools-call-embedded-resource",
    "tools-call-error",
    "tools-call-image",
    "tools-call-mixed-content",
    "tools-call-sampling",
    "tools-call-simple-text",
    "tools-call-with-logging",
    "tools-call-with-progress",
    "tools-list",
)
BEYOND_ACTIVE = ("json-schema-2020-12",)
"""Scenarios the suite does not count as active yet, which we pass all the same."""

Checks = list[dict[str, Any]]


def run_suite(url: str, output: Path, *selection: str) -> None:
    command = [str(NODE), str(SUITE), "server", "--url", f"{url}/mcp", "--output-dir", str(output), *selection]
    environ = {**os.environ, "NO_COLOR": "1"}
    ended = subprocess.run(command, cwd=output, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Checks]:
    """Every check the suite made, by scenario."""
    assert SUITE.exists(), "the clients of tests/node are not installed; `make test` does that"
    output = tmp_path_factory.mktemp("conformance")
    with ServerProcess(program_command("support.conformance_server")) as server:
        run_suite(server.url, output, "--suite", "active")
        for scenario in BEYOND_ACTIVE:
            run_suite(server.url, output, "--scenario", scenario)
    checks: dict[str, Checks] = defaultdict(list)
    for file in output.glob("server-*/checks.json"):
        # The folder is called server-<scenario>-<time>, the time being 2026-01-31T12-00-00-000Z.
        scenario = file.parent.name.removeprefix("server-").rsplit("-", 6)[0]
        checks[scenario] += json.loads(file.read_text())
    return checks


def test_the_suite_has_the_scenarios_we_know_of_and_no_other(results: dict[str, Checks]) -> None:
    assert set(results) == {*ACTIVE_SCENARIOS, *BEYOND_ACTIVE}


@pytest.mark.parametrize("scenario", [*ACTIVE_SCENARIOS, *BEYOND_ACTIVE])
def test_the_server_conforms_in(results: dict[str, Checks], scenario: str) -> None:
    statuses = [check["status"] for check in results[scenario]]
    problems = [check for check in results[scenario] if check["status"] not in ("SUCCESS", "INFO")]
    assert not problems
    assert "SUCCESS" in statuses, "a scenario that checked nothing proves nothing"
