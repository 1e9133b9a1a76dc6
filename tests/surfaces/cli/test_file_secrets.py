"""Secrets in files, as `armarium` uses and prints them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from support.command_line import DEADLINE_S, Command, CommandLine

Start = Callable[..., Command]


@pytest.fixture
def secrets(project: Path, tmp_path: Path) -> Path:
    """The directory with the secrets of the settings."""
    directory = tmp_path / "secrets"
    directory.mkdir()
    for name in ("token", "signing", "answers", "mistral"):
        (directory / name).write_text(f"canary-{name}-0123456789\n")
        (directory / name).chmod(0o600)
    settings = {
        "server": {"port": 0},
        "security": {"auth": f"file:{directory}/token"},
        "audit": {"enabled": True},
        "sandbox": {"roots": [{"name": "docs", "path": str(project), "allowed_tools": ["read_file"]}]},
        "gateway": {
            "config_dir": str(project / "servers"),
            "tokens": {"secret": f"${{file:{directory}/signing}}"},
            "answers": {"api_key": f"${{file:{directory}/answers}}"},
        },
    }
    (project / "armarium.yaml").write_text(yaml.safe_dump(settings))
    return directory


def status_with(address: str, token: str) -> int:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.get(f"{address}/metrics", headers=headers, timeout=DEADLINE_S, trust_env=False).status_code


def test_secrets_of_files_rotate_while_the_server_runs_and_appear_nowhere(
    start: Start, project: Path, secrets: Path, home: Path
) -> None:
    server = start("serve", "--config", "armarium.yaml")
    address = json.loads(server.stderr.until('"listening"')[-1])["address"]
    assert status_with(address, "canary-token-0123456789") == 403
    (secrets / "token").write_text("canary-token-9876543210\n")
    assert status_with(address, "canary-token-0123456789") == 401
    assert status_with(address, "canary-token-9876543210") == 403
    changed = json.loads(server.stderr.until("a secret has changed")[-1])
    assert changed["setting"] == "security.auth"
    (secrets / "token").unlink()
    assert status_with(address, "canary-token-9876543210") == 403
    assert json.loads(server.stderr.until("the previous one stays")[-1])["setting"] == "security.auth"
    arguments = Path(f"/proc/{server.process.pid}/cmdline").read_bytes()
    assert server.interrupt() == 0
    assert "canary" not in "\n".join([*server.stdout._seen, *server.stderr._seen])
    assert b"canary" not in arguments
    written = [file for file in [*project.rglob("*"), *home.rglob("*")] if file.is_file()]
    assert not [file for file in written if b"canary" in file.read_bytes()]


def test_a_secret_in_a_served_directory_is_hidden_from_callers(start: Start, project: Path, secrets: Path) -> None:
    key = project / "key.txt"
    key.write_text("canary-in-the-root-0123456789")
    settings = yaml.safe_load((project / "armarium.yaml").read_text())
    settings["gateway"]["tokens"]["secret"] = f"${{file:{key}}}"
    settings["sandbox"]["roots"][0]["allowed_tools"] = ["read_file", "list_folder", "grep"]
    (project / "armarium.yaml").write_text(yaml.safe_dump(settings))
    address = json.loads(start("serve", "--config", "armarium.yaml").stderr.until('"listening"')[-1])["address"]
    headers = {"authorization": "Bearer canary-token-0123456789", "accept": "application/json, text/event-stream"}
    with httpx.Client(headers=headers, timeout=DEADLINE_S, trust_env=False) as client:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
        first = client.post(f"{address}/mcp", json=message("initialize", params))
        client.headers["mcp-session-id"] = first.headers["mcp-session-id"]
        for name, arguments in [
            ("read_file", {"root": "docs", "path": "key.txt"}),
            ("list_folder", {"root": "docs", "path": ""}),
            ("grep", {"root": "docs", "pattern": "can.ry"}),
        ]:
            answer = client.post(f"{address}/mcp", json=message("tools/call", {"name": name, "arguments": arguments}))
            assert answer.status_code == 200
            assert "canary" not in answer.text
            assert "PATH_IGNORED" in answer.text if name == "read_file" else "key.txt" not in answer.text


def message(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def test_printed_settings_name_the_files_and_can_be_used_again(
    armarium: CommandLine, project: Path, secrets: Path
) -> None:
    first = armarium("config", "print", "--config", "armarium.yaml")
    assert "canary" not in first.stdout + first.stderr
    printed = yaml.safe_load(first.stdout)
    assert printed["gateway"]["tokens"]["secret"] == f"${{file:{secrets}/signing}}"
    assert printed["gateway"]["answers"]["api_key"] == f"${{file:{secrets}/answers}}"
    (project / "again.yaml").write_text(first.stdout)
    assert armarium("config", "print", "--config", "again.yaml").stdout == first.stdout
    (secrets / "signing").unlink()
    outcome = armarium("serve", "--json", "--config", "armarium.yaml")
    assert (outcome.code, outcome.json["error"]["code"]) == (2, "CONFIG_INVALID")
    assert "`gateway.tokens.secret`" in outcome.json["error"]["message"]
