"""`GET /api/audit`: callers list their own calls, page by page, and administrators those of everybody."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, count_by_facet, read_page, read_records
from armarium.foundation.security.identity import key_hash
from armarium.foundation.telemetry import timestamp
from support.server import ServerProcess, installed_command, write_config
from support.waiting import eventually

KEYS = {"ann": "key-of-ann", "ben": "key-of-ben", "boss": "key-of-boss", "narrow": "key-of-narrow"}
START = datetime(2026, 1, 1, tzinfo=UTC)
NOTE = "a note that nobody else reads"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with four callers; one of them is an administrator."""
    directory = tmp_path_factory.mktemp("served")
    (directory / "root").mkdir()
    keys = [
        {"username": name, "groups": ["admin"] if name == "boss" else [], "key_sha256": key_hash(key)}
        for name, key in KEYS.items()
    ]
    config = write_config(
        directory,
        {
            "state_dir": str(directory / "state"),
            "server": {"port": 0},
            "security": {"auth": "keys", "keys": keys},
            "sandbox": {"roots": [{"name": "work", "path": str(directory / "root"), "allowed_tools": ["*"]}]},
        },
    )
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        yield process


def as_caller(served: ServerProcess, name: str) -> httpx.Client:
    return httpx.Client(base_url=served.url, headers={"authorization": f"Bearer {KEYS[name]}"}, timeout=30)


def listed(served: ServerProcess, name: str, **filters: Any) -> list[dict[str, Any]]:
    with as_caller(served, name) as http:
        answer = http.get("/api/audit", params=filters)
        assert answer.status_code == 200, answer.text
        return answer.json()["calls"]


async def call_tools(served: ServerProcess, name: str) -> None:
    """Two calls that succeed and one that fails, written to the audit log."""
    with as_caller(served, name) as http:
        for tool, arguments in (
            ("write_file", {"root": "work", "path": f"{name}.txt", "content": NOTE}),
            ("read_file", {"root": "work", "path": f"{name}.txt"}),
            ("read_file", {"root": "work", "path": "missing.txt"}),
        ):
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
            headers = {"accept": "application/json, text/event-stream", "mcp-session-id": session(http)}
            assert http.post("/mcp", json=body, headers=headers).status_code == 200


def session(http: httpx.Client) -> str:
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
    answer = http.post("/mcp", json=body, headers={"accept": "application/json, text/event-stream"})
    return answer.headers["mcp-session-id"]


async def test_a_call_is_listed_as_soon_as_it_was_answered(served: ServerProcess) -> None:
    with as_caller(served, "narrow") as http:
        for number in range(1, 21):
            assert http.get("/api/status").is_success
            assert len(http.get("/api/audit", params={"tool": "server_status"}).json()["calls"]) == number


@pytest.mark.contract("S5.3-3")
async def test_callers_see_their_own_calls_and_nobody_elses(served: ServerProcess) -> None:
    await call_tools(served, "ann")
    await call_tools(served, "ben")
    mine = listed(served, "ann", capability="sandbox")
    assert [(call["tool"], call["code"] or call["outcome"]) for call in mine] == [
        ("read_file", "NOT_FOUND"), ("read_file", "success"), ("write_file", "success"),
    ]  # fmt: skip
    assert {call["principal"] for call in listed(served, "ann", limit=1000)} == {"ann"}
    assert {call["principal"] for call in listed(served, "boss", capability="sandbox")} == {"ann", "ben"}


@pytest.mark.contract("S16-2")
async def test_filters_select_by_tool_status_and_time(served: ServerProcess) -> None:
    await call_tools(served, "ann")
    assert {call["tool"] for call in listed(served, "ann", tool="write_file")} == {"write_file"}
    for status in ("error", "NOT_FOUND"):
        assert {call["path"] for call in listed(served, "ann", status=status, tool="read_file")} == {"missing.txt"}
    assert {call["outcome"] for call in listed(served, "ann", status="success")} == {"success"}
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert listed(served, "ann", since=soon) == []
    assert listed(served, "ann", until=soon)
    assert listed(served, "ann", until="2020-01-01") == []


async def test_filters_select_by_root_path_surface_and_caller(served: ServerProcess) -> None:
    await call_tools(served, "ann")
    await call_tools(served, "ben")
    assert {call["path"] for call in listed(served, "ann", root="work", path_prefix="miss")} == {"missing.txt"}
    assert {call["principal"] for call in listed(served, "boss", principal="ben", surface="http")} == {"ben"}
    assert listed(served, "ann", principal="ben") == []
    assert listed(served, "ann", surface="stdio") == []


async def test_calls_are_counted_by_facet(served: ServerProcess) -> None:
    await call_tools(served, "ann")
    await call_tools(served, "ben")

    def counted(name: str, **filters: str) -> dict[str, Any]:
        with as_caller(served, name) as http:
            return http.get("/api/audit/facets", params=filters).json()

    mine = counted("ann", capability="sandbox")
    assert mine["complete"] is True
    assert set(mine["facets"]["principal"]) == {"ann"}
    assert set(mine["facets"]["tool"]) == {"read_file", "write_file"}
    assert set(mine["facets"]["status"]) == {"success", "NOT_FOUND"}
    assert sum(mine["facets"]["tool"].values()) == mine["calls"]
    assert set(counted("boss", capability="sandbox")["facets"]["principal"]) == {"ann", "ben"}
    assert counted("ann", principal="ben")["calls"] == 0


async def test_reads_over_a_surface_are_left_out_of_pages_and_counts(served: ServerProcess) -> None:
    await call_tools(served, "ann")
    with as_caller(served, "ann") as http:
        # Over the surface `api`, like the requests of this test.
        assert http.put("/api/sandbox/work/file", params={"path": "api.txt"}, json={"content": "x"}).status_code == 200
    await eventually(lambda: listed(served, "ann", surface="api", tool="write_file"))
    found = listed(served, "ann", without_reads_over="api", limit=1000)
    assert {(call["tool"], call["read_only"]) for call in found if call["surface"] == "api"} == {("write_file", False)}
    assert {call["read_only"] for call in found if call["tool"] == "read_file"} == {True}
    with as_caller(served, "ann") as http:
        counted = http.get("/api/audit/facets", params={"without_reads_over": "api"}).json()
    assert counted["facets"]["surface"]["api"] == len([call for call in found if call["surface"] == "api"])
    assert "list_calls" not in counted["facets"]["tool"]


async def test_no_content_key_session_or_path_of_the_machine_is_shown(served: ServerProcess) -> None:
    await call_tools(served, "ann")
    shown = json.dumps(listed(served, "boss", limit=1000))
    assert "write_file" in shown
    for hidden in (NOTE, *KEYS.values(), *map(key_hash, KEYS.values()), "resolved_path", "session"):
        assert hidden not in shown


@pytest.mark.parametrize(
    "filters",
    [{"since": "yesterday"}, {"limit": 0}, {"limit": 1001}, {"cursor": "1 OR 1=1"}, {"apikey_hash": key_hash("x")},
     {"session": "1"}],
)  # fmt: skip
def test_a_filter_that_is_none_is_refused(served: ServerProcess, filters: dict[str, Any]) -> None:
    with as_caller(served, "ann") as http:
        refused = http.get("/api/audit", params=filters)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_ARGUMENT")
        assert http.get("/api/audit", headers={"authorization": "Bearer wrong"}).status_code == 401


def record(number: int, **values: Any) -> CallRecord:
    known: dict[str, Any] = {
        "at": timestamp(START + timedelta(seconds=number // 2)), "call_id": str(number), "surface": "http",
        "capability": "store", "tool": "file_read", "principal": "ann", "apikey_hash": "a" * 64, "session": None,
        "root": None, "path": None, "resolved_path": None, "outcome": "success", "code": None, "duration_ms": 1.0,
        "request_bytes": 1, "response_bytes": 1, "arguments": "{}",
    }  # fmt: skip
    return CallRecord(**known | values)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A log of 40 calls of two callers, two in each second; every tenth of the first one failed."""
    file = tmp_path / "audit.sqlite"
    log = AuditLog(file)
    for number in range(40):
        failed = {"outcome": "error", "code": "NOT_FOUND"} if number % 20 == 0 else {}
        log.append(record(number, apikey_hash=("a" if number % 2 == 0 else "b") * 64, **failed))
    log.close()
    return file


@pytest.mark.parametrize("most", [1, 3, 50])
def test_pages_have_every_call_once_in_order(filled: Path, most: int) -> None:
    found: list[str] = []
    before = None
    while True:
        rows, before = read_page(filled, AuditFilter(), most=most, scanned=7, before=before)
        assert len(rows) <= min(most, 7)
        found += [each.call_id for _, each in rows]
        if before is None:
            break
    assert found == [str(number) for number in reversed(range(40))]


def test_a_page_reads_no_more_than_it_may_and_the_next_one_goes_on(filled: Path) -> None:
    wanted = AuditFilter(apikey_hash="a" * 64, status="NOT_FOUND")
    pages, before = [], None
    while True:
        rows, before = read_page(filled, wanted, most=5, scanned=6, before=before)
        pages.append([each.call_id for _, each in rows])
        if before is None:
            break
    assert pages == [[], ["20"], [], ["0"]]


def test_the_calls_of_a_caller_are_found_by_an_index(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        statement = (
            "SELECT at, id FROM calls WHERE apikey_hash = ? AND at < ? AND (at, id) < (?, ?) ORDER BY at DESC, id DESC"
        )
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", ("a", "b", "c", 1)))
    assert "calls_by_caller" in plan
    assert "TEMP B-TREE" not in plan
    assert len(read_records(filled, AuditFilter(status="NOT_FOUND"), last=9)) == 2


def test_counts_tell_when_they_are_incomplete(filled: Path) -> None:
    everything = count_by_facet(filled, AuditFilter(apikey_hash="a" * 64), scanned=20)
    assert (everything.calls, everything.is_complete) == (20, True)
    assert everything.by_facet["status"] == {"success": 18, "NOT_FOUND": 2}
    newest = count_by_facet(filled, AuditFilter(), scanned=39)
    assert (newest.calls, newest.is_complete) == (39, False)
