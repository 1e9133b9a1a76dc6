"""The five tools as the contract has them, through a real client against the real command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.corpus import schemas
from armarium.capabilities.corpus.manifest import MANIFEST
from support.client import ToolClient, texts_of
from support.corpus import CorpusProcess

Json = dict[str, Any]
DECLARED = {tool.name.removeprefix("dir2mcp."): tool for tool in MANIFEST.declared_tools()}


async def answer(corpus: ToolClient, tool: str, **arguments: Any) -> Json:
    result = await corpus.result(f"dir2mcp.{tool}", arguments)
    assert not result.is_error, result.structured_content
    assert len(texts_of(result)) >= 1
    return result.structured_content or {}


async def refusal(corpus: ToolClient, tool: str, **arguments: Any) -> Json:
    result = await corpus.result(f"dir2mcp.{tool}", arguments)
    assert result.is_error, result.structured_content
    error = (result.structured_content or {})["error"]
    assert set(error) == {"code", "message", "retryable"}
    (text,) = texts_of(result)
    assert text.startswith(f"ERROR: {error['code']}: ")
    return error


async def test_the_five_core_tools_are_listed_with_the_schemas_of_the_contract(corpus: ToolClient) -> None:
    listed = {tool.name: tool for tool in (await corpus.mcp.list_tools()).tools}
    assert set(listed) == {f"dir2mcp.{name}" for name in ("search", "ask", "open_file", "list_files", "stats")}
    for name in ("search", "ask", "open_file", "list_files", "stats"):
        tool = listed[f"dir2mcp.{name}"]
        assert tool.description
        assert tool.input_schema == DECLARED[name].input_schema
        assert tool.output_schema == DECLARED[name].output_schema


def contract_schemas() -> list[Json]:
    """Every JSON block of the contract's tool specifications, where the contract is at hand."""
    seeds = Path(__file__).parents[4] / "shared/seeds/002_705b6bcc5879a097.txt"
    if not seeds.exists():
        return []
    section = seeds.read_text().split("## 15) Tool specifications")[1].split("### 15.7")[0]
    return [json.loads(block.split("```")[0]) for block in section.split("```json")[1:]]


def test_the_schemas_are_the_contracts_word_for_word_but_for_one_argument() -> None:
    ours: list[Json] = [schemas.SPAN, schemas.HIT]
    for name in ("search", "ask", "open_file", "list_files", "stats"):
        ours += [dict(DECLARED[name].input_schema), dict(DECLARED[name].output_schema or {})]
    for written, served in zip(contract_schemas(), ours, strict=False):
        properties = dict(served.get("properties", {}))
        if served == DECLARED["open_file"].input_schema:
            del properties["chunk_id"]
        ours_alone = {name: part for name, part in served.items() if name != "definitions"}
        assert ours_alone | ({"properties": properties} if properties else {}) == written


async def test_search_finds_prose_by_meaning_and_tells_where_it_stands(corpus: ToolClient) -> None:
    found = await answer(corpus, "search", query="what warns ships when visibility is poor?")
    assert found["index_used"] == "both"
    assert found["indexing_complete"] is True
    assert found["k"] == 10
    best = found["hits"][0]
    assert best["rel_path"] == "docs/guide.md"
    assert best["doc_type"] == "md"
    assert best["rep_type"] == "raw_text"
    assert best["span"]["kind"] == "lines"
    assert "horn" in best["snippet"]


@pytest.mark.parametrize("query", ["rotate lens", "rotate_lens", "get fog signal", "getFogSignal", "get_fog_signal"])
async def test_search_finds_names_in_code_however_they_are_written(corpus: ToolClient, query: str) -> None:
    found = await answer(corpus, "search", query=query, index="code")
    assert found["index_used"] == "code"
    assert found["hits"][0]["rel_path"] == "src/lamp.py"


async def test_auto_leaves_an_index_out_only_by_a_filter(corpus: ToolClient) -> None:
    assert (await answer(corpus, "search", query="getFogSignal()"))["index_used"] == "both"
    assert (await answer(corpus, "search", query="lamp", doc_types=["code"]))["index_used"] == "code"
    assert (await answer(corpus, "search", query="who lights the lamp"))["index_used"] == "both"


async def test_both_indexes_are_searched_together(corpus: ToolClient) -> None:
    found = await answer(corpus, "search", query="lens turns in seconds", index="both", k=5)
    assert found["index_used"] == "both"
    assert {"docs/guide.md", "src/lamp.py"} <= {hit["rel_path"] for hit in found["hits"][:3]}
    scores = [hit["score"] for hit in found["hits"]]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"path_prefix": "docs/"}, {"docs/guide.md", "docs/tides.html"}),
        ({"file_glob": "**/*.html"}, {"docs/tides.html"}),
        ({"file_glob": "*.csv"}, {"ships.csv"}),
        ({"doc_types": ["text"]}, {"notes.txt"}),
        ({"doc_types": ["md", "html"], "path_prefix": "docs/g"}, {"docs/guide.md"}),
        ({"path_prefix": "nowhere/"}, set()),
    ],
)
async def test_filters_narrow_before_the_best_are_chosen(corpus: ToolClient, filters: Json, expected: set[str]) -> None:
    found = await answer(corpus, "search", query="lamp horn boat tide ship", k=1, index="text", **filters)
    assert len(found["hits"]) == min(1, len(expected))
    everything = await answer(corpus, "search", query="lamp horn boat tide ship", k=50, index="text", **filters)
    assert {hit["rel_path"] for hit in everything["hits"]} == expected


async def test_every_citation_names_lines_that_hold_the_snippet(corpus: ToolClient) -> None:
    found = await answer(corpus, "search", query="lamp lens horn water supply", index="both", k=50)
    assert found["hits"]
    for hit in found["hits"]:
        span = hit["span"]
        opened = await answer(
            corpus, "open_file", rel_path=hit["rel_path"], start_line=span["start_line"], end_line=span["end_line"]
        )
        if hit["doc_type"] == "html":
            words = [word.strip("#") for word in hit["snippet"].split()]
            assert all(word in opened["content"] for word in words if word)
        else:
            assert hit["snippet"] in opened["content"]


async def test_ask_answers_with_citations_and_says_that_no_model_wrote_it(corpus: ToolClient) -> None:
    result = await corpus.result("dir2mcp.ask", {"question": "How often does the horn sound in fog?"})
    asked = result.structured_content or {}
    assert "No chat model is configured" in asked["answer"]
    assert "every two minutes" in asked["answer"]
    assert "[docs/guide.md:L" in asked["answer"]
    assert texts_of(result) == [asked["answer"]]
    cited = {citation["chunk_id"] for citation in asked["citations"]}
    assert cited
    assert cited <= {hit["chunk_id"] for hit in asked["hits"]}


async def test_ask_can_return_the_chunks_alone(corpus: ToolClient) -> None:
    asked = await answer(corpus, "ask", question="when is the lamp lit?", mode="search_only", k=2)
    assert "answer" not in asked
    assert asked["citations"] == []
    assert 1 <= len(asked["hits"]) <= 2


async def test_open_file_returns_exact_lines(corpus: ToolClient) -> None:
    opened = await answer(corpus, "open_file", rel_path="docs/guide.md", start_line=5, end_line=5)
    assert opened == {
        "rel_path": "docs/guide.md",
        "doc_type": "md",
        "span": {"kind": "lines", "start_line": 5, "end_line": 5},
        "content": "## Lamp",
        "truncated": False,
    }


async def test_open_file_begins_at_the_beginning_and_says_when_there_is_more(corpus: ToolClient) -> None:
    opened = await answer(corpus, "open_file", rel_path="src/lamp.py", max_chars=200)
    assert opened["truncated"] is True
    assert len(opened["content"]) == 200
    assert opened["content"].startswith('"""Drives the lamp."""')


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"rel_path": "../outside.txt"}, "PATH_OUTSIDE_ROOT"),
        ({"rel_path": "docs/../../outside.txt"}, "PATH_OUTSIDE_ROOT"),
        ({"rel_path": "missing.md"}, "FILE_NOT_FOUND"),
        ({"rel_path": "docs"}, "FILE_NOT_FOUND"),
        ({"rel_path": ".env"}, "FORBIDDEN"),
        ({"rel_path": ".dir2mcp/secret.token"}, "FORBIDDEN"),
        ({"rel_path": "docs/guide.md", "page": 1}, "DOC_TYPE_UNSUPPORTED"),
        ({"rel_path": "docs/guide.md", "start_ms": 0}, "DOC_TYPE_UNSUPPORTED"),
        ({"rel_path": "docs/guide.md", "start_line": 9, "end_line": 3}, "INVALID_RANGE"),
        ({"rel_path": "docs/guide.md", "start_line": 900}, "INVALID_RANGE"),
        ({"rel_path": "docs/guide.md", "max_chars": 10}, "INVALID_RANGE"),
        ({"rel_path": "docs/guide.md", "start_line": 0}, "INVALID_RANGE"),
        ({}, "MISSING_FIELD"),
        ({"rel_path": 7}, "INVALID_FIELD"),
        ({"rel_path": "docs/guide.md", "start_line": True}, "INVALID_FIELD"),
        ({"rel_path": "docs/guide.md", "unknown": 1}, "INVALID_FIELD"),
        ({"rel_path": ""}, "INVALID_FIELD"),
        ({"rel_path": "a\0b"}, "FILE_NOT_FOUND"),
    ],
)
async def test_open_file_refuses_with_the_code_of_the_contract(corpus: ToolClient, arguments: Json, code: str) -> None:
    assert (await refusal(corpus, "open_file", **arguments))["code"] == code


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("search", {}, "MISSING_FIELD"),
        ("search", {"query": ""}, "INVALID_FIELD"),
        ("search", {"query": "   "}, "INVALID_FIELD"),
        ("search", {"query": "x", "k": 0}, "INVALID_RANGE"),
        ("search", {"query": "x", "k": 51}, "INVALID_RANGE"),
        ("search", {"query": "x", "k": "ten"}, "INVALID_FIELD"),
        ("search", {"query": "x", "index": "all"}, "INVALID_FIELD"),
        ("search", {"query": "x", "file_glob": "[a"}, "INVALID_FIELD"),
        ("search", {"query": "x", "doc_types": "md"}, "INVALID_FIELD"),
        ("ask", {}, "MISSING_FIELD"),
        ("ask", {"question": "x", "mode": "guess"}, "INVALID_FIELD"),
        ("list_files", {"limit": 0}, "INVALID_RANGE"),
        ("list_files", {"limit": 5001}, "INVALID_RANGE"),
        ("list_files", {"offset": -1}, "INVALID_RANGE"),
        ("list_files", {"glob": "{a"}, "INVALID_FIELD"),
        ("stats", {"verbose": True}, "INVALID_FIELD"),
    ],
)
async def test_bad_arguments_are_told_by_code(corpus: ToolClient, tool: str, arguments: Json, code: str) -> None:
    error = await refusal(corpus, tool, **arguments)
    assert error["code"] == code
    assert error["retryable"] is False


async def test_files_are_listed_in_order_and_by_pages(corpus: ToolClient) -> None:
    everything = await answer(corpus, "list_files")
    paths = [file["rel_path"] for file in everything["files"]]
    assert paths == ["docs/guide.md", "docs/tides.html", "notes.txt", "ships.csv", "src/lamp.py"]
    assert everything["total"] == 5
    assert (everything["limit"], everything["offset"]) == (200, 0)
    page = await answer(corpus, "list_files", limit=2, offset=1)
    assert [file["rel_path"] for file in page["files"]] == paths[1:3]
    assert page["total"] == 5
    guide = everything["files"][0]
    assert (guide["doc_type"], guide["status"], guide["deleted"]) == ("md", "ok", False)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"path_prefix": "docs/"}, ["docs/guide.md", "docs/tides.html"]),
        ({"glob": "*.py"}, ["src/lamp.py"]),
        ({"glob": "**/*.md"}, ["docs/guide.md"]),
        ({"path_prefix": "s", "glob": "*.csv"}, ["ships.csv"]),
        ({"path_prefix": "%"}, []),
    ],
)
async def test_listings_are_filtered(corpus: ToolClient, filters: Json, expected: list[str]) -> None:
    listed = await answer(corpus, "list_files", **filters)
    assert [file["rel_path"] for file in listed["files"]] == expected
    assert listed["total"] == len(expected)


async def test_stats_tell_where_it_is_how_far_it_is_and_with_what(corpus: ToolClient, served: CorpusProcess) -> None:
    stats = await answer(corpus, "stats")
    assert stats["root"] == str(served.directory)
    assert stats["state_dir"] == str(served.state_dir)
    assert stats["protocol_version"] == "2025-11-25"
    assert stats["indexing"]["running"] is False
    assert stats["indexing"]["indexed"] == 5
    assert stats["indexing"]["embedded_ok"] == stats["indexing"]["chunks_total"] > 0
    assert stats["models"]["chat"] == "extractive"


async def test_the_server_names_itself_as_the_contract_says(corpus: ToolClient) -> None:
    assert corpus.mcp.server_info.name == "dir2mcp"
    assert corpus.mcp.server_info.title == "dir2mcp: Directory RAG MCP Server"
    assert corpus.mcp.server_info.version == "0.4.0"
    assert corpus.mcp.instructions == "Use tools/list then tools/call. Results include citations."


@pytest.mark.parametrize("hostile", ["../" * 40 + "etc/passwd", "/etc/passwd", "docs//../..//x", "a" * 5000])
async def test_no_path_leads_outside(corpus: ToolClient, hostile: str) -> None:
    error = await refusal(corpus, "open_file", rel_path=hostile)
    assert error["code"] in ("PATH_OUTSIDE_ROOT", "FILE_NOT_FOUND")
    assert "root:" not in error["message"]


@pytest.mark.parametrize("filters", [{"file_glob": "**/*.py"}, {"path_prefix": "src/"}, {"doc_types": ["code"]}])
async def test_auto_looks_where_the_filters_leave_something(corpus: ToolClient, filters: Json) -> None:
    found = await answer(corpus, "search", query="turn the lens once", **filters)
    assert found["index_used"] == "code"
    assert found["hits"][0]["rel_path"] == "src/lamp.py"


async def test_auto_looks_into_both_when_the_filter_names_code_and_prose(corpus: ToolClient) -> None:
    found = await answer(corpus, "search", query="lens turns", doc_types=["code", "md"])
    assert found["index_used"] == "both"


async def test_an_answer_has_no_sentence_without_a_word_of_the_question(corpus: ToolClient) -> None:
    asked = await answer(corpus, "ask", question="What does the supply boat bring?")
    lines = asked["answer"].splitlines()[1:]
    assert "oil and bread" in lines[0] or any("oil and bread" in line for line in lines)
    assert all(any(word in line.lower() for word in ("supply", "boat", "bring")) for line in lines)
