"""`armarium keys`, and what a key permits on a running server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from armarium.foundation.security.identity import key_hash
from support.client import RawSession, connected
from support.command_line import DEADLINE_S, Command, CommandLine
from support.trusted import trust

Start = Callable[..., Command]


@pytest.fixture
def config(project: Path, environ: dict[str, str]) -> Path:
    """A server with a writable root and a registry."""
    file = project / "armarium.yaml"
    roots = [{"name": "docs", "path": str(project), "allowed_tools": ["*"]}]
    sections = {"sandbox": {"roots": roots}, "registry": {"project": str(project)}}
    file.write_text(yaml.safe_dump({"server": {"port": 0}, **sections}))
    trust(project, environ)
    return file


def added(armarium: CommandLine, name: str, *options: str) -> str:
    """The secret of a new key."""
    outcome = armarium("keys", "add", name, *options)
    assert outcome.code == 0, outcome.stderr
    return outcome.stdout.strip()


def address_of(server: Command) -> str:
    return json.loads(server.stderr.until('"listening"')[-1])["address"]


async def tools_of(address: str, key: str) -> set[str]:
    async with connected(address, key=key) as client:
        return {tool.name for tool in (await client.mcp.list_tools()).tools}


def test_the_secret_is_printed_alone_and_only_once(armarium: CommandLine, home: Path) -> None:
    secret = added(armarium, "laptop", "--group", "staff", "--capability", "sandbox", "--read-only", "--expires", "90d")

    assert secret.startswith("arm_")
    listed = armarium("keys", "list")
    assert "laptop" in listed.stdout
    assert "staff" in listed.stdout
    (entry,) = armarium("keys", "list", "--json").json
    assert (entry["access"], entry["capabilities"], entry["expired"]) == ("read", ["sandbox"], False)
    stored = (home / "state" / "armarium" / "keys.json").read_text()
    for text in (listed.stdout, json.dumps(entry), stored):
        assert secret not in text


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["add", "a b"], 2, "a name has up to 64"),
        (["add", "x", "--capability", "cellar"], 2, "one of sandbox"),
        (["add", "x", "--group", ""], 2, "must not be empty"),
        (["add", "x", "--requests-per-second", "inf"], 2, "requests_per_second"),
        (["add", "x", "--expires", "soon"], 2, "90d"),
        (["add", "x", "--expires", "2001-01-01"], 2, "past"),
        (["add", "x", "--calls-in-flight", "0"], 2, "greater than 0"),
        (["rotate", "x"], 1, "keys list"),
        (["rotate", "x", "--grace", "long"], 2, "10m"),
        (["revoke", "x"], 1, "keys list"),
    ],
)
def test_a_mistake_is_told_with_a_hint(armarium: CommandLine, arguments: list[str], code: int, told: str) -> None:
    outcome = armarium("keys", *arguments)

    assert outcome.code == code
    assert told in outcome.stderr
    assert outcome.stdout == ""


async def test_a_key_sees_and_calls_only_what_it_permits(
    armarium: CommandLine, start: Start, config: Path, project: Path
) -> None:
    (project / "a.txt").write_text("hello")
    address = address_of(start("serve"))
    reader = added(armarium, "reader", "--capability", "sandbox", "--read-only")
    writer = added(armarium, "writer")

    assert await tools_of(address, reader) < await tools_of(address, writer)
    async with connected(address, key=reader) as client:
        listed = {tool.name for tool in (await client.mcp.list_tools()).tools}
        assert "read_file" in listed
        assert "mcp_pipe" in listed
        assert not listed & {"write_file", "remove_file", "register_file", "list_files"}
        assert (await client.call("read_file", root="docs", path="a.txt"))["content"] == "hello"
        for tool, arguments in (
            ("write_file", {"root": "docs", "path": "b.txt", "content": "x"}),
            ("list_files", {}),
            ("mcp_pipe", {"steps": [{"id": "a", "tool": "write_file", "args": {"root": "docs", "path": "b"}}]}),
        ):
            denied = await client.result(tool, arguments)
            assert denied.is_error
            assert "NOT_PERMITTED" in str(denied.structured_content)
    assert not (project / "b.txt").exists()
    async with connected(address, key=writer) as client:
        await client.call("write_file", root="docs", path="b.txt", content="x")
    records = armarium("audit", "--json", "--code", "NOT_PERMITTED").json_lines
    assert {record["principal"] for record in records} == {"reader"}


def request(address: str, key: str) -> httpx.Response:
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
    return httpx.post(f"{address}/mcp", json=body, headers=headers, timeout=DEADLINE_S, trust_env=False)


def test_revoking_and_rotating_are_effective_on_a_running_server(
    armarium: CommandLine, start: Start, config: Path
) -> None:
    address = address_of(start("serve"))
    first = added(armarium, "laptop")
    assert request(address, first).status_code != 401

    rotated = armarium("keys", "rotate", "laptop").stdout.strip()
    assert request(address, first).status_code == 401
    assert request(address, rotated).status_code != 401

    assert armarium("keys", "revoke", "laptop", "--json").json == {"revoked": "laptop"}
    assert request(address, rotated).status_code == 401


def test_changes_of_keys_are_in_the_audit_log_without_their_secrets(armarium: CommandLine, home: Path) -> None:
    secret = added(armarium, "laptop", "--group", "staff", "--read-only")
    rotated = armarium("keys", "rotate", "laptop", "--grace", "1h").stdout.strip()
    assert armarium("keys", "revoke", "laptop").code == 0
    assert armarium("keys", "revoke", "laptop").code == 1

    records = armarium("audit", "--json").json_lines
    assert [(each["tool"], each["path"], each["code"]) for each in records] == [
        ("keys_add", "laptop", None),
        ("keys_rotate", "laptop", None),
        ("keys_revoke", "laptop", None),
        ("keys_revoke", "laptop", "KEY_NOT_FOUND"),
    ]
    assert {(each["surface"], each["principal"]) for each in records} == {("cli", "local")}
    assert "staff" in json.dumps(records[0]["arguments"])
    log = b"".join(file.read_bytes() for file in (home / "state" / "armarium").glob("audit.sqlite*"))
    for told in (secret, rotated):
        assert key_hash(told).encode() not in log
        assert told.encode() not in log


def test_a_pipe_does_not_multiply_the_rate_of_a_key(armarium: CommandLine, start: Start, config: Path) -> None:
    address = address_of(start("serve"))
    key = added(armarium, "slow", "--requests-per-second", "2")
    tools = [{"id": f"s{number}", "tool": "list_roots"} for number in range(45)]
    started = time.monotonic()
    with RawSession.opened(address, key=key) as session:
        group = {"steps": [{"id": "group", "parallel": tools}]}
        answer = session.call("mcp_pipe", json.dumps(group)).json()["result"]["structuredContent"]
    seconds = time.monotonic() - started

    children = answer["steps"]["group"]["children"].values()
    failed = {child["error"]["code"] for child in children if not child["ok"]}
    assert failed == {"TOO_MANY_CALLS"}
    assert answer["error"]["details"]["retry_after_ms"] > 0
    # What a key may send at once is its rate for four seconds.
    assert 1 <= sum(child["ok"] for child in children) <= 2 * (4 + seconds)


def test_a_key_has_a_rate_limit_of_its_own(armarium: CommandLine, start: Start, config: Path) -> None:
    address = address_of(start("serve"))
    slow = added(armarium, "slow", "--requests-per-second", "0.1")
    other = added(armarium, "other")

    assert request(address, slow).status_code != 429
    assert request(address, slow).status_code == 429
    assert request(address, other).status_code != 429
