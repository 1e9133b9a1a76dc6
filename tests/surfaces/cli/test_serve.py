"""`armarium serve` and `armarium stdio`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.command_line import DEADLINE_S, Command, CommandLine
from support.trusted import trust

Start = Callable[..., Command]


@pytest.fixture
def config(project: Path, environ: dict[str, str]) -> Path:
    """A valid armarium.yaml in the working directory."""
    file = project / "armarium.yaml"
    roots = [{"name": "docs", "path": str(project), "allowed_tools": ["read_file"]}]
    file.write_text(yaml.safe_dump({"server": {"port": 0}, "sandbox": {"roots": roots}}))
    trust(project, environ)
    return file


def listening(server: Command) -> dict[str, Any]:
    return json.loads(server.stderr.until('"listening"')[-1])


def test_serve_reads_armarium_yaml_and_logs_its_address(start: Start, config: Path, home: Path) -> None:
    server = start("serve")
    line = listening(server)
    assert line["capabilities"] == ["sandbox"]
    assert line["auth"] == "auto"
    assert line["url"] == f"{line['address']}/mcp"
    assert line["token_file"] == str(home / "state" / "armarium" / "secret.token")
    assert httpx.get(f"{line['address']}/health", timeout=DEADLINE_S, trust_env=False).text == "ok"
    assert server.interrupt(deadline_s=5) == 0


def test_a_capability_that_the_environment_disables_is_not_announced(
    armarium: CommandLine, start: Start, config: Path, project: Path
) -> None:
    file = yaml.safe_load(config.read_text()) | {"gateway": {"config_dir": str(project / "servers")}}
    config.write_text(yaml.safe_dump(file))
    assert listening(start("serve", "--trust"))["capabilities"] == ["sandbox", "gateway"]
    armarium.environ["FEATURE_RAG_MCP_ENABLED"] = "false"
    assert listening(start("serve", "--trust"))["capabilities"] == ["sandbox"]


def test_serve_prints_its_address_as_json(start: Start, config: Path) -> None:
    server = start("serve", "--config", config, "--json", "--log-level", "error")
    told = json.loads(server.stdout.next())
    assert told["config_file"] == str(config)
    assert told["config"]["mcpServers"]["armarium"]["url"] == told["url"]


def test_flags_override_the_environment_and_the_environment_overrides_the_file(
    armarium: CommandLine, config: Path
) -> None:
    outcome = armarium("serve", "--host", "203.0.113.1", ARMARIUM_SERVER__HOST="203.0.113.2")
    assert "203.0.113.1" in outcome.stderr
    outcome = armarium("serve", ARMARIUM_SERVER__HOST="203.0.113.2")
    assert "203.0.113.2" in outcome.stderr


@pytest.mark.parametrize(
    ("content", "named", "hint"),
    [
        ("server: {prot: 1}", "server.prot", "did you mean `port`?"),
        ("sandbox: {roots: [{name: a, path: /nowhere-at-all, allowed_tools: ['*']}]}", "/nowhere-at-all", "directory"),
        ("sandbox: {roots: [{name: a, path: ., allowed_tools: ['no_such_tool']}]}", "no_such_tool", None),
        ("server: {port: 0}", "no capability is configured", "sandbox"),
        ("a: [", "not valid YAML", None),
    ],
)
def test_invalid_settings_end_with_2_a_message_and_a_hint(
    armarium: CommandLine, project: Path, content: str, named: str, hint: str | None
) -> None:
    (project / "armarium.yaml").write_text(content)
    outcome = armarium("serve", "--port", "0", "--json", "--trust")
    assert outcome.code == 2
    assert outcome.json["error"]["code"] == "CONFIG_INVALID"
    assert named in outcome.json["error"]["message"]
    assert named in outcome.stderr
    if hint:
        assert f"hint: {outcome.json['error']['hint']}" in outcome.stderr
        assert hint in outcome.json["error"]["hint"]


def test_serve_without_a_file_prints_a_working_command_to_create_one(
    armarium: CommandLine, start: Start, project: Path
) -> None:
    outcome = armarium("serve")
    assert outcome.code == 2
    assert "armarium config print --dir . > armarium.yaml" in outcome.stderr
    (project / "armarium.yaml").write_text(armarium("config", "print", "--dir", ".").stdout)
    server = start("serve", "--port", "0", "--trust")
    assert listening(server)["capabilities"] == ["sandbox", "registry", "corpus"]


def opened_session(server: Command) -> dict[str, Any]:
    parameters = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    server.say({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters})
    answer = json.loads(server.stdout.next())
    server.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
    return answer["result"]


def called(server: Command, tool: str, **arguments: Any) -> dict[str, Any]:
    parameters = {"name": tool, "arguments": arguments}
    server.say({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": parameters})
    return json.loads(server.stdout.next())["result"]["structuredContent"]


def test_stdio_answers_initialize_lists_tools_and_ends_with_its_client(start: Start) -> None:
    server = start("stdio")
    assert opened_session(server)["serverInfo"]["name"] == "armarium"
    server.say({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    tools = {tool["name"] for tool in json.loads(server.stdout.next())["result"]["tools"]}
    assert {"list_roots", "read_file", "grep"} <= tools
    assert server.process.stdin
    server.process.stdin.close()
    assert server.process.wait(DEADLINE_S) == 0


def test_stdio_serves_a_directory_read_only_by_default(start: Start, project: Path) -> None:
    reader = start("stdio", project)
    opened_session(reader)
    assert called(reader, "list_roots")["roots"][0]["read_only"] is True
    writer = start("stdio", project, "--write")
    opened_session(writer)
    called(writer, "write_file", root="workspace", path="new.txt", content="new")
    assert (project / "new.txt").read_text() == "new"


def test_stdio_serves_a_settings_file(start: Start, config: Path) -> None:
    server = start("stdio", "--config", config)
    opened_session(server)
    assert called(server, "list_roots")["roots"][0]["name"] == "docs"


def test_ctrl_c_ends_stdio_with_success(start: Start) -> None:
    server = start("stdio")
    opened_session(server)
    assert server.interrupt(deadline_s=5) == 0


def test_stdio_refuses_a_directory_together_with_a_file(armarium: CommandLine, config: Path) -> None:
    outcome = armarium("stdio", ".", "--config", config)
    assert outcome.code == 2
    assert "hint:" in outcome.stderr
    assert outcome.stdout == ""
