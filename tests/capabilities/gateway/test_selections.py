"""Selections of messages, sessions and callers; exclusive servers; tokens of one session."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.foundation.security.identity import Principal
from support.client import connected
from support.gateway_server import HOSTILE, GatewayServer, rag_entry, started
from support.rag_fakes import ANNA, LEX, NOBODY, FakeUpstream, Rig, hit, resource, rig

Json = dict[str, Any]
EVERYTHING = {"docs:handbook", "docs:rules", "wiki:pages"}
ALONE: Json = {"wiki": {"is_exclusive": True}}


def source(*names: str) -> FakeUpstream:
    return FakeUpstream([resource(each) for each in names], [hit(f"{each}-hit", each, 0.5) for each in names])


def three(entries: Json | None = None, **parts: Any) -> Rig:
    upstreams = {"docs": source("handbook", "rules"), "wiki": source("pages"), "law": source("cases")}
    return rig(upstreams, {"law": {"groups": ["legal"]}, **(entries or {})}, **parts)


async def searched(served: Rig, who: Principal = ANNA, tool: str = SYNTHESIZED, **arguments: Any) -> set[str]:
    """The sources that were searched."""
    for upstream in served.members.values():
        upstream.asked.clear()
    await served.answer(who, tool, query="q", **arguments)
    return {
        f"{name}:{each}"
        for name, upstream in served.members.items()
        for asked in upstream.calls_of(RAW_RESULTS)
        for each in asked["sources"]
    }


@pytest.mark.contract("G3.3-1")
async def test_an_answer_without_sources_is_from_everything_the_caller_may_see() -> None:
    served = three()
    assert await searched(served) == EVERYTHING
    assert await searched(served, LEX) == EVERYTHING | {"law:cases"}
    assert await searched(served, NOBODY) == EVERYTHING


@pytest.mark.contract("G3.2-2")
async def test_hits_without_sources_need_a_selection() -> None:
    refusal = await three().refusal(ANNA, RAW_RESULTS, query="q")
    assert "`sources` is required" in refusal["message"]


@pytest.mark.contract("G3.2-2", "G6-4", "G11-2")
@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"selectedServers": ["docs"], "selectedResourceIds": ["handbook"]}, {"docs:handbook"}),
        ({"selectedServers": ["docs"]}, {"docs:handbook", "docs:rules"}),
        ({"selectedResourceIds": ["docs:rules", "pages"]}, {"docs:rules", "wiki:pages"}),
    ],
)
async def test_a_message_selects_servers_and_sources(tool: str, selection: Json, expected: set[str]) -> None:
    served = three()
    assert await searched(served, tool=tool, rag=selection) == expected
    served.meta = {"rag": selection}
    assert await searched(served, tool=tool) == expected


@pytest.mark.contract("G11-2")
async def test_the_number_of_hits_comes_with_the_message_too() -> None:
    served = three()
    served.meta = {"rag": {"top_k": 3, "further": {"field": 1}}, "progressToken": 1}
    await searched(served, tool=RAW_RESULTS, sources=["wiki:pages"], rag={"top_k": 4})
    assert served.members["wiki"].calls_of(RAW_RESULTS)[-1]["top_k"] == 3, "what the application says precedes"
    await searched(served, tool=RAW_RESULTS, sources=["wiki:pages"], top_k=5)
    assert served.members["wiki"].calls_of(RAW_RESULTS)[-1]["top_k"] == 5


@pytest.mark.contract("G6-3")
async def test_what_is_named_in_a_call_precedes_message_session_and_default(tmp_path: Path) -> None:
    served = three(state=tmp_path / "s.db")
    await served.answer(ANNA, "rag_select", selectedServers=["docs"])
    assert await searched(served) == {"docs:handbook", "docs:rules"}
    await served.answer(ANNA, "rag_select", session="s1", selectedResourceIds=["docs:rules"])
    served.session = "s1"
    assert await searched(served) == {"docs:rules"}
    assert await searched(served, LEX) == EVERYTHING | {"law:cases"}, "another caller has selected nothing"
    assert await searched(served, rag={"selectedServers": ["wiki"]}) == {"wiki:pages"}
    served.meta = {"rag": {"selectedResourceIds": ["handbook"]}}
    assert await searched(served, rag={"selectedServers": ["wiki"]}) == {"docs:handbook"}
    assert await searched(served, sources=["wiki:pages"]) == {"wiki:pages"}
    served.meta, served.session = None, "s2"
    assert await searched(served) == {"docs:handbook", "docs:rules"}
    assert await searched(served, rag={"session": "s1"}) == {"docs:rules"}
    assert (await served.answer(ANNA, "rag_deselect", session="s1"))["removed"]
    served.session = "s1"
    assert await searched(served) == {"docs:handbook", "docs:rules"}


async def test_an_answer_says_what_selected_its_sources() -> None:
    answer = await three().answer(ANNA, SYNTHESIZED, query="q", rag={"selectedServers": ["docs"]})
    assert answer["meta_data"]["selection"] == {"from": "message", "sources": 2}


@pytest.mark.parametrize("selection", [{"selectedServers": []}, {"selectedResourceIds": []}])
async def test_an_empty_selection_selects_nothing_rather_than_everything(selection: Json) -> None:
    refusal = await three().refusal(ANNA, SYNTHESIZED, query="q", rag=selection)
    assert (refusal["code"], refusal["message"]) == ("invalid_source", "no source is selected")


async def test_a_selection_gives_no_access() -> None:
    served = three()
    for selection in ({"selectedServers": ["law"]}, {"selectedResourceIds": ["law:cases"]}):
        refusal = await served.refusal(ANNA, SYNTHESIZED, query="q", rag=selection)
        assert refusal["code"] in ("invalid_source", "unauthorized_source")
    partly = await served.answer(ANNA, SYNTHESIZED, query="q", rag={"selectedServers": ["law", "wiki"]})
    assert [each["server"] for each in partly["meta_data"]["errors"]] == ["law"]
    assert not served.members["law"].asked


INVALID: list[Any] = [
    7, [], "docs", {"selectedServers": "docs"}, {"selectedResourceIds": [7]}, {"top_k": 0}, {"session": ""},
    {"selectedServers": ["x"] * 101}, {"selectedResourceIds": ["half \ud800"]}, {"session": "\ud800"},
]  # fmt: skip


@pytest.mark.parametrize("given", INVALID)
async def test_metadata_that_is_no_selection_is_refused(given: Any) -> None:
    served = three()
    served.meta = {"rag": given}
    outcome = await served.outcome(ANNA, SYNTHESIZED, query="q", sources=["wiki:pages"])
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.details["field"]) == ("INVALID_ARGUMENT", "_meta.rag")
    served.meta = None
    refused = await served.outcome(ANNA, SYNTHESIZED, query="q", sources=["wiki:pages"], rag=given)
    assert refused.error is not None
    assert refused.error.code == "INVALID_ARGUMENT"


@pytest.mark.contract("G1-5")
async def test_the_configuration_shows_what_is_selected(tmp_path: Path) -> None:
    served = three({"docs": {"ui": {"defaultSelected": True}}}, state=tmp_path / "s.db")

    async def selected(**arguments: Any) -> list[str]:
        config = await served.answer(ANNA, "rag_config", **arguments)
        shown = [each["resourceId"] for each in config["data_sources"] if each["selected"]]
        inner = [s["resourceId"] for each in config["rag_servers"] for s in each["sources"] if s["selected"]]
        assert inner == shown
        return shown

    assert await selected() == ["docs:handbook", "docs:rules"]
    await served.answer(ANNA, "rag_select", session="s1", selectedServers=["wiki"])
    assert await selected(session="s1") == ["wiki:pages"]
    assert await selected() == ["docs:handbook", "docs:rules"]
    stored = await served.answer(ANNA, "rag_selection", session="s1")
    assert stored == {"from": "session", "selectedServers": ["wiki"]}
    assert (await served.answer(LEX, "rag_selection", session="s1"))["from"] == "none"


async def test_selections_are_bounded_and_a_damaged_file_is_an_error_with_a_code(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    served = three(state=file)
    await served.answer(ANNA, "rag_select", selectedServers=["wiki"])
    for number in range(203):
        await served.answer(ANNA, "rag_select", session=str(number), selectedServers=["docs"])
    connection = sqlite3.connect(file)
    sessions = {session for (session,) in connection.execute("SELECT session FROM selections")}
    connection.close()
    assert len(sessions) == 201
    assert "" in sessions
    assert "0" not in sessions
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"not a database, but long enough to be read as one" * 100)
    refusal = await three(state=damaged).refusal(ANNA, SYNTHESIZED, query="q")
    assert (refusal["code"], refusal["reason"]) == ("backend_unavailable", "selections_unavailable")
    assert str(tmp_path) not in str(refusal)


@pytest.mark.contract("G4-6")
async def test_while_an_exclusive_server_is_selected_no_other_server_is_asked(tmp_path: Path) -> None:
    served = three(ALONE, state=tmp_path / "s.db")
    assert await searched(served) == {"docs:handbook", "docs:rules"}, "it is not selected"
    await served.answer(ANNA, "rag_select", session="s1", selectedServers=["wiki", "docs"])
    served.session = "s1"
    assert await searched(served) == {"wiki:pages"}
    assert await served.ids(ANNA) == ["wiki:pages"]
    refusal = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["docs:handbook"])
    assert (refusal["code"], refusal["reason"]) == ("unauthorized_source", "exclusive_server")
    evaded = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["docs:handbook"], rag={"session": "other"})
    assert evaded["reason"] == "exclusive_server", "a model cannot leave its session"
    assert not served.members["docs"].asked
    served.session = "s2"
    assert await searched(served, tool=RAW_RESULTS, sources=["docs:handbook"]) == {"docs:handbook"}


async def test_an_exclusive_server_that_a_call_names_is_searched_alone() -> None:
    answer = await three(ALONE).answer(ANNA, RAW_RESULTS, query="q", sources=["docs:rules", "wiki:pages"])
    assert {each["server"] for each in answer["results"]["hits"]} == {"wiki"}
    errors = [(each["source"], each["reason"]) for each in answer["meta_data"]["errors"]]
    assert errors == [("docs:rules", "exclusive_server")]


async def test_a_server_that_a_caller_may_not_see_excludes_nothing(tmp_path: Path) -> None:
    served = three({"law": {"groups": ["legal"], "is_exclusive": True}}, state=tmp_path / "s.db")
    await served.answer(ANNA, "rag_select", selectedServers=["law"])
    assert await searched(served, sources=["wiki:pages"]) == {"wiki:pages"}


@pytest.mark.contract("G5.6-1")
async def test_a_token_of_one_session_is_used_in_no_other() -> None:
    needs_token = resource("a", authMode="bearer", authRequired=True)
    upstream = FakeUpstream([needs_token], [hit("h", "a", 1.0)], declares=["bearer"])
    served = rig({"one": upstream})

    async def sent() -> str | None:
        upstream.asked.clear()
        await served.hits(ANNA, "one:a")
        return upstream.calls_of(RAW_RESULTS)[0].get("bearer")

    served.session = "s1"
    await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token="of-all")
    assert await sent() == "of-all"
    await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token="of-s1", session="s1")
    assert await sent() == "of-s1"
    assert len(upstream.calls_of(DISCOVER)) == 1, "what the server lists may depend on the token"
    served.session = "s2"
    assert await sent() == "of-all"
    assert (await served.answer(ANNA, "rag_disconnect", server="one", session="s1"))["forgotten"]
    served.session = "s1"
    assert await sent() == "of-all"
    assert served.lent_tokens.secrets(LEX, "one", "s1") == {}


async def test_an_expired_token_of_a_session_is_removed_and_the_other_stays() -> None:
    upstream = FakeUpstream([resource("a")], declares=["bearer"])
    served = rig({"one": upstream})
    served.session = "s1"
    await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token="of-all")
    await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token="of-s1", session="s1")
    upstream.refuse_with(RAW_RESULTS, "token_expired")
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a"])
    assert served.lent_tokens.secrets(ANNA, "one", "s1") == {"bearer": "of-all"}


async def test_tokens_of_one_caller_do_not_remove_those_of_another() -> None:
    lent = rig({}).lent_tokens
    lent.store(LEX, "one", "bearer", "x", 60.0)
    for number in range(1_000):
        lent.store(ANNA, "one", "bearer", "y", session=str(number))
    assert lent.secrets(LEX, "one") == {"bearer": "x"}
    kept = [number for number in range(1_000) if lent.secrets(ANNA, "one", str(number))]
    assert kept == [*range(500, 1_000)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[GatewayServer]:
    base = tmp_path_factory.mktemp("selections")
    with started(base, watch=False) as running:
        running.write("rag-mcp.json", {"notes": rag_entry("a", "b"), "solo": rag_entry("s", is_exclusive=True)})
        running.write("mcp.json", {"odd": HOSTILE})
        with running.api("root") as admin:
            told = admin.post("/admin/mcp/reload").json()
            assert (told["status"], told["servers"]) == ("reloaded", ["notes", "odd", "solo"])
        yield running


@pytest.mark.contract("G6-4")
async def test_the_meta_of_an_mcp_call_selects_and_its_session_excludes(server: GatewayServer) -> None:
    await server.tools_become("anna", lambda names: "odd.echo" in names)
    async with connected(server.process.url, key="key-of-anna") as client:
        meta: Any = {"rag": {"selectedServers": ["notes"], "selectedResourceIds": ["b"]}}
        found = await client.mcp.call_tool(RAW_RESULTS, {"query": "q"}, meta=meta)
        assert found.structured_content is not None
        assert [each["resourceId"] for each in found.structured_content["results"]["hits"]] == ["notes:b"]
        assert not (await client.mcp.call_tool("odd.echo", {"x": 1})).is_error
        alone: Any = {"rag": {"selectedServers": ["solo"]}}
        refused = await client.mcp.call_tool("odd.echo", {"x": 1}, meta=alone)
        assert refused.is_error
        assert refused.structured_content is not None
        assert refused.structured_content["error"]["code"] == "exclusive_server"


@pytest.mark.contract("G6-3")
def test_the_json_api_takes_the_metadata_and_stores_selections(server: GatewayServer) -> None:
    with server.api("anna") as anna, server.api("guest") as guest:
        body = {"query": "q", "rag": {"selectedServers": ["notes"], "selectedResourceIds": ["a"], "top_k": 1}}
        found = anna.post("/rag/search", json=body)
        assert [each["resourceId"] for each in found.json()["results"]["hits"]] == ["notes:a"]
        stored = anna.put("/rag/selection", json={"session": "talk", "selectedServers": ["solo"]})
        assert stored.json() == {"from": "session", "selectedServers": ["solo"]}
        assert anna.get("/rag/selection", params={"session": "talk"}).json() == stored.json()
        assert guest.get("/rag/selection", params={"session": "talk"}).json()["from"] == "none"
        chosen = anna.get("/config", params={"session": "talk"}).json()["rag_servers"]
        assert {each["server"]: each["selected"] for each in chosen}["solo"]
        other = {"query": "q", "sources": ["notes:a"], "rag": {"session": "talk"}}
        assert anna.post("/rag/search", json=other).status_code == 409
        assert anna.delete("/rag/selection", params={"session": "talk"}).json() == {"removed": True}
        assert anna.post("/rag/search", json=other).status_code == 200
