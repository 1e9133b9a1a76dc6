"""Who may see which server and source, at discovery and at every search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from support.rag_fakes import ANNA, LEX, NOBODY, FakeSource, FakeUpstream, hit, own_hit, resource, rig

TWO_SOURCES = {
    "groups": ["users"],
    "dataSources": [{"id": "handbook", "groups": ["users"]}, {"id": "law", "groups": ["legal", "admin"]}],
}


def docs() -> FakeUpstream:
    return FakeUpstream(
        [resource("handbook"), resource("law")], [hit("h1", "handbook", 0.9), hit("l1", "law", 0.8)], answers=True
    )


@pytest.mark.contract("G2-1", "G4-3", "G5.1-1")
async def test_a_server_is_listed_only_to_members_of_one_of_its_groups() -> None:
    upstream = docs()
    served = rig({"docs": upstream}, {"docs": {"groups": ["users"]}})
    assert await served.ids(ANNA) == ["docs:handbook", "docs:law"]
    assert await served.ids(NOBODY) == []
    assert len(upstream.asked) == 1, "a server is not asked for somebody who may not see it"


async def test_a_server_without_groups_is_everybodys_also_if_it_is_exclusive() -> None:
    served = rig({"open": docs(), "alone": docs()}, {"alone": {"is_exclusive": True}})
    assert await served.ids(NOBODY) == ["alone:handbook", "alone:law", "open:handbook", "open:law"]


async def test_groups_match_letter_for_letter() -> None:
    served = rig({"docs": docs()}, {"docs": {"groups": ["Users"]}})
    assert await served.ids(ANNA) == []


@pytest.mark.contract("G1-2", "G2-4", "G4-3")
async def test_groups_of_a_source_narrow_those_of_its_server() -> None:
    served = rig({"docs": docs()}, {"docs": TWO_SOURCES})
    assert await served.ids(ANNA) == ["docs:handbook"]
    assert await served.ids(LEX) == ["docs:handbook", "docs:law"]


@pytest.mark.contract("G7-5")
async def test_groups_that_the_server_itself_tells_count_as_well() -> None:
    upstream = FakeUpstream([resource("handbook"), resource("law", groups=["legal"])], [hit("l1", "law", 0.8)])
    served = rig({"docs": upstream})
    assert await served.ids(ANNA) == ["docs:handbook"]
    assert (await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["law"]))["code"] == "unauthorized_source"
    assert not upstream.calls_of(RAW_RESULTS)


@pytest.mark.parametrize("groups", ["legal", ["legal", 7], {"legal": True}, 0, [""]])
async def test_groups_that_cannot_be_read_let_nobody_in(groups: object) -> None:
    served = rig({"docs": FakeUpstream([resource("law", groups=groups)])})
    assert await served.ids(LEX) == []


@pytest.mark.contract("G5.1-7")
@pytest.mark.parametrize("source", ["law", "docs:law"])
@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
async def test_a_forbidden_source_is_refused_at_query_time_and_its_server_never_hears_of_it(
    tool: str, source: str
) -> None:
    upstream = docs()
    served = rig({"docs": upstream}, {"docs": TWO_SOURCES})
    assert (await served.refusal(ANNA, tool, query="q", sources=[source]))["code"] == "unauthorized_source"
    assert not upstream.calls_of(tool)
    assert await served.answer(LEX, tool, query="q", sources=[source])


@pytest.mark.contract("G5.1-1")
async def test_a_source_of_a_server_the_caller_may_not_see_is_refused_without_asking_the_server() -> None:
    upstream = docs()
    served = rig({"docs": upstream}, {"docs": {"groups": ["legal"]}})
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["docs:handbook"])
    assert refused["code"] == "unauthorized_source"
    bare = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["handbook"])
    assert bare["code"] == "invalid_source", "an id alone tells nothing about servers one may not see"
    assert upstream.asked == []


async def test_losing_a_group_counts_at_the_next_call() -> None:
    upstream = docs()
    served = rig({"docs": upstream}, {"docs": TWO_SOURCES})
    assert await served.hits(LEX, "docs:law")
    upstream.spec = replace(upstream.spec, groups=("admin",))
    assert (await served.refusal(LEX, RAW_RESULTS, query="q", sources=["docs:law"]))["code"] == "unauthorized_source"


async def test_what_one_caller_was_told_is_not_believed_for_another() -> None:
    async def by_name(asked: dict) -> dict:
        mine = [resource("secret")] if asked["username"] == "lex" else [resource("handbook")]
        return {"results": {"resources": mine}}

    upstream = docs()
    upstream.handlers[DISCOVER] = by_name
    served = rig({"docs": upstream})
    assert await served.ids(LEX) == ["docs:secret"]
    assert (await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["secret"]))["code"] == "invalid_source"
    assert not upstream.calls_of(RAW_RESULTS)


@pytest.mark.contract("G1-2", "G5.1-7", "G7-5")
async def test_the_servers_own_denial_is_passed_on() -> None:
    upstream = docs()
    upstream.refuse_with(RAW_RESULTS, "unauthorized_source", "not for you")
    served = rig({"docs": upstream})
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["handbook"])
    assert refused["code"] == "unauthorized_source"
    assert "not for you" in refused["message"]


async def test_each_caller_searches_only_their_own_projects_of_the_store() -> None:
    store = FakeSource(
        "store",
        {"anna": ["store:notes"], "lex": ["store:cases"]},
        [own_hit("n", "store:notes", "a lamp"), own_hit("c", "store:cases", "a case")],
    )
    served = rig({}, own=[store])
    assert await served.ids(ANNA) == ["armarium:store:notes"]
    assert [each["id"] for each in await served.hits(ANNA, "store:notes")] == ["n"]
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["armarium:store:cases"])
    assert refused["code"] == "invalid_source"


@pytest.mark.contract("G4-7")
async def test_a_disabled_server_is_nobodys() -> None:
    upstream = docs()
    served = rig({"docs": upstream}, {"docs": {"enabled": False}})
    assert await served.ids(LEX) == []
    assert (await served.refusal(LEX, RAW_RESULTS, query="q", sources=["docs:law"]))["code"] == "invalid_source"
    assert upstream.asked == []


@pytest.mark.contract("G16-1")
async def test_a_server_of_the_other_file_offers_no_sources() -> None:
    upstream = docs()
    served = rig({"docs": upstream})
    upstream.spec = replace(upstream.spec, kind="generic")
    assert await served.ids(ANNA) == []
