"""Arguments and results of the three tools have the fields that the contract names."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest

from armarium.capabilities.gateway.contract import CONTRACT_VERSION, DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.foundation.telemetry import log_as_json
from support.rag_fakes import ANNA, FakeUpstream, hit, resource, rig

Json = dict[str, Any]


def wiki(**more: Any) -> FakeUpstream:
    hits = [hit(f"h{number}", "a", 1.0, chunk=f"The lamp number {number} is lit at dusk.") for number in range(9)]
    return FakeUpstream([resource("a")], hits, **more)


@pytest.mark.contract("G3.1-5")
@pytest.mark.parametrize("mode", ["username", "api_key", "bearer", "oauth", "capability", "none"])
async def test_a_resource_has_one_of_the_six_auth_modes(mode: str) -> None:
    needs_secret = mode not in ("username", "none")
    described = resource("a", authMode=mode, authRequired=needs_secret)
    served = rig({"one": FakeUpstream([described, resource("b", authMode="magic")])})
    known, unknown = (await served.answer(ANNA, DISCOVER))["results"]["resources"]
    assert (known["authMode"], known["status"] == "ready") == (mode, not needs_secret)
    assert unknown["authMode"] == "none"


@pytest.mark.contract("G3.2-1", "G3.3-1")
@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
async def test_the_query_is_required(tool: str) -> None:
    upstream = wiki(answers=True)
    refused = await rig({"one": upstream}).refusal(ANNA, tool, sources=["one:a"])
    assert "query" in refused["message"]
    assert upstream.asked == []


@pytest.mark.contract("G3.2-6", "G3.3-5")
async def test_a_hit_and_a_citation_have_every_field_of_the_contract() -> None:
    sent: Json = {"id": "h", "score": 0.5, "snippet": "the lamp", "chunk": "the lamp is lit", "title": "Lamp"}
    sent |= {"uri": "wiki://a/lamp", "sourceId": "n-1", "provenance": {"page": 3}, "timestamp": "2026-01-01T00:00:00Z"}
    cited = {"uri": "wiki://a/lamp", "title": "Lamp", "offsets": {"start": 0, "end": 4}}
    upstream = FakeUpstream([resource("a")], [sent | {"resourceId": "a"}], answers=True)
    upstream.say(SYNTHESIZED, {"results": {"answer": "at dusk", "citations": [cited | {"resourceId": "a"}]}})
    served = rig({"one": upstream})
    (found,) = await served.hits(ANNA, "one:a")
    assert found == sent | {
        "score": found["score"],
        "resourceId": "one:a",
        "server": "one",
        "serverRank": 1,
        "serverScore": 0.5,
    }
    results = (await served.answer(ANNA, SYNTHESIZED, query="q", sources=["one:a"]))["results"]
    assert results == {"answer": "at dusk", "citations": [cited | {"resourceId": "one:a", "server": "one"}]}


@pytest.mark.contract("G3.2-7", "G3.2-8", "G5.1-8", "G15-1")
async def test_statistics_and_metadata_of_a_search() -> None:
    upstream = FakeUpstream([resource("a")])
    upstream.say(RAW_RESULTS, {"results": {"hits": [hit("h", "a", 1.0)], "stats": {"total_found": 41}}})
    answer = await rig({"one": upstream}).answer(ANNA, RAW_RESULTS, query="q", sources=["one:a"], top_k=3)
    stats, meta = answer["results"]["stats"], answer["meta_data"]
    assert stats == {"total_found": 41, "top_k": 3, "elapsed_ms": stats["elapsed_ms"]}
    assert 0 <= stats["elapsed_ms"] <= meta["elapsed_ms"]
    assert meta["provider"] == "armarium"
    assert meta["servers"]["one"] == {"hits": 1, "elapsed_ms": meta["servers"]["one"]["elapsed_ms"]}
    assert answer["contract_version"] == meta["contract_version"] == CONTRACT_VERSION == "rag-tools-v1"


@pytest.mark.contract("G3.3-2")
async def test_an_answer_is_written_from_as_many_hits_as_asked_for() -> None:
    for top_k in (1, 2):
        served = rig({"one": wiki()})
        asked: Json = {"query": "When is the lamp lit?", "sources": ["one:a"], "top_k": top_k}
        answer = await served.answer(ANNA, SYNTHESIZED, **asked)
        assert len(answer["results"]["citations"]) == top_k


@pytest.mark.contract("G3.3-3")
async def test_the_parameters_of_an_answer_reach_its_server() -> None:
    upstream = wiki(answers=True)
    params = {"model": "m-1", "style": "short", "max_chars": 900}
    asked: Json = {"query": "q", "sources": ["one:a"], "top_k": 5, "synthesis_params": params}
    await rig({"one": upstream}).answer(ANNA, SYNTHESIZED, **asked)
    (call,) = upstream.calls_of(SYNTHESIZED)
    assert (call["query"], call["sources"], call["top_k"], call["synthesis_params"]) == ("q", ["a"], 5, params)


@pytest.mark.contract("G5.7-1")
async def test_the_log_of_a_call_names_user_server_sources_and_outcome(capfd: pytest.CaptureFixture[str]) -> None:
    upstream = wiki()
    log_as_json("info")
    try:
        served = rig({"one": upstream})
        await served.answer(ANNA, RAW_RESULTS, query="q", sources=["one:a"])
        upstream.refuse_with(RAW_RESULTS, "unauthorized_source")
        await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a"])
    finally:
        logging.getLogger().handlers.clear()
    lines = [orjson.loads(line) for line in capfd.readouterr().err.splitlines()]
    asked = [line for line in lines if line.get("tool") == RAW_RESULTS and line["msg"] == "asked a server"]
    assert [(line["username"], line["server"], line["sources"], line["outcome"]) for line in asked] == [
        ("anna", "one", ["a"], "success"),
        ("anna", "one", ["a"], "unauthorized_source"),
    ]
