"""The contract's cases about starting and operating: E2E-080 … E2E-084, FR-018, NFR-014, NFR-016 … NFR-019."""

from __future__ import annotations

import resource
import socket
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from support.client import ToolClient, connected
from support.sandbox_server import ALLOWED, Box
from support.server import LogLine, ServerProcess, failed_start
from support.trees import make_tree, picture
from support.waiting import wait_until


def one_root(path: Path | str, **settings: Any) -> dict[str, Any]:
    root = {"name": "data", "path": str(path), "allowed_tools": ["*"]}
    return {"host": "127.0.0.1", "roots": [root], **settings}


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def occupied(port: int) -> Generator[None]:
    """Listen on the port, or leave it to a program that stays there. Another run of this test leaves it."""
    with closing(socket.socket()) as listener:
        with suppress(TimeoutError):
            wait_until(lambda: not is_refused(listener, port), deadline_s=20)
            listener.listen()
        yield


def is_refused(listener: socket.socket, port: int) -> bool:
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        return True
    return False


def test_the_server_starts_with_a_valid_config(tmp_path: Path) -> None:
    """E2E-080: server starts with valid config (NFR-016: also on a root that is empty)."""
    (tmp_path / "data").mkdir()
    with ServerProcess.mcp_filesystem(tmp_path, one_root(tmp_path / "data")) as server:
        health = httpx.get(f"{server.url}/health")

    assert health.status_code == 200


def test_the_port_flag_overrides_the_file(tmp_path: Path) -> None:
    """FR-018: `--port` wins over the file's port, which is served without it."""
    (tmp_path / "data").mkdir()
    port = free_port()
    with ServerProcess.mcp_filesystem(tmp_path, one_root(tmp_path / "data", port=port)) as server:
        assert server.port != port
    command = [*server.command[:-2]]
    assert "--port" not in command
    with ServerProcess(command) as server:
        assert server.port == port


def test_the_defaults_are_the_contracts(tmp_path: Path) -> None:
    """FR-018: host 0.0.0.0 and port 8091 by default; the threshold of 1 MB is tested with read_file."""
    (tmp_path / "data").mkdir()
    config = one_root(tmp_path / "data")
    del config["host"]
    with occupied(8091):
        failed = failed_start(tmp_path, config)

    assert failed.returncode == 2
    assert "0.0.0.0:8091" in failed.stderr


def test_health_answers_ok(roots: Box) -> None:
    """E2E-084: health endpoint returns 200 and `ok`."""
    answer = httpx.get(f"{roots.server.url}/health")

    assert answer.status_code == 200
    assert answer.text == "ok"


TWO_NAMED_DATA = """\
roots:
  - {name: data, path: PATH, allowed_tools: ["*"]}
  - {name: data, path: PATH, allowed_tools: ["*"]}
"""


@pytest.mark.parametrize(
    ("config", "says"),
    [
        pytest.param(TWO_NAMED_DATA, ["duplicate root name", "data"], id="E2E-081: duplicate root names"),
        pytest.param('roots: [{name: data, path: PATH/gone, allowed_tools: ["*"]}]', ["data", "/gone"],
                     id="E2E-082: non-existent root path"),
        pytest.param('roots: [{name: data, path: PATH/config.yaml, allowed_tools: ["*"]}]', ["data", "config.yaml"],
                     id="FR-018: a root that is a file"),
        pytest.param("roots: [{name: data, path: PATH, allowed_tools: [nonexistent_tool]}]",
                     ["unknown tool", "nonexistent_tool"], id="E2E-083: unknown tool in allowlist"),
        pytest.param("roots: []", ["at least one root"], id="FR-018: empty roots list"),
        pytest.param("port: 8091", ["roots"], id="FR-018: no roots at all"),
        pytest.param('roots: [{name: data, path: PATH, allowed_tools: ["*"]}]\nmax_full_read_sise: 5',
                     ["max_full_read_sise", "max_full_read_size"], id="a misspelt setting"),
        pytest.param('roots: [{name: data, path: PATH, allowed_tools: ["*"]}]\nport: http', ["port"],
                     id="a port that is no number"),
        pytest.param("roots: [", ["not valid YAML"], id="a file that is no YAML"),
        pytest.param("- a\n- b\n", ["mapping"], id="a file that is no mapping"),
    ],
)  # fmt: skip
def test_a_wrong_config_is_refused_with_its_reason(tmp_path: Path, config: str, says: list[str]) -> None:
    failed = failed_start(tmp_path, config.replace("PATH", str(tmp_path)))

    assert failed.returncode == 2
    assert "Traceback" not in failed.stderr
    for words in says:
        assert words in failed.stderr
    assert failed.stdout == ""


def test_a_config_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    failed = failed_start(tmp_path, one_root(tmp_path / "data"), "--config", str(tmp_path / "other.yaml"))

    assert failed.returncode == 2
    assert "other.yaml" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_root_given_through_a_link_is_resolved_at_the_start(tmp_path: Path) -> None:
    """FR-001: the root path itself is resolved at startup; a link swapped afterwards changes nothing."""
    make_tree(tmp_path, {"real/a.txt": "real", "other/a.txt": "other"})
    (tmp_path / "way").symlink_to(tmp_path / "real")
    with ServerProcess.mcp_filesystem(tmp_path, one_root(tmp_path / "way")) as server:
        (tmp_path / "way").unlink()
        (tmp_path / "way").symlink_to(tmp_path / "other")
        answer = call_once(server, "read_file", root="data", path="a.txt")

    assert answer["content"] == "real"


def call_once(server: ServerProcess, tool: str, **arguments: Any) -> dict[str, Any]:
    import anyio

    async def call() -> dict[str, Any]:
        async with connected(server.url) as client:
            return await client.call(tool, **arguments)

    return anyio.run(call)


def test_the_start_is_logged_with_names_and_not_with_paths(roots: Box) -> None:
    """NFR-018: address, root names (no paths), config file."""
    line = roots.server.wait_for_log(lambda line: line["msg"] == "listening")

    assert line["address"] == f"http://127.0.0.1:{roots.server.port}"
    assert line["roots"] == list(ALLOWED)
    assert line["config"] == str(roots.base / "config.yaml")
    assert str(roots.base / "roots") not in str(line)
    assert line["level"] == "INFO"


async def calls_logged(
    client: ToolClient, server: ServerProcess, calls: list[tuple[str, dict[str, Any]]]
) -> list[LogLine]:
    """Make the calls and return what was logged for them; a call with a name of its own marks either end."""
    markers = []
    for batch in ([], calls):
        for tool, arguments in batch:
            await client.result(tool, arguments)
        marker = f"marker-{uuid4().hex}"
        await client.fails("stat_file", root="workspace", path=marker)
        markers.append(server.wait_for_log(lambda line, marker=marker: line.get("path") == marker))
    start, end = (server.log.index(marker) for marker in markers)
    return [line for line in server.log[start + 1 : end] if "tool" in line]


async def test_every_call_is_logged_in_one_json_line(client: ToolClient, roots: Box, workspace: Path) -> None:
    """NFR-017: tool, root, path, outcome, duration and response size."""
    make_tree(workspace, {"a.txt": "hello"})

    read, missing, wrong = await calls_logged(
        client,
        roots.server,
        [
            ("read_file", {"root": "workspace", "path": "a.txt"}),
            ("read_file", {"root": "workspace", "path": "gone.txt"}),
            ("read_file", {"root": "workspace"}),
        ],
    )

    assert (read["tool"], read["root"], read["path"]) == ("read_file", "workspace", "a.txt")
    assert (read["outcome"], read["level"]) == ("success", "INFO")
    assert 0 < read["duration_ms"] < 60_000
    assert read["response_bytes"] > len("hello")
    assert (missing["outcome"], missing["code"], missing["path"]) == ("error", "NOT_FOUND", "gone.txt")
    assert (wrong["outcome"], wrong["code"]) == ("error", "INVALID_ARGUMENT")
    assert roots.server.other_output == [], "everything on standard error is JSON"


async def test_written_content_is_not_logged(client: ToolClient, roots: Box) -> None:
    """Content is reduced to its length and hash."""
    content = "".join(f"secret number {number}\n" for number in range(1000))

    (line,) = await calls_logged(
        client, roots.server, [("write_file", {"root": "workspace", "path": "a.txt", "content": content})]
    )

    assert line["arguments"]["content"]["length"] == len(content)
    assert "secret number" not in str(line)


async def test_denials_are_logged_as_warnings_with_where_the_path_led(
    client: ToolClient, roots: Box, workspace: Path
) -> None:
    """NFR-019: path escapes and allow-list denials at WARN with tool, root, attempted and resolved path."""
    (workspace / "escape").symlink_to(roots.outside)

    link, dots, denied, null, fine = await calls_logged(
        client,
        roots.server,
        [
            ("read_file", {"root": "workspace", "path": "escape/secret.txt"}),
            ("list_folder", {"root": "workspace", "path": "../../etc"}),
            ("write_file", {"root": "readonly", "path": "a.txt", "content": "x"}),
            ("read_file", {"root": "workspace", "path": "a\0b"}),
            ("list_folder", {"root": "workspace", "path": "."}),
        ],
    )

    assert [line["level"] for line in (link, dots, denied, null, fine)] == ["WARN"] * 4 + ["INFO"]
    assert (link["tool"], link["root"], link["code"]) == ("read_file", "workspace", "PATH_ESCAPES_ROOT")
    assert link["attempted_path"] == "escape/secret.txt"
    assert link["resolved_path"] == str(roots.outside / "secret.txt")
    assert (dots["attempted_path"], dots["resolved_path"]) == ("../../etc", str(roots.base / "etc"))
    assert (denied["tool"], denied["root"], denied["code"]) == ("write_file", "readonly", "TOOL_NOT_ALLOWED")
    assert denied["attempted_path"] == "a.txt"
    assert null["code"] == "INVALID_PATH"


async def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """NFR-014: no partially written files: here the system refuses to let files grow beyond 100,000 bytes."""
    make_tree(tmp_path, {"data/a.txt": "old content\n", "data/big.bin": b"x" * 300_000})
    before = picture(tmp_path / "data")
    growing = "--- a.txt\n+++ a.txt\n@@ -1 +1,2 @@\n old content\n+" + "y" * 200_000 + "\n"
    with ServerProcess.mcp_filesystem(tmp_path, one_root(tmp_path / "data")) as server:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
        async with connected(server.url, never_said=[str(tmp_path)]) as client:
            errors = [
                await client.fails("write_file", root="data", path="a.txt", content="z" * 200_000),
                await client.fails("write_file", root="data", path="a.txt", content="z" * 200_000, mode="append"),
                await client.fails(
                    "write_file", root="data", path="new.txt", content="z" * 200_000, mode="create_only"
                ),
                await client.fails("patch_file", root="data", path="a.txt", patch=growing),
                await client.fails(
                    "copy", source_root="data", source_path="big.bin", dest_root="data", dest_path="copy.bin"
                ),
            ]
            read = await client.call("read_file", root="data", path="a.txt")

    assert [error["code"] for error in errors] == ["STORAGE_FAILURE"] * 5
    assert all(error["retryable"] for error in errors)
    assert read["content"] == "old content\n"
    assert picture(tmp_path / "data") == before
