"""Answers from several sources as streams of events, over real HTTP against a whole server."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from emulators import OpenAIEmulator, Truncated
from support.api_server import STREAM, ApiServer, api_server, streamed, until_indexed
from support.corpus_calls import write_lighthouse
from support.gateway_server import rag_entry
from support.waiting import eventually

Json = dict[str, Any]
QUERY = {"query": "How often does the horn sound in fog?"}
WHOLE = ["progress", "hits", "progress", "text", "citations", "done"]


@asynccontextmanager
async def serving(base: Path, **gateway: Any) -> AsyncGenerator[ApiServer]:
    """A corpus, and two servers behind the gateway, one of which fails."""
    root, config = base / "lighthouse", base / "config"
    write_lighthouse(root)
    (config / "overrides").mkdir(parents=True)
    servers = {"wiki": rag_entry("pages"), "broken": rag_entry("pages", "--failing")}
    (config / "overrides/rag-mcp.json").write_text(json.dumps(servers))
    sections = {
        "corpus": {"root": str(root), "ingest": {"watch": False}},
        "gateway": {"config_dir": str(config), "watch": False, **gateway},
    }
    async with api_server(base, **sections) as served:
        async with served.client() as http:
            await until_indexed(http)
            await eventually(lambda: are_there(http), what="the servers are connected")
        yield served


async def are_there(http: httpx.AsyncClient) -> bool:
    listed = (await http.get("/config")).text
    return "wiki" in listed


async def own_source(http: httpx.AsyncClient) -> str:
    """The id of the corpus as a source."""
    asked = (await http.post("/rag/ask", json=QUERY)).json()
    return next(hit["resourceId"] for hit in asked["results"]["hits"] if hit["server"] == "armarium")


def kinds_of(events: list[tuple[str, Json]]) -> list[str]:
    return [kind for place, (kind, _) in enumerate(events) if place == 0 or events[place - 1][0] != kind]


async def test_hits_of_all_sources_come_first_and_a_source_that_fails_can_be_tried_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        own = await own_source(http)
        body = {**QUERY, "sources": [own, "wiki:pages", "broken:pages"]}
        events = await streamed(http, "/rag/ask", body)
        whole = (await http.post("/rag/ask", json=body)).json()
        failure = next(data for kind, data in events if kind == "source_failed")
        again = await http.post("/rag/search", json={**QUERY, **failure["retry"]})
        await eventually(lambda: len(served.calls("rag_ask")) >= 3)
        recorded = served.calls("rag_ask")
    assert [kind for kind in kinds_of(events) if kind != "source_failed"][-5:] == WHOLE[1:]
    assert (failure["source"], failure["server"]) == ("broken:pages", "broken")
    assert {"code", "message", "retryable"} <= failure.keys()
    assert failure["retry"] == {"sources": ["broken:pages"]}
    assert again.status_code >= 400
    by_kind = dict(events)
    results = by_kind["done"]["results"]
    assert {hit["server"] for hit in by_kind["hits"]["hits"]} == {"armarium", "wiki"}
    assert results["hits"] == by_kind["hits"]["hits"]
    assert results["answer"] == "".join(data["text"] for kind, data in events if kind == "text")
    assert results["answer"] == whole["results"]["answer"]
    assert results["citations"] == by_kind["citations"]["citations"]
    assert by_kind["done"]["meta_data"]["errors"][0]["source"] == "broken:pages"
    assert all("horn" not in record.arguments for record in recorded)
    assert "success" in {record.outcome for record in recorded if record.path is None}


async def test_an_answer_of_a_server_is_one_piece(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        events = await streamed(http, "/rag/ask", {**QUERY, "sources": ["wiki:pages"]})
        contract = await streamed(http, "/rag/synthesize", {**QUERY, "sources": ["wiki:pages"]})
    assert kinds_of(events) == ["progress", "text", "citations", "done"] == kinds_of(contract)
    assert events[-1][1]["results"]["hits"] == []
    assert "hits" not in contract[-1][1]["results"]
    assert dict(events)["text"]["text"] == events[-1][1]["results"]["answer"]


async def test_the_text_of_a_chat_model_is_streamed_and_replaced_when_it_breaks_off(tmp_path: Path) -> None:
    with OpenAIEmulator("key-7") as emulator:
        answers = {"base_url": emulator.url, "api_key": "key-7", "model": "llama3.2"}
        async with serving(tmp_path, answers=answers) as served, served.client() as http:
            own = await own_source(http)
            body = {**QUERY, "sources": [own], "earlier": ["What warns ships?"]}
            events = await streamed(http, "/rag/ask", body)
            emulator.faults += [Truncated(after_events=3)] * 4
            broken = await streamed(http, "/rag/ask", {**QUERY, "sources": [own]})
            short = {**QUERY, "sources": [own], "synthesis_params": {"max_chars": 10}}
            cut = await streamed(http, "/rag/ask", short)
    done = events[-1][1]
    assert kinds_of(events)[-5:] == WHOLE[1:]
    # The emulated model has one sentence for a prompt without our citations, and sends it in two pieces.
    assert sum(kind == "text" for kind, _ in events) == 2
    assert "".join(data["text"] for kind, data in events if kind == "text").strip() == done["results"]["answer"]
    assert done["meta_data"]["model"] == "llama3.2"
    assert done["results"]["searched_for"] == "The chunks do not say."
    assert broken[-1][1]["meta_data"]["model"] == "extractive"
    assert "".join(data["text"] for kind, data in broken if kind == "text").endswith(broken[-1][1]["results"]["answer"])
    assert len("".join(data["text"] for kind, data in cut if kind == "text")) <= 10


async def test_sources_that_nobody_has_are_an_error_with_a_status(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        answer = await http.post("/rag/ask", json={**QUERY, "sources": ["nowhere:pages"]}, headers=STREAM)
        blank = await http.post("/rag/ask", json={"query": " "}, headers=STREAM)
    assert answer.status_code >= 400
    assert answer.headers["content-type"] == "application/json"
    assert blank.status_code == 400
