"""Source ids without a server, and the servers in which they are looked up."""

from __future__ import annotations

from typing import Any

import pytest

from armarium.capabilities.gateway.contract import RAW_RESULTS, SYNTHESIZED, rag_server_input_schemas
from support.rag_fakes import ANNA, FakeUpstream, Rig, hit, resource, rig

Json = dict[str, Any]


def two_of_the_same_id() -> Rig:
    def files(name: str) -> FakeUpstream:
        return FakeUpstream([resource("files"), resource(name)], [hit(name, "files", 1.0), hit(f"{name}2", name, 1.0)])

    upstreams = {"law": files("law"), "fog": files("fog"), "hidden": files("hidden")}
    return rig(upstreams, {"hidden": {"groups": ["legal"]}})


async def test_every_source_of_the_configuration_has_the_id_that_a_search_takes() -> None:
    served = two_of_the_same_id()
    config = await served.answer(ANNA, "rag_config")
    listed = [*config["data_sources"], *(each for of in config["rag_servers"] for each in of["sources"])]
    assert {(each["id"], each["resourceId"]) for each in listed} == {
        ("files", "law:files"),
        ("law", "law:law"),
        ("files", "fog:files"),
        ("fog", "fog:fog"),
    }
    hits = await served.hits(ANNA, *(each["resourceId"] for each in config["data_sources"]))
    assert {each["resourceId"] for each in hits} == {each["resourceId"] for each in config["data_sources"]}


async def test_the_sources_of_a_server_that_is_down_have_it_too() -> None:
    down = FakeUpstream()
    down.refuse_with("rag_discover_resources", "backend_unavailable")
    config = await rig({"one": down}, {"one": {"dataSources": [{"id": "a"}]}}).answer(ANNA, "rag_config")
    (shown,) = [each for each in config["rag_servers"] if each["server"] == "one"]
    assert [each["resourceId"] for each in shown["sources"]] == ["one:a"]


@pytest.mark.contract("G5.1-5")
@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
async def test_an_id_that_two_servers_have_is_looked_for_at_the_one_that_is_named(tool: str) -> None:
    served = two_of_the_same_id()
    assert (await served.refusal(ANNA, tool, query="q", sources=["files"]))["code"] == "invalid_source"
    for name in ("law", "fog"):
        found = await served.answer(ANNA, tool, query="q", sources=["files"], servers=[name])
        assert list(found["meta_data"]["servers"]) == [name]


async def test_other_servers_are_not_even_asked() -> None:
    served = two_of_the_same_id()
    await served.hits(ANNA, "files", servers=["fog"])
    assert served.members["law"].asked == []


async def test_an_id_with_its_server_is_that_servers_whichever_are_named() -> None:
    served = two_of_the_same_id()
    hits = await served.hits(ANNA, "law:files", "fog", servers=["fog"])
    assert {each["resourceId"] for each in hits} == {"law:files", "fog:fog"}


async def test_an_id_that_several_of_the_servers_named_have_is_still_nobodys() -> None:
    served = two_of_the_same_id()
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["files"], servers=["law", "fog"])
    assert refused["hint"] == "use fog:files or law:files"


@pytest.mark.parametrize("name", ["hidden", "nowhere"])
async def test_a_server_that_the_caller_may_not_see_is_as_good_as_none(name: str) -> None:
    served = two_of_the_same_id()
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["files"], servers=[name])
    assert refused["code"] == "invalid_source"
    assert refused["message"] == "there is no server in which to look up the source 'files'"
    assert served.members["hidden"].asked == []


def test_a_server_of_the_contract_is_not_asked_for_servers() -> None:
    taken = rag_server_input_schemas(capability_token=False)
    assert all("servers" not in schema["properties"] for schema in taken.values())
