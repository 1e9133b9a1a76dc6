"""`armarium install` merges an entry into the configuration of a client and loses nothing in it."""

from __future__ import annotations

import json
import os
import pty
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.command_line import DEADLINE_S, CommandLine
from support.server import installed_command

ARMARIUM = installed_command("armarium")
URL = "http://127.0.0.1:8091/mcp"
TOKEN = "a-long-secret-token"


@dataclass(frozen=True)
class Expected:
    """The expected location and format of a client's entry."""

    file: Callable[[Path, Path], Path]
    section: str
    stdio: dict[str, Any]
    http: dict[str, Any] | None
    """With the token as this file may contain it; None if the client does not support URLs."""


BEARER = {"Authorization": f"Bearer {TOKEN}"}
CLIENTS = {
    "claude-desktop": Expected(
        lambda home, project: home / ".config" / "Claude" / "claude_desktop_config.json", "mcpServers", {}, None
    ),
    "claude-code": Expected(
        lambda home, project: project / ".mcp.json",
        "mcpServers",
        {"type": "stdio"},
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${ARMARIUM_TOKEN}"}},
    ),
    "claude-code --scope user": Expected(
        lambda home, project: home / ".claude.json",
        "mcpServers",
        {"type": "stdio"},
        {"type": "http", "url": URL, "headers": BEARER},
    ),
    "cursor": Expected(
        lambda home, project: home / ".cursor" / "mcp.json", "mcpServers", {}, {"url": URL, "headers": BEARER}
    ),
    "cursor --scope project": Expected(
        lambda home, project: project / ".cursor" / "mcp.json",
        "mcpServers",
        {},
        {"url": URL, "headers": {"Authorization": "Bearer ${env:ARMARIUM_TOKEN}"}},
    ),
    "vscode": Expected(
        lambda home, project: project / ".vscode" / "mcp.json",
        "servers",
        {"type": "stdio"},
        {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${input:armarium-token}"}},
    ),
    "vscode --scope user": Expected(
        lambda home, project: home / ".config" / "Code" / "User" / "mcp.json",
        "servers",
        {"type": "stdio"},
        {"type": "http", "url": URL, "headers": BEARER},
    ),
    "windsurf": Expected(
        lambda home, project: home / ".codeium" / "windsurf" / "mcp_config.json",
        "mcpServers",
        {},
        {"serverUrl": URL, "headers": BEARER},
    ),
}
every_client = pytest.mark.parametrize("client", CLIENTS)
http_clients = pytest.mark.parametrize("client", [name for name, expected in CLIENTS.items() if expected.http])


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "secret.token"
    file.write_text(f"{TOKEN}\n")
    return file


def stdio_entry(client: str, project: Path, *arguments: str) -> dict[str, Any]:
    return CLIENTS[client].stdio | {"command": ARMARIUM, "args": ["stdio", str(project), *arguments]}


def content(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def left_behind(file: Path) -> set[str]:
    return {path.name for path in file.parent.iterdir()} - {file.name}


@every_client
def test_a_new_file_gets_an_entry_that_starts_the_server(
    armarium: CommandLine, home: Path, project: Path, client: str
) -> None:
    expected = CLIENTS[client]
    file = expected.file(home, project)
    outcome = armarium("install", *client.split(), "--dir", ".", "--yes", "--json")
    assert outcome.code == 0, outcome.stderr
    assert content(file) == {expected.section: {"armarium": stdio_entry(client, project)}}
    assert outcome.json["file"] == str(file)
    assert outcome.json["entry"] == stdio_entry(client, project)
    assert (outcome.json["written"], outcome.json["backup"]) == (True, None)
    assert str(file) in outcome.stderr
    assert left_behind(file) <= {"hello.txt", "state"}


@every_client
def test_other_content_is_preserved_and_a_backup_is_written(
    armarium: CommandLine, home: Path, project: Path, client: str
) -> None:
    expected = CLIENTS[client]
    file = expected.file(home, project)
    file.parent.mkdir(parents=True, exist_ok=True)
    before = {
        "theme": "dark",
        "history": ["é", "\ud83d"],
        expected.section: {"other": {"command": "x", "args": []}, "armarium": {"command": "old", "disabled": True}},
        "last": {"a": 1},
    }
    file.write_text(json.dumps(before))
    file.chmod(0o640)
    outcome = armarium("install", *client.split(), "--dir", ".", "--write", "--yes", "--json")
    assert outcome.code == 0, outcome.stderr
    after = content(file)
    ours = after[expected.section].pop("armarium")
    assert ours == stdio_entry(client, project, "--write") | {"disabled": True}
    before[expected.section].pop("armarium")
    assert after == before
    assert list(after) == list(before)
    assert outcome.json["backup"] == f"{file}.bak"
    assert content(Path(outcome.json["backup"]))[expected.section]["armarium"]["command"] == "old"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@every_client
def test_installing_is_idempotent(armarium: CommandLine, home: Path, project: Path, client: str) -> None:
    file = CLIENTS[client].file(home, project)
    armarium("install", *client.split(), "--dir", ".", "--yes")
    # Written differently, and yet the same.
    file.write_text(json.dumps(content(file), indent=7))
    first = file.stat()
    outcome = armarium("install", *client.split(), "--dir", ".", "--json")
    assert outcome.code == 0
    assert (outcome.json["changed"], outcome.json["written"]) == (False, False)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    assert f"{file.name}.bak" not in left_behind(file)


@pytest.mark.parametrize(
    ("client", "broken"),
    [
        *((client, '{"a": [1, 2,],}') for client in CLIENTS),
        ("claude-code", '{"a": 1, // a comment\n}'),
        ("claude-code", "[1, 2]"),
        ("claude-code", '{"a": 1, "a": 2}'),
        ("claude-code", '{"a": NaN}'),
        ("claude-code", '{"mcpServers": []}'),
        ("claude-code", '{"mcpServers": {"armarium": 1}}'),
        ("vscode", '{"servers": "none"}'),
    ],
)
def test_an_invalid_file_is_not_changed(
    armarium: CommandLine, home: Path, project: Path, client: str, broken: str
) -> None:
    file = CLIENTS[client].file(home, project)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(broken)
    outcome = armarium("install", *client.split(), "--dir", ".", "--yes", "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["code"] == "CLIENT_CONFIG_INVALID"
    assert str(file) in outcome.stderr
    assert "hint:" in outcome.stderr
    assert file.read_text() == broken
    assert f"{file.name}.bak" not in left_behind(file)


@every_client
def test_a_dry_run_prints_the_entry_and_writes_nothing(
    armarium: CommandLine, home: Path, project: Path, client: str
) -> None:
    expected = CLIENTS[client]
    outcome = armarium("install", *client.split(), "--dir", ".", "--dry-run")
    assert outcome.code == 0
    assert outcome.json == {expected.section: {"armarium": stdio_entry(client, project)}}
    assert list(home.iterdir()) == []
    assert [path.name for path in project.iterdir()] == ["hello.txt"]


@http_clients
def test_a_running_server_is_configured_with_its_token_except_in_shared_files(
    armarium: CommandLine, home: Path, project: Path, token_file: Path, client: str
) -> None:
    expected = CLIENTS[client]
    file = expected.file(home, project)
    outcome = armarium("install", *client.split(), "--url", URL, "--token-file", token_file, "--yes", "--json")
    assert outcome.code == 0, outcome.stderr
    assert content(file)[expected.section]["armarium"] == expected.http
    assert TOKEN not in outcome.stdout + outcome.stderr
    if home in file.parents:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    else:
        assert TOKEN not in file.read_text()
        assert str(token_file) in outcome.json["notes"][0]


def test_the_token_prompt_of_vs_code_is_defined_once(armarium: CommandLine, project: Path, token_file: Path) -> None:
    file = project / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"inputs": [{"id": "mine", "type": "promptString"}]}')
    for name in ("one", "two"):
        armarium("install", "vscode", "--url", URL, "--token-file", token_file, "--name", name, "--yes")
    assert [each["id"] for each in content(file)["inputs"]] == ["mine", "armarium-token"]
    assert list(content(file)["servers"]) == ["one", "two"]


@http_clients
def test_a_server_without_a_token_gets_no_header(armarium: CommandLine, home: Path, project: Path, client: str) -> None:
    expected = CLIENTS[client]
    armarium("install", *client.split(), "--url", URL, "--yes")
    entry = content(expected.file(home, project))[expected.section]["armarium"]
    assert entry == {key: value for key, value in (expected.http or {}).items() if key != "headers"}


def test_changing_from_a_url_to_a_directory_removes_the_header(
    armarium: CommandLine, home: Path, project: Path, token_file: Path
) -> None:
    armarium("install", "cursor", "--url", URL, "--token-file", token_file, "--yes")
    armarium("install", "cursor", "--dir", ".", "--yes")
    assert content(home / ".cursor" / "mcp.json")["mcpServers"]["armarium"] == stdio_entry("cursor", project)


def test_claude_desktop_refuses_a_url_with_a_hint(armarium: CommandLine, home: Path, project: Path) -> None:
    outcome = armarium("install", "claude-desktop", "--url", URL, "--yes")
    assert outcome.code == 2
    assert "--dir" in outcome.stderr
    outcome = armarium("install", "claude-desktop", "--url", URL, "--dir", ".", "--yes")
    assert outcome.code == 0
    assert "stdio is used" in outcome.stderr
    file = CLIENTS["claude-desktop"].file(home, project)
    assert content(file)["mcpServers"]["armarium"] == stdio_entry("claude-desktop", project)


def test_a_client_can_start_a_settings_file(armarium: CommandLine, project: Path) -> None:
    config = project / "armarium.yaml"
    config.write_text("{}")
    armarium("install", "claude-code", "--config", "armarium.yaml", "--name", "files", "--yes")
    assert content(project / ".mcp.json")["mcpServers"]["files"]["args"] == ["stdio", "--config", str(config)]


def test_the_installed_command_works(armarium: CommandLine, project: Path) -> None:
    armarium("install", "claude-code", "--yes")
    entry = content(project / ".mcp.json")["mcpServers"]["armarium"]
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    done = subprocess.run(
        [entry["command"], *entry["args"]],
        input=json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}) + "\n",
        env=armarium.environ,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "armarium"


def test_without_a_terminal_nothing_is_written(armarium: CommandLine, project: Path) -> None:
    outcome = armarium("install", "claude-code", "--dir", ".")
    assert outcome.code == 2
    assert "--yes" in outcome.stderr
    assert not (project / ".mcp.json").exists()


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("\n", True), ("n\n", False), ("\x04", False)])
def test_the_entry_is_printed_before_the_confirmation(
    environ: dict[str, str], project: Path, answer: str, written: bool
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [ARMARIUM, "install", "claude-code", "--dir", "."],
        cwd=project,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    said = b""
    try:
        while b"Write it?" not in said:
            said += os.read(ours, 4096)
        assert b'"args"' in said
        os.write(ours, answer.encode())
        code = process.wait(DEADLINE_S)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait(DEADLINE_S)
        os.close(ours)
    assert (project / ".mcp.json").exists() is written
    assert (code == 0) is written


def test_a_symbolic_link_is_preserved(armarium: CommandLine, project: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text('{"kept": true}')
    (project / ".mcp.json").symlink_to(real)
    armarium("install", "claude-code", "--dir", ".", "--yes")
    assert (project / ".mcp.json").is_symlink()
    assert content(real)["kept"] is True
    assert "armarium" in content(real)["mcpServers"]


def test_a_byte_order_mark_is_accepted(armarium: CommandLine, project: Path) -> None:
    (project / ".mcp.json").write_bytes(b'\xef\xbb\xbf{"kept": true}')
    assert armarium("install", "claude-code", "--dir", ".", "--yes").code == 0
    assert content(project / ".mcp.json")["kept"] is True


@pytest.mark.parametrize(
    "options",
    [
        ("claude-code", "--dir", ".", "--url", URL),
        ("claude-code", "--dir", ".", "--config", "armarium.yaml"),
        ("claude-code", "--token-file", "token"),
        ("claude-code", "--url", URL, "--write"),
        ("claude-code", "--url", "ftp://somewhere"),
        ("claude-code", "--dir", "nowhere"),
        ("claude-code", "--url", URL, "--token-file", "nowhere"),
        ("windsurf", "--scope", "project"),
    ],
)
def test_contradictory_options_are_refused(
    armarium: CommandLine, home: Path, project: Path, options: tuple[str, ...]
) -> None:
    outcome = armarium("install", *options, "--yes")
    assert outcome.code == 2
    assert outcome.stderr.startswith("armarium: ")
    assert list(home.iterdir()) == []
    assert [path.name for path in project.iterdir()] == ["hello.txt"]


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", ".config/Claude/claude_desktop_config.json"),
    ],
)
def test_the_settings_directory_of_desktop_applications_depends_on_the_system(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, expected: str
) -> None:
    from armarium.surfaces.cli.clients import CLIENTS as KNOWN

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("APPDATA", raising=False)
    assert KNOWN["claude-desktop"].user_file() == tmp_path / expected
