"""Search filters: one rule for all sources, and filters that could not be applied are reported."""

from __future__ import annotations

from typing import Any

import pytest

from armarium.capabilities.gateway.contract import RAW_RESULTS
from armarium.capabilities.gateway.rag_server import rag_server_tools
from armarium.foundation.telemetry import Metrics
from armarium.retrieval.sources import Sources
from armarium.surfaces.dispatch import Caller, Dispatcher
from support.rag_fakes import ANNA, FakeSource, FakeUpstream, Json, hit, own_hit, resource, rig

WISHES: list[Json] = [
    {"date_from": "2000-01-01"},
    {"date_to": "2024-05-31T12:00:00Z"},
    {"tags": ["x"]},
    {"owners": ["me"], "tags": []},
]


def corpus() -> FakeSource:
    return FakeSource("corpus", {"*": ["corpus"]}, [own_hit("guide", "corpus", "the lamp is lit at dusk")])


def wiki() -> FakeUpstream:
    return FakeUpstream([resource("a")], [hit("h", "a", 1.0)])


def wished(filters: Json) -> list[str]:
    return [name for name, wish in filters.items() if wish]


@pytest.mark.parametrize("filters", WISHES)
async def test_a_source_that_cannot_judge_a_filter_gives_nothing_and_says_so(filters: Json) -> None:
    served = rig({"one": wiki()}, own=[corpus()])
    asked: Json = {"query": "lamp", "sources": ["armarium:corpus", "one:a"]}
    found = await served.answer(ANNA, RAW_RESULTS, **asked, filters=filters)
    assert [each["server"] for each in found["results"]["hits"]] == ["one"]
    assert found["meta_data"]["servers"]["armarium"]["unmet_filters"] == wished(filters)
    assert "unmet_filters" not in found["meta_data"]["servers"]["one"]


@pytest.mark.parametrize("filters", WISHES)
async def test_our_own_sources_and_the_server_over_a_directory_agree(filters: Json) -> None:
    sources = Sources()
    sources.register(corpus())
    tools = [("rag-server", tool) for tool in rag_server_tools(sources)]
    alone = Dispatcher(tools, metrics=Metrics(), audit=None, default_deadline_s=None, check_answers=True)
    asked: Json = {"username": "anna", "query": "lamp", "sources": ["files"], "filters": filters}
    told = (await alone.outcome(Caller(ANNA, "test"), RAW_RESULTS, asked)).result["structuredContent"]
    assert (told["results"]["hits"], told["meta_data"]["unmet_filters"]) == ([], wished(filters))


async def test_filters_that_ask_for_nothing_leave_everything() -> None:
    served = rig({}, own=[corpus()])
    assert await served.hits(ANNA, "armarium:corpus", filters={"tags": [], "owners": []})


async def test_a_server_that_takes_no_filters_is_not_asked_to_judge_any() -> None:
    upstream = wiki()
    for tool in upstream.offered:
        tool.input_schema["properties"].pop("filters", None)
    served = rig({"one": upstream})
    found = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a"], filters={"owners": ["me"]})
    assert found["results"]["hits"] == []
    assert found["meta_data"]["servers"]["one"]["unmet_filters"] == ["owners"]
    assert upstream.calls_of(RAW_RESULTS) == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["tags"], ["tags"]),
        (["tags", "nonsense", 7, {}], ["tags"]),
        ("tags", None),
        ([], None),
    ],
)
async def test_what_a_server_could_not_judge_is_passed_on(said: Any, told: list[str] | None) -> None:
    upstream = wiki()
    upstream.say(RAW_RESULTS, {"results": {"hits": []}, "meta_data": {"unmet_filters": said}})
    served = rig({"one": upstream})
    found = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a"], filters={"tags": ["x"]})
    assert found["meta_data"]["servers"]["one"].get("unmet_filters") == told


@pytest.mark.parametrize("name", ["date_from", "date_to"])
@pytest.mark.parametrize("date", ["nonsense", "", "2024-13-01", "31.5.2024"])
async def test_a_date_that_is_none_is_refused_wherever_it_is_said(name: str, date: str) -> None:
    upstream = wiki()
    served = rig({"one": upstream})
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["a"], filters={name: date})
    assert refused["code"] == "INVALID_ARGUMENT"
    assert f"filters.{name}" in refused["message"]
    assert upstream.calls_of(RAW_RESULTS) == []
    sources = Sources()
    sources.register(corpus())
    tools = [("rag-server", tool) for tool in rag_server_tools(sources)]
    alone = Dispatcher(tools, metrics=Metrics(), audit=None, default_deadline_s=None, check_answers=True)
    asked: Json = {"username": "anna", "query": "lamp", "sources": ["files"], "filters": {name: date}}
    told = (await alone.outcome(Caller(ANNA, "test"), RAW_RESULTS, asked)).result["structuredContent"]
    assert told["results"]["error"]["code"] == "INVALID_ARGUMENT"
