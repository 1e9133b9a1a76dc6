"""The MCP inspector and both generations of the official TypeScript client, against the real server with a key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from armarium.foundation.security.identity import key_hash
from support.server import ServerProcess

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / "tests/node"
NODE = Path(sys.executable).with_name("node")
KEY = "key-for-official-clients"


@dataclass(frozen=True)
class Served:
    """A running `mcp-filesystem` and what its one root holds."""

    url: str
    text: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """The sandbox over a directory with one file, for callers with a key."""
    assert (CLIENTS / "node_modules").exists(), "the clients of tests/node are not installed; `make test` does that"
    directory = tmp_path_factory.mktemp("clients")
    root = directory / "root"
    root.mkdir()
    (root / "hello.txt").write_text("Hello, inspector.\n")
    config = {
        "host": "127.0.0.1",
        "roots": [{"name": "workspace", "path": str(root), "allowed_tools": ["*"]}],
        "security": {"auth": "keys", "keys": [{"username": "ada", "key_sha256": key_hash(KEY)}]},
    }
    with ServerProcess.mcp_filesystem(directory, config) as server:
        yield Served(f"{server.url}/mcp", "Hello, inspector.\n")


def run_node(*arguments: str, key: str | None = KEY, expected_code: int = 0) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "NO_COLOR": "1", "PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}
    if key is not None:
        environ["MCP_TOKEN"] = key
    ended = subprocess.run(
        [str(NODE), *arguments], cwd=CLIENTS, env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == expected_code, ended.stdout + ended.stderr
    return ended


def inspector(served: Served, *arguments: str, key: str = KEY) -> dict[str, Any]:
    """What the inspector's command line prints."""
    entry = json.loads((CLIENTS / "node_modules/@modelcontextprotocol/inspector/package.json").read_text())["bin"]
    program = CLIENTS / "node_modules/@modelcontextprotocol/inspector" / next(iter(entry.values()))
    header = f"Authorization: Bearer {key}"
    ended = run_node(str(program), "--cli", served.url, "--transport", "http", "--header", header, *arguments)
    return json.loads(ended.stdout)


def typescript_client(served: Served, *arguments: str, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the TypeScript client saw."""
    return json.loads(run_node("client.mjs", *options, served.url, *arguments).stdout)


def test_the_inspector_lists_the_tools(served: Served) -> None:
    tools = {tool["name"]: tool for tool in inspector(served, "--method", "tools/list")["tools"]}
    assert {"list_roots", "read_file", "write_file", "grep", "glob"} <= set(tools)
    assert tools["read_file"]["annotations"]["readOnlyHint"] is True


def test_the_inspector_calls_a_tool(served: Served) -> None:
    given = ("--tool-arg", "root=workspace", "--tool-arg", "path=hello.txt")
    result = inspector(served, "--method", "tools/call", "--tool-name", "read_file", *given)
    assert result["structuredContent"]["content"] == served.text
    assert not result.get("isError")


@pytest.mark.parametrize(
    ("options", "version"),
    [
        (("--sdk", "1"), "2025-11-25"),
        (("--sdk", "2"), "2025-11-25"),
        (("--sdk", "2", "--pin", "2026-07-28"), "2026-07-28"),
    ],
    ids=["first generation", "second generation", "second generation without sessions"],
)
def test_the_typescript_client_lists_and_calls_tools(served: Served, options: tuple[str, ...], version: str) -> None:
    arguments = json.dumps({"root": "workspace", "path": "hello.txt"})
    seen = typescript_client(served, "read_file", arguments, options=options)
    assert seen["protocolVersion"] == version
    assert {"list_roots", "read_file"} <= {tool["name"] for tool in seen["tools"]}
    assert seen["result"]["structuredContent"]["content"] == served.text


def test_the_typescript_client_is_told_of_a_failed_call_as_a_result(served: Served) -> None:
    arguments = json.dumps({"root": "workspace", "path": "../../etc/passwd"})
    result = typescript_client(served, "read_file", arguments)["result"]
    assert result["isError"] is True
    assert result["structuredContent"]["error"]["code"] == "PATH_ESCAPES_ROOT"


@pytest.mark.parametrize("generation", ["1", "2"])
@pytest.mark.parametrize("key", [None, "wrong"])
def test_the_typescript_client_without_the_key_is_told_401(served: Served, generation: str, key: str | None) -> None:
    ended = run_node("client.mjs", "--sdk", generation, served.url, key=key, expected_code=1)
    assert json.loads(ended.stderr)["error"]["status"] == 401
