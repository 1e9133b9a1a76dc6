"""Discovery: sources are merged over servers, completed by the configuration, filtered and paged."""

from __future__ import annotations

from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS
from armarium.capabilities.gateway.errors import UpstreamUnavailable
from armarium.foundation.tools import Relayed
from support.rag_fakes import ANNA, FakeSource, FakeUpstream, resource, rig

Json = dict[str, Any]


class Dead(FakeUpstream):
    """A server that is not there."""

    async def call(self, tool: str, arguments: Any, *, timeout_s: float | None = None) -> Relayed:
        raise UpstreamUnavailable("dead cannot be reached")


@pytest.mark.contract("G4-8", "G5.1-3")
async def test_resources_of_all_servers_come_in_the_order_of_their_entries() -> None:
    served = rig(
        {"zoo": FakeUpstream([resource("z")]), "abc": FakeUpstream([resource("a")])},
        {"zoo": {"ui": {"order": 1}}, "abc": {"ui": {"order": 2}}},
        own=[FakeSource("corpus", {"*": ["corpus"]})],
    )
    assert await served.ids(ANNA) == ["armarium:corpus", "zoo:z", "abc:a"]


@pytest.mark.contract("G3.1-4")
async def test_a_resource_is_told_with_every_field_of_the_contract() -> None:
    full = resource(
        "law",
        sourceId="n-1",
        groups=["users"],
        scopes=["read"],
        lastIndexed="2026-01-01T00:00:00Z",
        counts={"docs": 3, "chunks": 9},
    )
    served = rig({"one": FakeUpstream([full])})
    (told,) = (await served.answer(ANNA, DISCOVER))["results"]["resources"]
    assert told == full | {"id": "one:law", "server": "one", "defaultSelected": False, "status": "ready"}


@pytest.mark.contract("G2-4")
async def test_the_registry_completes_what_a_server_leaves_out() -> None:
    hint = {"id": "law", "name": "Legal Docs", "authMode": "capability", "scopes": ["read"], "defaultSelected": True}
    served = rig({"one": FakeUpstream([resource("law")])}, {"one": {"dataSources": [hint]}})
    (told,) = (await served.answer(ANNA, DISCOVER))["results"]["resources"]
    assert (told["name"], told["authMode"], told["authRequired"]) == ("Legal Docs", "capability", True)
    assert (told["scopes"], told["defaultSelected"], told["status"]) == (["read"], True, "action_required")


@pytest.mark.contract("G4-4")
async def test_a_source_that_only_the_registry_knows_is_not_listed() -> None:
    served = rig({"one": FakeUpstream([resource("a")])}, {"one": {"dataSources": [{"id": "gone"}]}})
    assert await served.ids(ANNA) == ["one:a"]
    assert (await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["gone"]))["code"] == "invalid_source"


@pytest.mark.contract("G5.1-2")
async def test_a_server_that_cannot_tell_its_sources_has_those_of_the_registry() -> None:
    upstream = FakeUpstream(hits=[{"id": "h", "score": 1, "resourceId": "a", "snippet": "s"}], without=[DISCOVER])
    served = rig({"one": upstream}, {"one": {"dataSources": [{"id": "a", "name": "A"}]}})
    assert await served.ids(ANNA) == ["one:a"]
    assert [each["id"] for each in await served.hits(ANNA, "a")] == ["h"]


async def test_a_dead_server_is_told_and_the_others_are_listed() -> None:
    served = rig({"dead": Dead(), "one": FakeUpstream([resource("a")])})
    answer = await served.answer(ANNA, DISCOVER)
    assert [each["id"] for each in answer["results"]["resources"]] == ["one:a"]
    assert [(error["server"], error["code"]) for error in answer["meta_data"]["errors"]] == [
        ("dead", "backend_unavailable")
    ]


async def test_an_id_that_nobody_heard_of_is_not_blamed_on_a_server_that_does_not_answer() -> None:
    served = rig({"dead": Dead(), "one": FakeUpstream([resource("a")])})
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["unheard-of"])
    assert (refused["code"], refused["retryable"]) == ("invalid_source", False)
    assert "`dead`" in refused["hint"]


async def test_a_bare_id_that_a_server_told_before_it_died_is_unavailable_and_not_invalid() -> None:
    served = rig({"one": FakeUpstream([resource("a")])}, discovery_kept_s=0)
    assert await served.ids(ANNA) == ["one:a"]
    dead = Dead()
    dead.spec = served.members["one"].spec
    served.members["one"] = dead
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["a"])
    assert (refused["code"], refused["retryable"]) == ("backend_unavailable", True)


@pytest.mark.contract("G5.1-4")
async def test_entries_that_are_no_resources_are_dropped_and_counted() -> None:
    wrong = [None, 7, {}, {"id": 5}, {"id": ""}, {"id": "x" * 5000}, resource("a"), resource("a", name="again")]
    served = rig({"one": FakeUpstream(wrong)})
    answer = await served.answer(ANNA, DISCOVER)
    assert [each["name"] for each in answer["results"]["resources"]] == ["A"]
    assert answer["meta_data"]["servers"]["one"]["dropped"] == 7


@pytest.mark.contract("G5.1-4")
async def test_missing_fields_are_filled_in() -> None:
    served = rig({"one": FakeUpstream([{"id": "a"}, {"id": "b", "authMode": "bearer"}])})
    first, second = (await served.answer(ANNA, DISCOVER))["results"]["resources"]
    assert (first["name"], first["sourceType"], first["authRequired"]) == ("a", "unknown", False)
    assert (second["authRequired"], second["status"]) == (True, "action_required")


@pytest.mark.contract("G3.1-3", "G3.1-6")
async def test_pages_follow_each_other_without_a_gap() -> None:
    served = rig({"one": FakeUpstream([resource(f"r{n:02}") for n in range(25)])})
    seen: list[str] = []
    for page in (1, 2, 3, 4):
        answer = await served.answer(ANNA, DISCOVER, filters={"page": page, "page_size": 10})
        assert answer["results"]["paging"] == {"page": page, "page_size": 10, "total": 25}
        seen += [each["id"] for each in answer["results"]["resources"]]
    assert seen == [f"one:r{n:02}" for n in range(25)]


@pytest.mark.contract("G3.1-1")
async def test_types_and_words_narrow_the_list_even_where_a_server_ignores_them() -> None:
    served = rig({"one": FakeUpstream([resource("a", sourceType="Wiki"), resource("b", sourceType="s3")])})
    assert await served.ids(ANNA, types=["wiki"]) == ["one:a"]
    assert await served.ids(ANNA, search=" B ") == ["one:b"]


@pytest.mark.contract("G3.1-2")
async def test_tags_are_for_the_server_to_know() -> None:
    upstream = FakeUpstream([resource("a", tags=["hr"]), resource("b", tags=["it"]), resource("c")])
    served = rig({"one": upstream}, own=[FakeSource("corpus", {"*": ["corpus"]})])
    assert await served.ids(ANNA, tags=["hr"]) == ["one:a", "one:c"]
    assert upstream.calls_of(DISCOVER)[0]["filters"]["tags"] == ["hr"]


async def test_every_page_of_a_server_that_pages_is_asked_for() -> None:
    everything = [resource(f"r{n}") for n in range(1200)]

    async def paged(asked: Json) -> Json:
        page, size = asked["filters"]["page"], asked["filters"]["page_size"]
        part = everything[(page - 1) * size : page * size]
        return {"results": {"resources": part, "paging": {"page": page, "page_size": size, "total": len(everything)}}}

    upstream = FakeUpstream()
    upstream.handlers[DISCOVER] = paged
    served = rig({"one": upstream})
    answer = await served.answer(ANNA, DISCOVER)
    assert answer["results"]["paging"]["total"] == 1200


async def test_a_server_that_promises_ever_more_is_not_asked_for_ever() -> None:
    upstream = FakeUpstream([resource("a")])
    upstream.say(DISCOVER, {"results": {"resources": [resource("a")], "paging": {"total": 10**9}}})
    served = rig({"one": upstream})
    assert await served.ids(ANNA) == ["one:a"]
    assert len(upstream.asked) == 2


@pytest.mark.contract("G1-5", "G5.3-1", "G5.3-2", "G6-2", "G11-1")
async def test_the_configuration_tells_servers_with_their_sources_as_the_contract_has_it() -> None:
    entry = {
        "ui": {"icon": "book", "displayName": "Docs RAG"},
        "dataSources": [
            {"id": "handbook", "name": "Employee Handbook", "defaultSelected": True},
            {"id": "legal", "name": "Legal Docs", "authMode": "bearer"},
            {"id": "board", "groups": ["board"]},
        ],
    }
    upstream = FakeUpstream([resource("handbook"), resource("legal"), resource("board")])
    served = rig({"docsRag": upstream, "dead": Dead()}, {"docsRag": entry, "dead": entry})
    config = await served.answer(ANNA, "rag_config")
    docs = next(each for each in config["rag_servers"] if each["server"] == "docsRag")
    assert (docs["displayName"], docs["icon"], docs["status"]) == ("Docs RAG", "book", "ready")
    shown = [
        {name: each[name] for name in ("id", "name", "authRequired", "selected", "status")} for each in docs["sources"]
    ]
    assert shown == [
        {"id": "handbook", "name": "Employee Handbook", "authRequired": False, "selected": True, "status": "ready"},
        {"id": "legal", "name": "Legal Docs", "authRequired": True, "selected": False, "status": "action_required"},
    ]
    dead = next(each for each in config["rag_servers"] if each["server"] == "dead")
    assert [(each["id"], each["status"]) for each in dead["sources"]] == [
        ("handbook", "unavailable"),
        ("legal", "unavailable"),
    ]
    assert [(each["server"], each["id"]) for each in config["data_sources"]] == [
        ("docsRag", "handbook"),
        ("docsRag", "legal"),
    ]


@pytest.mark.contract("G3.1-7", "G14-2")
async def test_how_a_server_answers_by_default_is_told_with_its_sources() -> None:
    upstream = FakeUpstream()
    told = {"model": "m-1", "style": 7, "max_chars": 900, "temperature": 2}
    upstream.say(DISCOVER, {"results": {"resources": [resource("a")]}, "meta_data": {"synthesis_params": told}})
    answer = await rig({"one": upstream}).answer(ANNA, DISCOVER)
    assert answer["meta_data"]["servers"]["one"]["synthesis_params"] == {"model": "m-1", "max_chars": 900}
    assert {"provider", "version", "elapsed_ms"} <= set(answer["meta_data"])


@pytest.mark.contract("G14-1")
async def test_hierarchy_hints_are_passed_on_with_ids_that_are_unique_everywhere() -> None:
    page = resource("page", parentId="space", path=["Space", "Page"], parentIds=["root", "space"])
    odd = resource("odd", parentId=7, path={"x": 1}, parentIds=["space", None])
    served = rig({"one": FakeUpstream([page, odd, resource("text", path="a/b")])})
    found = await served.answer(ANNA, DISCOVER)
    described = {each["sourceId"]: each for each in found["results"]["resources"]}
    assert described["page"]["parentId"] == "one:space"
    assert described["page"]["parentIds"] == ["one:root", "one:space"]
    assert described["page"]["path"] == ["Space", "Page"]
    assert described["text"]["path"] == "a/b"
    assert described["odd"].get("parentIds") == ["one:space"]
    assert not {"parentId", "path"} & described["odd"].keys()
