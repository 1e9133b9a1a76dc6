"""The store's tools as a client meets them: manuals, schemas, errors, and arguments nobody should send."""

from __future__ import annotations

import json
from typing import Any

import pytest

from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import SearchBackendError
from armarium.capabilities.store.manifest import MANIFEST
from armarium.capabilities.store.model import Chunks, Scope
from armarium.capabilities.store.tools import STORE_ERRORS, TOOLS
from armarium.foundation.errors import DeadlineExceeded
from armarium.foundation.tools import bind_tools
from support.store_calls import Files, stored_chunk

HUGE = "x" * 100_000


@pytest.fixture
def files(database: StoreDatabase, tenant: str) -> Files:
    return Files(database, tenant)


@pytest.mark.contract("S3-2", "S8.3-1", "S9.2-2", "S9.6-2")
async def test_the_contracts_tools_and_three_more_are_served(files: Files) -> None:
    tools = {tool.name: tool for tool in bind_tools(TOOLS, files.store)}
    contract = ("stat", "read", "write", "delete", "rename", "list", "search")
    assert set(tools) == {f"file_{verb}" for verb in (*contract, "history", "restore", "purge")}
    assert {name for name, tool in tools.items() if tool.read_only} == {
        "file_stat", "file_read", "file_list", "file_search", "file_history",
    }  # fmt: skip
    assert tools["file_write"].content_fields == {"content"}
    assert all(tool.subject[0] == "project" for tool in tools.values())
    described = {name: tool.input_schema["properties"].items() for name, tool in tools.items()}
    defaults = {
        name: {argument: about["default"] for argument, about in arguments if "default" in about}
        for name, arguments in described.items()
    }
    assert defaults["file_read"] == {"offset": 0, "length": -1}
    assert defaults["file_write"].items() >= {"content_encoding": "utf-8", "offset": 0, "mode": "APPEND"}.items()
    assert defaults["file_delete"] == {"recursive": False}
    assert defaults["file_rename"] == {"overwrite": False}
    assert defaults["file_list"] == {"path": "", "depth": 1, "limit": 256}
    assert defaults["file_search"] == {"path_prefix": "", "limit": 5}


@pytest.mark.contract("S3.2-2")
async def test_the_text_of_a_read_file_is_its_payload(files: Files) -> None:
    await files.put("/a", content="hä\n")
    result = await files.result("read", path="/a")
    (block,) = result["content"]
    assert json.loads(block["text"]) == result["structuredContent"]
    assert result["structuredContent"].items() >= {"content": "hä\n", "content_encoding": "utf-8"}.items()


@pytest.mark.contract("S3.2-8", "S13-4")
async def test_whoever_reads_text_is_told_the_code_and_a_hint(files: Files) -> None:
    refused = await files.result("read", path="/a")
    assert refused["structuredContent"] == {"code": "NOT_FOUND", "message": "no file has this path", "retryable": False}
    hint = {"hint": "list the parent directory with file_list"}
    (block,) = refused["content"]
    assert json.loads(block["text"]) == refused["structuredContent"] | hint


@pytest.mark.contract("S3.1-2", "S8.2-5", "S9.7-1")
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("stat", {}, "INVALID_PATH"),
        ("stat", {"path": 7}, "INVALID_PATH"),
        ("stat", {"path": "/a", "project": ["p"]}, "INVALID_PATH"),
        ("stat", {"path": "/a", "project": ""}, "INVALID_PATH"),
        ("stat", {"path": "/a", "project": "*"}, "INVALID_PATH"),
        ("stat", {"path": "/a", "project": HUGE}, "INVALID_PATH"),
        ("stat", {"path": "/a", "unknown": 1}, "INVALID_QUERY"),
        ("stat", {"path": "/"}, "INVALID_PATH"),
        ("stat", {"path": "/" + HUGE}, "INVALID_PATH"),
        ("stat", {"path": "/a\x00"}, "INVALID_PATH"),
        ("stat", {"path": "/../etc/passwd"}, "INVALID_PATH"),
        ("stat", {"path": "/'; DROP TABLE mcp_files; --"}, "INVALID_PATH"),
        ("read", {"path": "/a", "offset": "0"}, "INVALID_OFFSET"),
        ("read", {"path": "/a", "offset": 0.5}, "INVALID_OFFSET"),
        ("read", {"path": "/a", "offset": True}, "INVALID_OFFSET"),
        ("read", {"path": "/a", "offset": -(2**63)}, "INVALID_OFFSET"),
        ("read", {"path": "/a", "length": -(2**70)}, "INVALID_OFFSET"),
        ("write", {"path": "/a"}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": 1}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "x", "mode": "append"}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "x", "mode": "DELETE"}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "x", "content_encoding": "base64"}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "x", "if_version": 0}, "INVALID_OFFSET"),
        ("write", {"path": "/a", "content": "x", "create_only": "yes"}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "a\x00b"}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "x", "mode": "OVERWRITE", "offset": 1e300}, "INVALID_OFFSET"),
        ("write", {"path": "", "content": "x"}, "INVALID_PATH"),
        ("delete", {"path": "/a", "recursive": 1}, "INVALID_QUERY"),
        ("rename", {"from_path": "/a"}, "INVALID_PATH"),
        ("rename", {"from_path": 1, "to_path": "/b"}, "INVALID_PATH"),
        ("list", {"depth": -1}, "INVALID_OFFSET"),
        ("list", {"depth": "deep"}, "INVALID_OFFSET"),
        ("list", {"limit": 0}, "INVALID_OFFSET"),
        ("list", {"limit": -5}, "INVALID_OFFSET"),
        ("search", {}, "INVALID_QUERY"),
        ("search", {"query": " \n\t"}, "INVALID_QUERY"),
        ("search", {"query": 5}, "INVALID_QUERY"),
        ("search", {"query": HUGE}, "INVALID_QUERY"),
        ("search", {"query": "x", "limit": 0}, "INVALID_OFFSET"),
        ("search", {"query": "x", "path_prefix": "\x00"}, "INVALID_PATH"),
        ("search", {"query": "x", "path_prefix": 3}, "INVALID_PATH"),
        ("search", {"query": "x", "project": "**"}, "INVALID_PATH"),
    ],
)
async def test_a_bad_argument_gets_a_code_of_the_contract_and_writes_nothing(
    files: Files, tool: str, arguments: dict[str, Any], code: str
) -> None:
    assert await files.code(tool, **arguments) == code
    assert await files.rows("SELECT FROM mcp_files") == []
    assert await files.jobs() == []


@pytest.mark.contract("S9.2-3", "S9.3-8", "S9.3-9")
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("read", {"path": "a", "offset": -1}, "INVALID_PATH"),
        ("read", {"path": "/a", "project": "a b", "length": -2}, "INVALID_PATH"),
        ("read", {"path": "/a", "offset": -1}, "INVALID_OFFSET"),
        ("read", {"path": "/a", "length": -2}, "INVALID_OFFSET"),
        ("write", {"path": "/a/", "content": "x", "offset": -1}, "INVALID_PATH"),
        ("write", {"path": "/a", "content": "a\x00", "offset": -1}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "x", "content_encoding": "latin-1", "offset": -1}, "INVALID_QUERY"),
        ("write", {"path": "/a", "content": "x" * 11, "offset": -1}, "PAYLOAD_TOO_LARGE"),
        ("write", {"path": "/a", "content": "x", "offset": -1}, "INVALID_OFFSET"),
        ("write", {"path": "a", "content": "x", "if_version": 0}, "INVALID_PATH"),
        ("delete", {"path": "a", "if_version": 0}, "INVALID_PATH"),
        ("delete", {"path": "/a", "if_version": 0}, "INVALID_OFFSET"),
        ("list", {"path": "/a/..", "depth": -1}, "INVALID_PATH"),
        ("list", {"path": "a", "limit": 0}, "INVALID_PATH"),
        ("search", {"query": "x", "project": "a b", "limit": 0}, "INVALID_PATH"),
        ("search", {"query": " ", "limit": 0}, "INVALID_QUERY"),
        ("restore", {"path": "/a b", "version": 0}, "INVALID_PATH"),
        ("restore", {"path": "/a", "version": 0}, "INVALID_OFFSET"),
    ],
)
async def test_what_the_contract_looks_at_first_is_told_first(
    database: StoreDatabase, tenant: str, tool: str, arguments: dict[str, Any], code: str
) -> None:
    files = Files(database, tenant, {"max_payload_bytes": 10})
    assert await files.code(tool, **arguments) == code


@pytest.mark.parametrize("argument", ["path", "content", "project"])
async def test_an_unpaired_surrogate_is_refused_wherever_it_stands(files: Files, argument: str) -> None:
    arguments = {"path": "/a", "content": "x", "project": "p"} | {argument: "\ud800"}
    assert await files.code("write", **arguments) in {"INVALID_PATH", "INVALID_QUERY"}


@pytest.mark.parametrize("number", [2**31, 2**53, 2**63, 2**64, 1e30])
async def test_huge_numbers_are_numbers(files: Files, number: float) -> None:
    await files.put("/a", content="abc")
    assert (await files.ok("read", path="/a", offset=number))["content"] == ""
    assert (await files.ok("read", path="/a", length=number))["content"] == "abc"
    assert len(await files.paths(depth=1, limit=number)) == 1
    assert len((await files.ok("list", depth=number))["entries"]) == 1
    await files.ok("write", path="/a", content="d", offset=number)
    assert await files.code("write", path="/a", content="d", mode="OVERWRITE", offset=number) == "INVALID_OFFSET"
    assert await files.code("write", path="/a", content="d", if_version=number) == "CONFLICT"
    assert await files.code("restore", path="/a", version=number) == "NOT_FOUND"


@pytest.mark.contract("S3.1-4", "S3.2-7", "S9.7-3")
async def test_a_search_is_asked_for_the_caller_alone_within_the_operators_limits(
    database: StoreDatabase, tenant: str
) -> None:
    files = Files(database, tenant, {"search": {"limit_default": 3, "limit_max": 7}}, key="sk-own")
    files.search.found = [stored_chunk("p", "/a", 3, 8, "found", 0.5)]
    assert await files.ok("search", query=" lamp ", path_prefix="/no_t%") == {
        "chunks": [
            {
                "file_path": "/a", "file_seek_start_bytes": 3, "file_seek_end_bytes": 8, "chunk_content": "found",
                "score": 0.5, "project": "p",
            }
        ]
    }  # fmt: skip
    await files.ok("search", query="lamp", project="*", limit=99)
    assert files.search.asked == [
        (tenant, "p", "lamp", "/no_t%", 3, "sk-own"),
        (tenant, "*", "lamp", "", 7, "sk-own"),
    ]
    assert len(files.searches) == 2


async def test_a_search_that_fails_may_be_tried_again(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*asked: Any) -> Chunks:
        raise SearchBackendError("the index does not answer")

    monkeypatch.setattr(files.search, "search", failing)
    refused = (await files.result("search", query="x"))["structuredContent"]
    assert (refused["code"], refused["retryable"]) == ("SEARCH_BACKEND_ERROR", True)


@pytest.mark.contract("S10-3")
async def test_a_project_others_are_changing_is_busy(files: Files, database: StoreDatabase) -> None:
    async with database.project_transaction(Scope(files.tenant, "p")):
        refused = (await files.result("write", path="/a", content="x"))["structuredContent"]
        await files.put("/a", project="other")
    assert (refused["code"], refused["retryable"]) == ("RESOURCE_BUSY", True)
    assert files.mutations[0] == ("file_write", "RESOURCE_BUSY")


def test_a_tool_that_replaces_a_file_says_so() -> None:
    destructive = {tool.name for tool in MANIFEST.declared_tools() if tool.destructive}
    assert destructive == {"file_write", "file_delete", "file_rename", "file_restore", "file_purge"}


async def test_a_call_past_its_deadline_ends_with_a_code_of_the_contract() -> None:
    told = STORE_ERRORS.translate(DeadlineExceeded("the call took longer than 300 seconds and was stopped"))
    assert (told.code, told.retryable) == ("RESOURCE_BUSY", True)
