"""Administrators try a server before they save it, reconnect one, and list its tools."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import hostile_upstream
from support.gateway_server import HOSTILE, GatewayServer, Json, rag_entry, started

CANARY = "canary-trial-9b3d-never-shown"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GatewayServer]:
    with started(tmp_path, watch=False) as running:
        running.write("rag-mcp.json", {"notes": rag_entry("harbour", "tides")})
        running.write("mcp.json", {"odd": HOSTILE, "off": HOSTILE | {"enabled": False}})
        with running.api("root") as admin:
            told(admin.post("/admin/mcp/reload"))
        yield running


def told(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def tried(admin: httpx.Client, name: str, entry: Json, kind: str = "rag", status: int = 200) -> Json:
    return told(admin.post("/admin/mcp/check", json={"server": name, "entry": entry, "kind": kind}), status)


def test_an_entry_is_tried_and_not_saved(server: GatewayServer) -> None:
    with server.api("root") as admin:
        trial = tried(admin, "fresh", rag_entry("lamps", "ropes"))
        assert trial["ok"], trial
        assert (trial["server_name"], trial["server_version"]) == ("light", "1")
        assert trial["tool_count"] == 3
        assert {"id": "lamps", "name": "Lamps"} in trial["sources"]
        assert trial["source_count"] == 2
        trial = tried(admin, "gadget", HOSTILE, "generic")
        assert trial["ok"]
        assert "sources" not in trial
        assert {each["name"] for each in admin.get("/admin/mcp").json()["servers"]} == {"notes", "odd", "off"}
        assert json.loads((server.config / "overrides/mcp.json").read_text()).keys() == {"odd", "off"}
        # Also one that is disabled.
        assert tried(admin, "off", HOSTILE | {"enabled": False}, "generic")["ok"]


def test_a_trial_that_fails_says_why(server: GatewayServer) -> None:
    with server.api("root") as admin:
        gone = tried(admin, "gone", {"command": sys.executable, "args": ["-c", "raise SystemExit(3)"]}, "generic")
        assert not gone["ok"]
        assert "status 3" in gone["error"]["message"]
        assert gone["error"]["hint"]
        no_rag = tried(admin, "plain", HOSTILE, "rag")
        assert not no_rag["ok"]
        assert "rag_get_raw_results" in no_rag["error"]["message"]
        assert "mcp.json" in no_rag["error"]["hint"]
        failing = tried(admin, "failing", rag_entry("x", "--failing"))
        assert not failing["ok"]
        nowhere = tried(admin, "nowhere", {"url": "http://127.0.0.1:9/mcp"}, "generic")
        assert not nowhere["ok"]


def test_what_cannot_be_saved_is_not_tried(server: GatewayServer, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    program: Json = {"command": "/bin/sh", "args": ["-c", f"id > {marker}"]}
    with server.api("root") as admin, server.api("anna") as anna:
        body = {"server": "bad", "entry": program, "kind": "generic"}
        told(anna.post("/admin/mcp/check", json=body), 403)
        refused = tried(admin, "bad", program, "generic", 403)
        assert "gateway.admin_commands" in str(refused)
        refused = tried(admin, "bad", {"url": "https://host.invalid/", "headers": {"x": "${PATH}"}}, "rag", 422)
        assert "gateway.variables" in str(refused)
        assert "did you mean" in str(tried(admin, "bad", {"comand": "x"}, "rag", 422))
        assert "masked" in str(tried(admin, "bad", rag_entry(env={"KEY": "********"}), "rag", 422))
        assert "must be unique" in str(tried(admin, "odd", rag_entry("x"), "rag", 422))
        assert "neither" in str(tried(admin, "bad", {"enabled": False}, "rag", 422))
    assert not marker.exists()


def test_a_trial_uses_the_value_behind_a_mask_and_tells_it_to_nobody(server: GatewayServer) -> None:
    entry = rag_entry("harbour", env={"KEY": CANARY})
    script = "import os, sys; sys.exit(7 if os.environ['KEY'] == sys.argv[1] else 8)"
    with server.api("root") as admin:
        told(admin.put("/admin/mcp/servers/secretive?kind=rag", json=entry))
        shown = told(admin.get("/admin/mcp/servers/secretive"))["entry"]
        assert shown["env"] == {"KEY": "********"}
        assert tried(admin, "secretive", shown)["ok"]
        probe = shown | {"args": ["-c", script, CANARY]}
        trial = tried(admin, "secretive", probe)
        assert "status 7" in trial["error"]["message"]
        assert CANARY not in json.dumps(trial)
    assert CANARY not in "\n".join(map(str, server.process.log))


def test_a_server_is_reconnected_although_its_calls_are_rejected(server: GatewayServer, tmp_path: Path) -> None:
    flag = tmp_path / "may-start"
    script = tmp_path / "late.py"
    script.write_text(
        f"import os, runpy, sys\nif not os.path.exists({str(flag)!r}): sys.exit(4)\n"
        f"runpy.run_path({hostile_upstream.__file__!r}, run_name='__main__')\n"
    )
    with server.api("root") as admin, server.api("anna") as anna:
        told(admin.put("/admin/mcp/servers/late?kind=generic", json={"command": sys.executable, "args": [str(script)]}))
        told(anna.post("/admin/mcp/servers/late/reconnect"), 403)
        down = told(admin.post("/admin/mcp/servers/late/reconnect"))["health"]
        assert down["state"] in {"failing", "open"}
        assert "status 4" in down["last_error"]
        assert "pid" not in down
        flag.touch()
        # Whatever pause there is after the failure: somebody wants it now.
        up = told(admin.post("/admin/mcp/servers/late/reconnect"))["health"]
        assert up["state"] == "ready"
        assert "last_error" not in up
        assert up["tools"] > 0


def test_a_server_that_works_gets_a_new_process(server: GatewayServer) -> None:
    question = {"query": "who", "sources": ["notes:harbour"]}
    with server.api("root") as admin:

        def process() -> str:
            return told(admin.post("/rag/search", json=question))["results"]["hits"][0]["title"]

        before = process()
        assert told(admin.post("/admin/mcp/servers/notes/reconnect"))["health"]["state"] == "ready"
        assert process() != before
        with pytest.raises(ProcessLookupError):
            os.kill(int(before), 0)
        told(admin.post("/admin/mcp/servers/nobody/reconnect"), 404)
        assert "disabled" in str(told(admin.post("/admin/mcp/servers/off/reconnect"), 404))


def test_the_tools_of_a_server_are_listed_page_by_page(server: GatewayServer) -> None:
    with server.api("root") as admin, server.api("anna") as anna:
        told(anna.get("/admin/mcp/servers/notes/tools"), 403)
        page = told(admin.get("/admin/mcp/servers/notes/tools", params={"limit": 2}))
        assert (page["total"], page["next"]) == (3, "rag_get_raw_results")
        rest = told(admin.get("/admin/mcp/servers/notes/tools", params={"limit": 2, "after": page["next"]}))
        assert "next" not in rest
        names = [each["name"] for each in page["tools"] + rest["tools"]]
        assert names == ["rag_discover_resources", "rag_get_raw_results", "rag_get_synthesized_results"]
        search = page["tools"][1]
        assert search["parameters"] == ["username", "query", "sources", "top_k"]
        assert search["required"] == 1
        told(admin.get("/admin/mcp/servers/off/tools"), 404)
