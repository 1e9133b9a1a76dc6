"""Servers are added, changed and removed while `armarium serve` runs, by file and through the API."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from support.client import connected
from support.gateway_server import HOSTILE, TIMEOUT_S, GatewayServer, Json, headers_of, rag_entry, started
from support.server import ServerProcess, installed_command, write_config
from support.waiting import eventually

CANARY = "canary-live-77aa-never-shown"


@pytest.fixture
def server(tmp_path: Path) -> Generator[GatewayServer]:
    with started(tmp_path) as running:
        yield running


def told(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.contract("G2-6", "G5.5-1")
async def test_a_file_that_changes_is_taken_over_and_its_tools_appear_for_whom_it_names(server: GatewayServer) -> None:
    assert not any("." in name for name in await server.tools("anna"))
    server.write("mcp.json", {"odd": HOSTILE | {"groups": ["users"]}})
    names = await server.tools_become("anna", lambda names: "odd.echo" in names)
    assert "odd.facts" in names
    assert not any(name.startswith("odd.") for name in await server.tools("guest"))
    async with connected(server.process.url, key="key-of-anna") as client:
        result = await client.mcp.call_tool("odd.echo", {"said": "hello", "nothing": None})
        assert not result.is_error
    async with connected(server.process.url, key="key-of-guest") as client:
        with pytest.raises(Exception, match="unknown tool"):
            await client.mcp.call_tool("odd.echo", {})
    server.write("mcp.json", {})
    await server.tools_become("anna", lambda names: "odd.echo" not in names)


async def test_a_broken_file_changes_nothing_and_says_why(server: GatewayServer) -> None:
    server.write("mcp.json", {"odd": HOSTILE})
    await server.tools_become("anna", lambda names: "odd.echo" in names)
    server.write("mcp.json", '{"odd": {"comand": "x"}}')
    with server.api("root") as admin:
        refused = told(admin.post("/admin/mcp/reload"), 422)
        assert "command" in json.dumps(refused)
        seen = told(admin.get("/admin/mcp"))
    assert seen["problems"]
    assert [server["name"] for server in seen["servers"]] == ["odd"]
    assert "odd.echo" in await server.tools("anna")


@pytest.mark.contract("G1-6", "G2-6", "G9-4")
async def test_administrators_change_servers_and_hints_and_nobody_else_does(server: GatewayServer) -> None:
    entry = HOSTILE | {"groups": ["users"], "env": {"KEY": CANARY, "PLACE": "${HOME}"}}
    with server.api("root") as admin, server.api("anna") as anna:
        for method, path in (("GET", ""), ("POST", "/reload"), ("PUT", "/servers/odd"), ("DELETE", "/servers/odd")):
            body = {"json": entry} if method == "PUT" else {}
            assert anna.request(method, f"/admin/mcp{path}", **body).status_code == 403
        done = told(admin.put("/admin/mcp/servers/odd?kind=generic", json=entry))
        assert done["added"] == ["odd"]
        shown = told(admin.get("/admin/mcp/servers/odd"))
        assert shown["entry"]["env"] == {"KEY": "********", "PLACE": "${HOME}"}
        assert CANARY not in admin.get("/admin/mcp").text
        # What was masked stays as it was when it is sent back.
        changed = told(admin.put("/admin/mcp/servers/odd?kind=generic", json=shown["entry"] | {"description": "odd"}))
        assert changed["changed"] == ["odd"]
        assert CANARY in (server.config / "overrides" / "mcp.json").read_text()
        hint = {"name": "Lamps", "groups": ["users"]}
        told(admin.put("/admin/mcp/servers/odd/sources/lamps", json=hint))
        assert told(admin.get("/admin/mcp/servers/odd"))["entry"]["dataSources"] == [{"id": "lamps", **hint}]
        told(admin.delete("/admin/mcp/servers/odd/sources/lamps"))
        assert "dataSources" not in told(admin.get("/admin/mcp/servers/odd"))["entry"]
        assert told(admin.delete("/admin/mcp/servers/odd/sources/lamps"), 404)["error"]
        assert told(admin.delete("/admin/mcp/servers/odd"))["removed"] == ["odd"]
        told(admin.get("/admin/mcp/servers/odd"), 404)
    assert CANARY not in "\n".join(map(str, server.process.log))


def test_the_token_of_client_files_administers_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    entry = {"command": "/bin/sh", "args": ["-c", f"id > {marker}"]}
    settings = {"state_dir": str(tmp_path / "state"), "server": {"port": 0}, "gateway": {}}
    command = [installed_command("armarium"), "serve", "--config", str(write_config(tmp_path, settings))]
    with ServerProcess(command) as process:
        token = (tmp_path / "state" / "secret.token").read_text().strip()
        with httpx.Client(base_url=f"{process.url}/api", headers={"authorization": f"Bearer {token}"}) as agent:
            for method, path in (
                *(("GET", path) for path in ("", "/schema", "/servers/x")),
                *(("POST", "/reload"), ("PUT", "/servers/x?kind=generic"), ("DELETE", "/servers/x")),
                *(("PUT", "/servers/x/sources/y"), ("DELETE", "/servers/x/sources/y")),
            ):
                body = {"json": entry} if method == "PUT" else {}
                assert agent.request(method, f"/admin/mcp{path}", **body).status_code == 403, path
            assert agent.get(f"{process.url}/metrics").status_code == 403
    assert not marker.exists()


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/bin/sh", "args": ["-c", "id"]},
        {"command": "sh"},
        {"command": "./x"},
        {"command": "x ", "enabled": False},
        {"command": "/bin/sh", "enabled": False},
    ],
)
def test_administrators_start_no_program_that_the_operator_has_not_allowed(tmp_path: Path, entry: Json) -> None:
    with started(tmp_path, admin_commands=["x"]) as server, server.api("root") as admin:
        refused = told(admin.put("/admin/mcp/servers/odd?kind=generic", json=entry), 403)
        assert "gateway.admin_commands" in str(refused)
        assert not (server.config / "overrides" / "mcp.json").exists()


def test_an_entry_of_the_file_keeps_its_program_but_gets_no_other_one(tmp_path: Path) -> None:
    with started(tmp_path, admin_commands=[]) as server, server.api("root") as admin:
        entry = {"command": "y", "args": ["--serve"], "enabled": False}
        server.write("mcp.json", {"odd": entry})
        told(admin.post("/admin/mcp/reload"))
        told(admin.put("/admin/mcp/servers/odd?kind=generic", json=entry | {"description": "odd"}))
        for change in ({"args": ["--evil"]}, {"env": {"LD_PRELOAD": "/tmp/x.so"}}, {"cwd": "/tmp"}, {"command": "z"}):
            told(admin.put("/admin/mcp/servers/odd?kind=generic", json=entry | change), 403)


def test_an_entry_uses_only_listed_variables_of_the_environment(tmp_path: Path) -> None:
    with started(tmp_path, variables=["HOME"]) as server, server.api("root") as admin:
        for name in ("PATH", "AWS_SECRET_ACCESS_KEY"):
            entry = {"url": "https://host.invalid/mcp", "headers": {"x": f"${{{name}}}"}}
            refused = told(admin.put("/admin/mcp/servers/far?kind=generic", json=entry), 422)
            assert "gateway.variables" in str(refused)
        entry = {"url": "https://host.invalid/mcp", "headers": {"x": "${HOME}"}}
        told(admin.put("/admin/mcp/servers/far?kind=generic", json=entry))


async def test_administrators_are_shown_no_secret_of_a_command_or_an_address_and_lose_none(
    server: GatewayServer,
) -> None:
    entries = {
        "odd": {"command": "x", "args": ["--key=" + CANARY, "--token", CANARY, "plain"], "enabled": False},
        "far": {"url": f"https://host.invalid/mcp?key={CANARY}", "enabled": False},
    }
    file = server.config / "overrides" / "mcp.json"
    with server.api("root") as admin:
        for name, entry in entries.items():
            told(admin.put(f"/admin/mcp/servers/{name}?kind=generic", json=entry))
            before = file.read_text()
            shown = told(admin.get(f"/admin/mcp/servers/{name}"))["entry"]
            told(admin.put(f"/admin/mcp/servers/{name}?kind=generic", json=shown))
            assert file.read_text() == before
        assert CANARY not in admin.get("/admin/mcp").text
        refused = told(admin.put("/admin/mcp/servers/new?kind=generic", json=shown), 422)
        assert "`new.url` is masked" in str(refused)
        assert file.read_text() == before


async def test_what_only_an_administrator_can_repair_is_shown_to_administrators_only(server: GatewayServer) -> None:
    server.write("rag-mcp.json", {"gone": {"command": "no-such-program-anywhere", "dataSources": [{"id": "a"}]}})
    with server.api("root") as admin, server.api("anna") as anna:
        told(admin.post("/admin/mcp/reload"))
        refused = told(anna.post("/rag/search", json={"query": "q", "sources": ["gone:a"]}), 503)
        seen = {each["name"]: each for each in told(admin.get("/admin/mcp"))["servers"]}
    assert refused["results"]["error"]["message"] == "`gone` cannot be started"
    assert "command" not in str(refused)
    assert "check `command`" in seen["gone"]["health"]["last_error_hint"]


async def test_a_file_keeps_saying_where_its_schema_is_when_administrators_change_it(server: GatewayServer) -> None:
    server.write("mcp.json", {"$schema": "../servers.schema.json", "odd": HOSTILE})
    with server.api("root") as admin:
        told(admin.put("/admin/mcp/servers/other?kind=generic", json=HOSTILE))
    written = json.loads((server.config / "overrides" / "mcp.json").read_text())
    assert next(iter(written.items())) == ("$schema", "../servers.schema.json")
    assert set(written) == {"$schema", "odd", "other"}


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("odd", {"comand": "x"}),
        ("odd", {"command": "x", "url": "http://127.0.0.1:1/mcp"}),
        ("odd", {"command": "x", "env": {"KEY": "${NO_SUCH_VARIABLE_HERE}"}}),
        ("armarium", {"command": "x"}),
        ("odd", {"url": "ftp://127.0.0.1/"}),
        ("odd", {}),
    ],
)
async def test_what_would_not_be_a_registry_is_not_written(server: GatewayServer, name: str, entry: Json) -> None:
    with server.api("root") as admin:
        assert admin.put(f"/admin/mcp/servers/{name}", json=entry).status_code in (400, 422)
        assert told(admin.get("/admin/mcp"))["servers"] == []
    assert not (server.config / "overrides" / "rag-mcp.json").exists()


async def test_a_broken_file_at_the_start_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config" / "defaults").mkdir(parents=True)
    (tmp_path / "config" / "defaults" / "rag-mcp.json").write_text("{")
    with pytest.raises(AssertionError, match=r"rag-mcp\.json is not valid JSON"), started(tmp_path):
        pass


async def test_the_audit_command_shows_who_asked_which_source_and_how_that_went(server: GatewayServer) -> None:
    server.write("rag-mcp.json", {"open": rag_entry("files"), "closed": rag_entry("files", groups=["legal"])})
    with server.api("root") as admin, server.api("anna") as anna:
        told(admin.post("/admin/mcp/reload"))
        told(anna.post("/rag/search", json={"query": "lamp", "sources": ["open:files", "closed:files"]}))
    trail = server.config.parent / "state" / "audit.sqlite"

    async def shown(server: str) -> list[Json]:
        command = [installed_command("armarium"), "audit", "--file", str(trail), "--json", "--root", server]
        printed = (await anyio.run_process(command)).stdout
        return [json.loads(line) for line in printed.splitlines()]

    # Records are written after the response.
    denied = await eventually(lambda: shown("closed"))
    (allowed,) = await shown("open")
    assert (allowed["principal"], allowed["path"], allowed["outcome"]) == ("anna", "files", "success")
    assert allowed["duration_ms"] > 0
    assert [(row["principal"], row["path"], row["code"]) for row in denied] == [
        ("anna", "files", "unauthorized_source")
    ]
    assert allowed["call_id"] == denied[0]["call_id"]


@pytest.mark.contract("G5.5-2", "G16-5")
async def test_a_reload_is_told_to_everybody_and_names_only_to_administrators(server: GatewayServer) -> None:
    heard: dict[str, list[tuple[str, Json]]] = {"anna": [], "root": []}

    async def listen(user: str) -> None:
        async with (
            httpx.AsyncClient(base_url=server.process.url, headers=headers_of(user), timeout=TIMEOUT_S) as client,
            client.stream("GET", "/api/events") as stream,
        ):
            listening.append(user)
            name = ""
            async for line in stream.aiter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    heard[user].append((name, json.loads(line.removeprefix("data: "))))

    listening: list[str] = []
    async with anyio.create_task_group() as tasks:
        for user in heard:
            tasks.start_soon(listen, user)
        await eventually(lambda: len(listening) == len(heard))
        with server.api("root") as admin:
            told(admin.put("/admin/mcp/servers/hidden?kind=generic", json=HOSTILE | {"groups": ["nobody"]}))
        await eventually(lambda: heard["anna"] and "server_registry_changes" in {name for name, _ in heard["root"]})
        tasks.cancel_scope.cancel()
    assert {name for name, _ in heard["anna"]} == {"server_registry_updated"}
    assert "hidden" not in json.dumps(heard["anna"])
    assert any(data.get("added") == ["hidden"] for _, data in heard["root"])


@pytest.mark.contract("G5.5-1", "G8-4", "G10-3")
def test_a_reload_returns_its_status_and_the_servers(server: GatewayServer) -> None:
    server.write("rag-mcp.json", {"docs": rag_entry("handbook")})
    server.write("mcp.json", {"odd": HOSTILE})
    with server.api("root") as admin:
        done = told(admin.post("/admin/mcp/reload"))
        seen = told(admin.get("/admin/mcp"))
    assert (done["status"], done["servers"]) == ("reloaded", ["docs", "odd"])
    assert seen["last_reload"] >= done["at"]
    assert {each["name"]: each["health"]["server"] for each in seen["servers"]} == {"docs": "docs", "odd": "odd"}


@pytest.mark.contract("G16-4", "G16-5")
def test_administrators_change_the_servers_of_both_files(server: GatewayServer) -> None:
    with server.api("root") as admin:
        for kind, file in (("rag", "rag-mcp.json"), ("generic", "mcp.json")):
            done = told(admin.put(f"/admin/mcp/servers/of-{kind}?kind={kind}", json=HOSTILE | {"enabled": False}))
            assert f"of-{kind}" in done["servers"]
            assert list(json.loads((server.config / "overrides" / file).read_text())) == [f"of-{kind}"]
        server.write("rag-mcp.json", {})
        server.write("mcp.json", {})
        assert told(admin.post("/admin/mcp/reload"))["servers"] == []
