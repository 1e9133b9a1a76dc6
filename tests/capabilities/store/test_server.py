"""The store as its callers meet it: the real server, the official client over HTTP, both kinds of database."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
import sqlite3
import subprocess
from collections.abc import AsyncGenerator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.store.database.transactions import lock_key
from armarium.capabilities.store.model import Scope
from support.client import RawSession, ToolClient, connected
from support.postgres import running_postgres
from support.server import START_DEADLINE_S, ServerProcess, installed_command
from support.store_server import (
    StoreUser,
    embedded_dsn,
    looking_into,
    metric,
    metrics_of,
    refusal,
    start_store,
    store_config,
)
from support.waiting import eventually

MAX_FILE, MAX_PROJECT = 3_000, 5_000
SETTINGS = {
    "max_payload_bytes": 2_000,
    "max_file_bytes": MAX_FILE,
    "max_project_bytes": MAX_PROJECT,
    "lock_timeout_ms": 200,
    "rate": {"calls_per_second": 20, "burst": 60},
    "index": {"poll_seconds": 0.5, "retry_backoff_ms": 50},
}
CONTRACT_METRICS = [
    "mcp_files_mutation_total",
    "mcp_files_lock_wait_ms_count",
    "mcp_files_index_queue_depth",
    "mcp_files_index_job_latency_ms_count",
    "mcp_files_search_latency_ms_count",
    "mcp_files_search_rerank_fail_total",
    "mcp_files_index_visibility_lag_ms_count",
]
RETRYABLE = {"RATE_LIMITED", "RESOURCE_BUSY", "SEARCH_BACKEND_ERROR"}


@dataclass
class Served:
    """A server, what it was started with, and callers nobody has been yet."""

    process: ServerProcess
    directory: Path
    dsn: str
    logs: list[Path]
    """Files besides its own log in which the content of a file might turn up."""
    users: list[StoreUser]
    unused: Iterator[StoreUser] = field(init=False)

    def __post_init__(self) -> None:
        self.unused = iter(self.users)

    @property
    def config(self) -> Path:
        return self.directory / "config.yaml"

    @property
    def audit_file(self) -> Path:
        return self.directory / "state" / "audit.sqlite"

    def audited(self, user: StoreUser) -> list[dict[str, Any]]:
        """What the trail has of a caller, oldest first."""
        with closing(sqlite3.connect(self.audit_file)) as database:
            database.row_factory = sqlite3.Row
            rows = database.execute("SELECT * FROM calls WHERE apikey_hash = ? ORDER BY id", (user.tenant,))
            return [dict(row) for row in rows]


@contextmanager
def served_from(kind: str, directory: Path) -> Iterator[Served]:
    users = [StoreUser(f"user-{number}") for number in range(40)]
    if kind == "embedded":
        with start_store(directory, SETTINGS, users) as process:
            data_dir = directory / "state" / "postgres"
            yield Served(process, directory, embedded_dsn(data_dir), [data_dir / "postgres.log"], users)
        return
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with running_postgres(port=port) as dsn, start_store(directory, SETTINGS | {"dsn": dsn}, users) as process:
        yield Served(process, directory, dsn, [], users)


@pytest.fixture(scope="module", params=["embedded", "over TCP"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a database started for it, and one with a database at an address."""
    with served_from(request.param, tmp_path_factory.mktemp("served")) as served:
        yield served


@pytest.fixture
def user(served: Served) -> StoreUser:
    """A caller without files, who has not called yet."""
    return next(served.unused)


@pytest.fixture
async def client(served: Served, user: StoreUser) -> AsyncGenerator[ToolClient]:
    """The official client of that caller."""
    hidden = [str(served.directory), user.tenant, user.key, "postgres"]
    async with connected(served.process.url, key=user.key, never_said=hidden) as client:
        yield client


async def found(client: ToolClient, query: str, **arguments: Any) -> list[dict[str, Any]]:
    """What a search finds, once it finds something."""

    async def search() -> list[dict[str, Any]]:
        return (await client.call("file_search", project="p", query=query, **arguments))["chunks"]

    return await eventually(search, what="found by a search")


@pytest.mark.contract("S3-2")
async def test_every_tool_does_its_work(client: ToolClient) -> None:
    listed = {tool.name: tool for tool in (await client.mcp.list_tools()).tools}
    assert set(listed) == {
        *("file_stat", "file_read", "file_write", "file_delete", "file_rename", "file_list", "file_search"),
        *("file_history", "file_restore", "file_purge", "mcp_pipe"),
    }
    assert all(tool.output_schema for tool in listed.values())

    written = await client.call("file_write", project="p", path="/a/b.txt", content="The lämp is lit.\n")
    assert written == {"bytes_written": 18, "version": 1, "size": 18}
    await client.call("file_write", project="p", path="/a/b.txt", content="A kettle sings.\n")
    read = await client.call("file_read", project="p", path="/a/b.txt", offset=4, length=5)
    assert read | {"content": "lämp", "content_encoding": "utf-8", "version": 2} == read
    stat = await client.call("file_stat", project="p", path="/a/b.txt")
    assert (stat["exists"], stat["type"], stat["size"]) == (True, "FILE", 34)
    assert stat["created_at"] < stat["updated_at"]
    assert (await client.call("file_stat", project="p", path="/a"))["type"] == "DIRECTORY"
    assert (await client.call("file_stat", project="p", path="/none"))["exists"] is False

    [chunk] = await found(client, "kettle", path_prefix="/a/b", limit=1)
    place = {"offset": chunk["file_seek_start_bytes"]}
    place["length"] = chunk["file_seek_end_bytes"] - place["offset"]
    assert (await client.call("file_read", project="p", path=chunk["file_path"], **place))["content"] == chunk[
        "chunk_content"
    ]

    assert await client.call("file_rename", project="p", from_path="/a", to_path="/c") == {"moved_count": 1}
    listing = await client.call("file_list", project="p", path="/", depth=2)
    assert [(entry["path"], entry["type"]) for entry in listing["entries"]] == [
        ("/c", "DIRECTORY"), ("/c/b.txt", "FILE"),
    ]  # fmt: skip
    assert listing["has_more"] is False
    versions = (await client.call("file_history", project="p", path="/c/b.txt"))["versions"]
    assert [version["current"] for version in versions] == [True, False]
    await client.call("file_restore", project="p", path="/c/b.txt", version=versions[1]["version"])
    assert (await client.call("file_read", project="p", path="/c/b.txt"))["content"] == "The lämp is lit.\n"
    assert await client.call("file_delete", project="p", path="/c", recursive=True) == {"deleted_count": 1}
    assert await client.call("file_search", project="p", query="lamp") == {"chunks": []}


@pytest.mark.contract("S3-5", "S3.2-8")
@pytest.mark.parametrize(
    ("code", "tool", "arguments"),
    [
        ("NOT_FOUND", "file_read", {"path": "/none"}),
        ("ALREADY_EXISTS", "file_rename", {"from_path": "/file", "to_path": "/dir/file"}),
        ("IS_DIRECTORY", "file_write", {"path": "/dir", "content": "x"}),
        ("NOT_DIRECTORY", "file_write", {"path": "/file/inner", "content": "x"}),
        ("INVALID_PATH", "file_stat", {"path": "no-slash"}),
        ("INVALID_OFFSET", "file_write", {"path": "/file", "content": "x", "mode": "OVERWRITE", "offset": 99}),
        ("INVALID_OFFSET", "file_read", {"path": "/file", "offset": -1}),
        ("INVALID_OFFSET", "file_list", {"limit": 0}),
        ("INVALID_PATH", "file_read", {"path": "no-slash", "offset": -1}),
        ("INVALID_QUERY", "file_search", {"query": "  "}),
        ("NOT_EMPTY", "file_delete", {"path": "/dir"}),
        ("PERMISSION_DENIED", "file_delete", {"path": "", "recursive": True}),
        ("PAYLOAD_TOO_LARGE", "file_write", {"path": "/large", "content": "x" * 2_001}),
        ("QUOTA_EXCEEDED", "file_write", {"path": "/more", "content": "x" * 1_900}),
        ("CONFLICT", "file_write", {"path": "/file", "content": "x", "if_version": 77}),
    ],
)
async def test_what_cannot_be_done_has_the_contracts_code_and_changes_nothing(
    client: ToolClient, code: str, tool: str, arguments: dict[str, Any]
) -> None:
    await client.call("file_write", project="p", path="/file", content="f")
    await client.call("file_write", project="p", path="/dir/file", content="y" * 1_600)
    await client.call("file_write", project="p", path="/dir/other", content="y" * 1_600)
    before = await client.call("file_list", project="p", depth=9)
    refused = await refusal(client, tool, project="p", **arguments)
    assert (refused["code"], refused["retryable"]) == (code, code in RETRYABLE)
    assert await client.call("file_list", project="p", depth=9) == before


@pytest.mark.parametrize(
    ("code", "tool", "arguments"),
    [
        ("INVALID_PATH", "file_stat", '{"project": "p", "path": "/\\ud800"}'),
        ("INVALID_PATH", "file_stat", '{"project": "\\udfff", "path": "/a"}'),
        ("INVALID_QUERY", "file_write", '{"project": "p", "path": "/a", "content": "\\ud83d"}'),
        ("INVALID_QUERY", "file_write", '{"project": "p", "path": "/a", "content": "x", "mode": "\\ud83d"}'),
        ("INVALID_QUERY", "file_write", '{"project": "p", "path": "/a", "content": "x", "\\ud83d": 1}'),
        ("INVALID_QUERY", "file_search", '{"project": "p", "query": "lamp \\ud83d"}'),
        ("INVALID_PATH", "file_search", '{"project": "p", "query": "lamp", "path_prefix": "/\\ud83d"}'),
    ],
)
async def test_an_unpaired_surrogate_has_the_contracts_code(
    served: Served, user: StoreUser, code: str, tool: str, arguments: str
) -> None:
    with RawSession.opened(served.process.url, key=user.key) as session:
        answer = session.call(tool, arguments).json()
    assert (answer["id"], answer["result"]["isError"]) == (1, True)
    assert answer["result"]["structuredContent"]["code"] == code


async def test_a_file_may_not_grow_beyond_its_limit(client: ToolClient) -> None:
    await client.call("file_write", project="p", path="/file", content="x" * 2_000)
    assert (await refusal(client, "file_write", project="p", path="/file", content="x" * 1_001))["code"] == (
        "PAYLOAD_TOO_LARGE"
    )
    assert (await client.call("file_write", project="p", path="/file", content="x" * 1_000))["size"] == MAX_FILE


@pytest.mark.contract("S6.2-5")
async def test_whoever_calls_too_often_is_told_how_long_to_wait_and_nobody_else_is(
    served: Served, client: ToolClient
) -> None:
    refused: dict[str, Any] = {}
    while not refused:
        result = await client.result("file_stat", {"project": "p", "path": "/a"})
        if result.is_error:
            refused = result.structured_content or {}
    assert (refused["code"], refused["retryable"]) == ("RATE_LIMITED", True)
    assert 0 < refused["retry_after_ms"] <= 50
    async with connected(served.process.url, key=next(served.unused).key) as other:
        await other.call("file_stat", project="p", path="/a")


@pytest.mark.contract("S10-3")
async def test_a_project_that_another_instance_is_changing_is_busy(
    served: Served, user: StoreUser, client: ToolClient
) -> None:
    async with looking_into(served.dsn) as elsewhere, elsewhere.transaction():
        await elsewhere.execute("SELECT pg_advisory_xact_lock($1)", lock_key(Scope(user.tenant, "p")))
        refused = await refusal(client, "file_write", project="p", path="/a", content="x")
        await client.call("file_write", project="other", path="/a", content="x")
    assert (refused["code"], refused["retryable"]) == ("RESOURCE_BUSY", True)
    await client.call("file_write", project="p", path="/a", content="x")


async def test_a_search_that_the_database_fails_may_be_tried_again(served: Served, client: ToolClient) -> None:
    await client.call("file_write", project="p", path="/a", content="The harbour is calm.")
    await found(client, "harbour")
    async with looking_into(served.dsn) as operator:
        await operator.execute("ALTER TABLE mcp_file_chunk_bm25 RENAME TO mislaid")
        try:
            refused = await refusal(client, "file_search", project="p", query="harbour")
        finally:
            await operator.execute("ALTER TABLE mislaid RENAME TO mcp_file_chunk_bm25")
    assert (refused["code"], refused["retryable"]) == ("SEARCH_BACKEND_ERROR", True)
    assert await found(client, "harbour")


@pytest.mark.contract("S6.1-2")
async def test_callers_see_nothing_of_each_other(served: Served, user: StoreUser, client: ToolClient) -> None:
    await client.call("file_write", project="p", path="/a", content="The anchor is mine.")
    await found(client, "anchor")
    other_user = next(served.unused)
    async with connected(served.process.url, key=other_user.key) as other:
        assert await other.call("file_list", project="p", depth=9) == {"entries": [], "has_more": False}
        assert (await other.call("file_stat", project="p", path="/a"))["exists"] is False
        for project in ("p", "*"):
            assert await other.call("file_search", project=project, query="anchor") == {"chunks": []}
        for tool, arguments in [
            ("file_read", {"path": "/a"}),
            ("file_history", {"path": "/a"}),
            ("file_restore", {"path": "/a", "version": 1}),
            ("file_delete", {"path": "/a"}),
            ("file_rename", {"from_path": "/a", "to_path": "/b"}),
        ]:
            assert (await refusal(other, tool, project="p", **arguments))["code"] == "NOT_FOUND"
        await other.call("file_write", project="p", path="/a", content="The anchor is not yours.", create_only=True)
        [own] = await found(other, "anchor")
        assert own["chunk_content"] == "The anchor is not yours."
    assert (await client.call("file_read", project="p", path="/a"))["content"] == "The anchor is mine."
    [chunk] = await found(client, "anchor")
    assert chunk["chunk_content"] == "The anchor is mine."
    async with looking_into(served.dsn, user.tenant) as connection:
        tenants = await connection.fetch("SELECT DISTINCT apikey_hash FROM mcp_files")
    assert [row["apikey_hash"] for row in tenants] == [user.tenant]


@pytest.mark.contract("S6.1-1")
async def test_files_belong_to_the_sha256_of_the_key(served: Served, user: StoreUser, client: ToolClient) -> None:
    await client.call("file_write", project="p", path="/mine", content="x")
    tenant = hashlib.sha256(user.key.encode()).hexdigest()
    async with looking_into(served.dsn, tenant) as database:
        rows = await database.fetch("SELECT apikey_hash, path FROM mcp_files WHERE apikey_hash = $1", tenant)
    assert [tuple(row) for row in rows] == [(tenant, "/mine")]


@pytest.mark.contract("S5.3-1")
async def test_every_tool_of_the_store_is_called_in_a_pipe(client: ToolClient) -> None:
    at = {"project": "p", "path": "/a"}
    steps: list[dict[str, Any]] = [
        {"id": "write", "tool": "file_write", "args": at | {"content": "tea"}},
        {"id": "stat", "tool": "file_stat", "args": at},
        {"id": "read", "tool": "file_read", "args": at},
        {"id": "list", "tool": "file_list", "args": {"project": "p"}},
        {"id": "search", "tool": "file_search", "args": {"project": "p", "query": "tea"}},
        {"id": "rename", "tool": "file_rename", "args": {"project": "p", "from_path": "/a", "to_path": "/b"}},
        {"id": "delete", "tool": "file_delete", "args": {"project": "p", "path": "/b"}},
    ]
    answer = await client.call("mcp_pipe", steps=steps)
    assert [(step["id"], step["ok"]) for step in answer["steps"].values()] == [(step["id"], True) for step in steps]
    assert answer["steps"]["read"]["structured"]["content"] == "tea"
    assert answer["result"]["structured"] == {"deleted_count": 1}


@pytest.mark.contract("S14-1", "S14-2", "S15-2")
async def test_calls_are_on_record_without_content_and_cost_nothing(
    served: Served, user: StoreUser, client: ToolClient
) -> None:
    canary = f"canary{secrets.token_hex(12)}"
    text = f"The lighthouse blinks. It is the one of {canary}."
    await client.call("file_write", project="p", path="/a", content=text)
    assert any(canary in chunk["chunk_content"] for chunk in await found(client, "lighthouse"))
    assert canary in (await client.call("file_read", project="p", path="/a"))["content"]
    for arguments in (
        {"path": "/a", "if_version": 9},
        {"path": "/a/inner"},
        {"path": "bad"},
        {"path": "/a", "mode": "OVERWRITE", "offset": 5_000},
        {"path": "/a", "mode": "none"},
        {"path": "/a", "content_encoding": "latin-1"},
        {"path": "/a", "unknown": 1},
    ):
        refused = await refusal(client, "file_write", project="p", content=text, **arguments)
        assert canary not in json.dumps(refused)
    await refusal(client, "file_write", project="p", path="/a", content=text + "\x00")
    await refusal(client, "file_write", project="p", path="/b", content=text * 100)
    await refusal(client, "file_write", project="p", path="/b", content=[text])
    await refusal(client, "file_write", project="p", path="/b", content={text: text})
    await refusal(client, "file_write", project="p", path="/b", text=text)
    last = await client.call("file_stat", project="p", path="/last")
    assert last["exists"] is False

    async def all_recorded() -> bool:
        return any(row["path"] == "/last" for row in served.audited(user))

    await eventually(all_recorded, what="the last call is on record")
    rows = served.audited(user)
    assert {row["cost"] for row in rows} == {0.0}
    assert {row["capability"] for row in rows} == {"store"}
    assert {(row["principal"], row["surface"]) for row in rows} == {(user.username, "http")}
    first = rows[0]
    assert (first["tool"], first["root"], first["path"], first["outcome"]) == ("file_write", "p", "/a", "success")
    assert first["request_bytes"] >= len(text)
    assert {row["code"] for row in rows if row["outcome"] == "error"} >= {"CONFLICT", "NOT_DIRECTORY", "INVALID_PATH"}

    kept = [*served.audit_file.parent.glob("audit.sqlite*"), *served.logs]
    told = [served.process.said(), metrics_of(served.process, user), *(file.read_text("latin-1") for file in kept)]
    assert all(canary not in each for each in told), [canary in each for each in told]
    assert all(user.key not in each for each in told)


@pytest.mark.contract("S10-5", "S18.1-1")
async def test_the_contracts_metrics_are_counted(served: Served, user: StoreUser, client: ToolClient) -> None:
    before = metrics_of(served.process, user)
    changed = 'mcp_files_mutation_total{status="ok",tool="file_write"}'
    await client.call("file_write", project="p", path="/a", content="The compass points north.")
    await found(client, "compass")
    await refusal(client, "file_delete", project="p", path="/none")

    async def counted() -> bool:
        page = metrics_of(served.process, user)
        return metric(page, "mcp_files_index_visibility_lag_ms_count") > 0 and (
            metric(page, "mcp_files_index_job_latency_ms_count") > 0
        )

    await eventually(counted, what="the job is counted")
    page = metrics_of(served.process, user)
    for name in CONTRACT_METRICS:
        assert f"\n{name}" in page, name
    earlier = metric(before, changed) if changed in before else 0.0
    assert metric(page, changed) == earlier + 1
    assert metric(page, 'mcp_files_mutation_total{status="NOT_FOUND",tool="file_delete"}') >= 1
    assert metric(page, "mcp_files_index_queue_depth") >= 0
    assert metric(page, "mcp_files_index_slo_p95_seconds") == 30
    assert user.tenant not in page


@pytest.mark.contract("S15-1")
def test_nothing_is_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARMARIUM_STORE__MAX_FILE_BYTES", "17")
    file = store_config(tmp_path, SETTINGS, [StoreUser("someone")])
    command = [installed_command("armarium"), "serve", "--config", str(file), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=START_DEADLINE_S, check=False)
    assert ended.returncode == 2
    assert json.loads(ended.stdout)["error"]["code"] == "CONFIG_INVALID"
    assert "ARMARIUM_STORE__MAX_FILE_BYTES" in ended.stderr
    assert not (tmp_path / "state").exists()


def test_the_doctor_finds_a_running_store_well(served: Served) -> None:
    command = [installed_command("armarium"), "doctor", "--config", str(served.config), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=START_DEADLINE_S, check=False)
    report = json.loads(ended.stdout)
    about_store = {
        each["subject"]: each["state"] for each in report["findings"] if each["subject"].startswith(("store", "pgv"))
    }
    assert about_store.pop("store database") == "ok"
    assert set(about_store.values()) == {"ok"}, report
    assert ended.returncode == 0
    assert served.users[0].key not in ended.stdout
