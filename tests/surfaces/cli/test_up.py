"""`armarium up` serves one directory."""

from __future__ import annotations

import json
import os
import pty
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.client import connected
from support.command_line import DEADLINE_S, Command, CommandLine
from support.server import installed_command

Start = Callable[..., Command]


def announced(command: Command) -> dict[str, Any]:
    return json.loads(command.stdout.next())


def base(url: str) -> str:
    return url.removesuffix("/mcp")


def get(url: str, path: str) -> httpx.Response:
    return httpx.get(f"{base(url)}{path}", timeout=DEADLINE_S, trust_env=False)


@pytest.mark.alone
def test_up_answers_and_ctrl_c_ends_it_with_success_within_five_seconds(start: Start) -> None:
    server = start("up", "--port", "0", "--json")
    assert get(announced(server)["url"], "/health").text == "ok"
    began = time.monotonic()
    assert server.interrupt() == 0
    assert time.monotonic() - began < 5


def test_up_prints_the_connection_as_one_json_object(start: Start, project: Path, home: Path) -> None:
    told = announced(start("up", "--port", "0", "--json"))
    token_file = home / "state" / "armarium" / "secret.token"
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp", told["url"])
    assert told["token_file"] == str(token_file)
    assert told["directory"] == str(project)
    assert (told["root"], told["read_only"]) == ("workspace", True)
    entry = told["config"]["mcpServers"]["armarium"]
    assert entry == {"type": "http", "url": told["url"], "headers": {"Authorization": "Bearer ${ARMARIUM_TOKEN}"}}
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert token_file.read_text().strip() not in json.dumps(told)


def test_up_prints_how_to_connect_without_the_token_in_a_log(start: Start, home: Path) -> None:
    server = start("up", "--port", "0")
    said = "\n".join(server.stderr.until("Stop with Ctrl-C"))
    token_file = home / "state" / "armarium" / "secret.token"
    url = re.search(r"endpoint +(http://127\.0\.0\.1:\d+/mcp)", said)
    assert url
    assert str(token_file) in said
    assert f"armarium install claude-code --scope user --url {url[1]} --token-file {token_file}" in said
    assert token_file.read_text().strip() not in said
    block = said[said.index("{\n") : said.index("\n}\n") + 2]
    assert json.loads(block)["mcpServers"]["armarium"]["url"] == url[1]
    assert server.interrupt() == 0


def test_up_prints_a_configuration_with_the_token_at_a_terminal(
    environ: dict[str, str], project: Path, home: Path
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [installed_command("armarium"), "up", "--port", "0"], cwd=project, env=environ, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    try:
        said = ""
        while "Stop with Ctrl-C" not in said:
            said += os.read(ours, 4096).decode()
    finally:
        watchdog.cancel()
        process.terminate()
        process.wait(DEADLINE_S)
        os.close(ours)
    text = said.replace("\r\n", "\n")
    block = json.loads(text[text.index("{\n") : text.index("\n}\n") + 2])
    token = (home / "state" / "armarium" / "secret.token").read_text().strip()
    assert block["mcpServers"]["armarium"]["headers"] == {"Authorization": f"Bearer {token}"}


async def test_the_announced_token_is_accepted_and_the_directory_is_read_only(start: Start, project: Path) -> None:
    told = announced(start("up", "--port", "0", "--json"))
    assert get(told["url"], "/metrics").status_code == 401
    key = Path(told["token_file"]).read_text().strip()
    async with connected(base(told["url"]), key=key) as client:
        assert (await client.call("read_file", root="workspace", path="hello.txt"))["content"] == "hello\n"
        error = await client.fails("write_file", root="workspace", path="hello.txt", content="changed")
    assert error["code"] == "READ_ONLY_ROOT"
    assert (project / "hello.txt").read_text() == "hello\n"


async def test_write_lets_agents_change_files_under_the_given_name(start: Start, project: Path) -> None:
    told = announced(start("up", ".", "--write", "--name", "notes", "--auth", "none", "--port", "0", "--json"))
    assert (told["root"], told["read_only"], told["token_file"]) == ("notes", False, None)
    assert "headers" not in told["config"]["mcpServers"]["armarium"]
    async with connected(base(told["url"])) as client:
        await client.call("write_file", root="notes", path="new.txt", content="new")
    assert (project / "new.txt").read_text() == "new"


async def test_agents_cannot_read_the_token_if_the_home_directory_is_served(start: Start, home: Path) -> None:
    told = announced(start("up", home, "--auth", "none", "--port", "0", "--json"))
    async with connected(base(told["url"])) as client:
        error = await client.fails("list_folder", root="workspace", path="state/armarium")
        found = await client.call("glob", root="workspace", pattern="**/*.sqlite")
    assert error["code"] == "PATH_IGNORED"
    assert found["total_matches"] == 0


def test_the_state_directory_itself_is_never_served(armarium: CommandLine, home: Path) -> None:
    state = home / "state" / "armarium"
    state.mkdir(parents=True)
    outcome = armarium("up", state, "--port", "0")
    assert outcome.code == 2
    assert "hint:" in outcome.stderr


def test_a_given_token_file_is_used(start: Start, tmp_path: Path) -> None:
    token_file = tmp_path / "my.token"
    token_file.write_text("a-long-secret\n")
    told = announced(start("up", "--auth", f"file:{token_file}", "--port", "0", "--json"))
    assert told["token_file"] == str(token_file)
    allowed = httpx.get(f"{base(told['url'])}/mcp", headers={"authorization": "Bearer a-long-secret"}, trust_env=False)
    assert allowed.status_code not in (401, 403)


@pytest.fixture
def taken_port() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_requested_port_in_use_is_an_error(armarium: CommandLine, taken_port: int) -> None:
    outcome = armarium("up", "--port", str(taken_port), "--json")
    assert outcome.code == 2
    assert str(taken_port) in outcome.stderr
    assert "hint:" in outcome.stderr
    assert outcome.json["error"]["code"] == "BIND_FAILED"


def test_a_free_port_is_used_if_the_default_port_is_in_use(start: Start) -> None:
    try:
        usual: socket.socket | None = socket.create_server(("127.0.0.1", 8091))
    except OSError:
        usual = None  # Somebody else has it, which is just as well.
    try:
        server = start("up", "--json")
        assert "port 8091 is in use" in server.stderr.next()
        url = announced(server)["url"]
        assert ":8091/" not in url
        assert get(url, "/health").text == "ok"
    finally:
        if usual is not None:
            usual.close()


def test_a_missing_directory_is_reported(armarium: CommandLine) -> None:
    outcome = armarium("up", "nowhere", "--port", "0")
    assert outcome.code == 2
    assert "nowhere" in outcome.stderr
    assert "hint:" in outcome.stderr


def test_no_token_on_a_public_address_is_refused(armarium: CommandLine) -> None:
    outcome = armarium("up", "--host", "0.0.0.0", "--auth", "none", "--port", "0")
    assert outcome.code == 2
    assert "hint:" in outcome.stderr
