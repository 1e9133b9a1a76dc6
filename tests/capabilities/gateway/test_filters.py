"""Search filters: one rule for all sources, and filters that could not be applied are reported."""

from __future__ import annotations

from typing import Any

import pytest

from armarium.capabilities.gateway.arguments import source_filters
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.rag_server import rag_server_tools
from armarium.foundation.errors import InvalidArgument
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


@pytest.mark.contract("G3.2-4")
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


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ({"date_from": "2024-05-31"}, "2024-05-31T00:00:00+00:00", None),
        ({"date_to": "2024-05-31"}, None, "2024-05-31T23:59:59.999999+00:00"),
        ({"date_to": "20240531"}, None, "2024-05-31T23:59:59.999999+00:00"),
        ({"date_to": "2024-05-31T12:00:00+02:00"}, None, "2024-05-31T10:00:00+00:00"),
        ({"date_from": "9999-12-31", "date_to": "9999-12-31"}, "9999-12-31T00:00:00+00:00", None),
    ],
)
def test_a_date_without_a_time_is_the_whole_day_in_utc(given: Json, first: str | None, last: str | None) -> None:
    filters = source_filters(given)
    assert (filters.date_from and filters.date_from.isoformat()) == first
    if last is not None:
        assert filters.date_to is not None
        assert filters.date_to.isoformat() == last


def test_a_moment_outside_of_all_years_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        source_filters({"date_from": "0001-01-01T00:00:00+14:00"})


async def test_results_of_an_incomplete_index_say_so() -> None:
    own, upstream = corpus(), wiki()
    own.incomplete = "indexing is still under way"
    upstream.say(RAW_RESULTS, {"results": {"hits": []}, "meta_data": {"incomplete": {"a": "later", "b": "not asked"}}})
    served = rig({"one": upstream}, own=[own])
    asked: Json = {"query": "lamp", "sources": ["armarium:corpus", "one:a"]}
    meta = (await served.answer(ANNA, RAW_RESULTS, **asked))["meta_data"]
    assert sorted(meta["incomplete"]) == ["armarium:corpus", "one:a"]
    assert meta["servers"]["armarium"]["incomplete"] == {"corpus": "indexing is still under way"}
    assert meta["servers"]["one"]["incomplete"] == {"a": "later"}
    written = (await served.answer(ANNA, SYNTHESIZED, **asked))["meta_data"]
    assert "armarium:corpus" in written["incomplete"]
    own.incomplete = None
    assert (
        "incomplete"
        not in (await served.answer(ANNA, RAW_RESULTS, query="q", sources=["armarium:corpus"]))["meta_data"]
    )


async def test_a_list_of_sources_says_whose_index_is_incomplete() -> None:
    own, upstream = corpus(), FakeUpstream()
    own.incomplete = "indexing is still under way"
    listing = {"resources": [resource("a"), resource("b"), resource("law", groups=["legal"])]}
    upstream.say(DISCOVER, {"results": listing, "meta_data": {"incomplete": {"a": "later", "law": "later", "x": "y"}}})
    meta = (await rig({"one": upstream}, own=[own]).answer(ANNA, DISCOVER))["meta_data"]
    assert meta["incomplete"] == ["armarium:corpus", "one:a"], "and nothing of sources that she may not use"
    assert meta["servers"]["one"]["incomplete"] == {"a": "later"}
    sources = Sources()
    sources.register(own)
    tools = [("rag-server", tool) for tool in rag_server_tools(sources)]
    alone = Dispatcher(tools, metrics=Metrics(), audit=None, default_deadline_s=None, check_answers=True)
    told = (await alone.outcome(Caller(ANNA, "test"), DISCOVER, {"username": "anna"})).result["structuredContent"]
    assert told["meta_data"]["incomplete"] == {"files": "indexing is still under way"}


async def test_an_answer_that_a_server_writes_from_an_incomplete_index_says_so() -> None:
    upstream = FakeUpstream([resource("a")], answers=True)
    results = {"results": {"answer": "At dusk."}, "meta_data": {"incomplete": {"a": "later", "b": "not asked"}}}
    upstream.say(SYNTHESIZED, results)
    meta = (await rig({"one": upstream}).answer(ANNA, SYNTHESIZED, query="lamp", sources=["one:a"]))["meta_data"]
    assert meta["incomplete"] == ["one:a"]
    assert meta["servers"]["one"]["incomplete"] == {"a": "later"}
