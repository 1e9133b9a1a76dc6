"""What user interfaces show of a caller's tokens and sources: connections, locked sources, and pages of sources."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS
from armarium.capabilities.gateway.route_tools import SessionTools
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.foundation.security.identity import Principal
from support.gateway_server import GatewayServer, rag_entry, started
from support.manual_clock import ManualClock
from support.rag_fakes import ANNA, LEX, FakeUpstream, Rig, hit, resource, rig

Json = dict[str, Any]
CANARY = "canary-connection-11ce-never-shown"


def two(**more: Any) -> Rig:
    docs = FakeUpstream([resource("handbook"), resource("legal")], [hit("h", "handbook", 0.5), hit("l", "legal", 0.4)])
    wiki = FakeUpstream([resource("pages")], [hit("p", "pages", 0.3)])
    return rig({"docs": docs, "wiki": wiki}, **more)


async def statuses(served: Rig, who: Principal = ANNA, **arguments: Any) -> dict[str, str]:
    config = await served.answer(who, "rag_config", **arguments)
    return {each["resourceId"]: each["status"] for server in config["rag_servers"] for each in server["sources"]}


async def test_connections_are_told_with_their_end_and_without_their_token() -> None:
    served = two()
    before = datetime.now(UTC)
    await served.answer(ANNA, "rag_connect", server="docs", kind="bearer", token=CANARY, ttl_s=600)
    await served.answer(ANNA, "rag_connect", server="wiki", kind="api_key", token=CANARY, session="s1")
    await served.answer(LEX, "rag_connect", server="wiki", kind="bearer", token=CANARY)
    answer = await served.answer(ANNA, "rag_connections")
    assert CANARY not in str(answer)
    docs, wiki = answer["connections"]
    assert (docs["server"], docs["kind"], "session" in docs) == ("docs", "bearer", False)
    assert (wiki["server"], wiki["kind"], wiki["session"]) == ("wiki", "api_key", "s1")
    ends = datetime.fromisoformat(docs["expires_at"]) - before
    assert timedelta(seconds=599) < ends < timedelta(seconds=700)
    await served.answer(ANNA, "rag_disconnect", server="docs")
    assert [each["server"] for each in (await served.answer(ANNA, "rag_connections"))["connections"]] == ["wiki"]


def test_a_token_that_has_expired_is_no_connection() -> None:
    clock = ManualClock()
    tokens = LentTokens(max_ttl_s=60, clock=clock)
    tokens.store(ANNA, "docs", "bearer", "x")
    assert [(server, left) for server, _, _, left in tokens.of(ANNA)] == [("docs", 60)]
    clock.advance(60)
    assert list(tokens.of(ANNA)) == []


async def test_a_source_that_its_server_refuses_is_locked_until_it_answers() -> None:
    served = two()
    assert set((await statuses(served)).values()) == {"ready"}
    served.members["docs"].refuse_with(RAW_RESULTS, "unauthorized_source")
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["docs:legal"])
    assert await statuses(served) == {"docs:handbook": "ready", "docs:legal": "locked", "wiki:pages": "ready"}
    # Another caller may have other rights.
    assert set((await statuses(served, LEX)).values()) == {"ready"}
    del served.members["docs"].handlers[RAW_RESULTS]
    await served.hits(ANNA, "docs:legal")
    assert set((await statuses(served)).values()) == {"ready"}


async def test_a_new_token_unlocks_what_was_refused_without_it() -> None:
    served = two()
    served.members["docs"].refuse_with(RAW_RESULTS, "unauthorized_source")
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["docs:legal"])
    await served.answer(ANNA, "rag_connect", server="docs", kind="bearer", token="t", session="s1")
    assert (await statuses(served))["docs:legal"] == "locked"
    assert (await statuses(served, session="s1"))["docs:legal"] == "ready"
    await served.answer(ANNA, "rag_connect", server="docs", kind="bearer", token="t")
    assert (await statuses(served))["docs:legal"] == "ready"


@pytest.mark.parametrize("asked", ["docs:legal", "legal"])
async def test_a_hidden_source_is_listed_as_locked_to_whom_it_was_refused(asked: str) -> None:
    hints = [{"id": "legal", "name": "Legal affairs", "groups": ["legal"]}]
    served = two(entries={"docs": {"dataSources": hints}})
    assert "docs:legal" not in await statuses(served)
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=[asked])
    config = await served.answer(ANNA, "rag_config")
    (docs,) = (each for each in config["rag_servers"] if each["server"] == "docs")
    (locked,) = (each for each in docs["sources"] if each["status"] == "locked")
    # Nothing but what the caller wrote.
    assert locked == {
        "id": "legal", "resourceId": "docs:legal", "name": "legal", "selected": False, "status": "locked",
    }  # fmt: skip
    assert "docs:legal" not in [each["resourceId"] for each in config["data_sources"]]
    assert "docs:legal" not in await statuses(served, Principal("lex", ("users",), LEX.apikey_hash))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("token_expired", "action_required"),
        ("unauthorized_user", "locked"),
        ("unauthorized_source", "locked"),
        ("backend_unavailable", "unavailable"),
    ],
)
async def test_a_server_that_refuses_to_list_its_sources_has_the_status_of_its_reason(code: str, status: str) -> None:
    served = two(entries={"docs": {"dataSources": [{"id": "handbook", "authMode": "bearer"}]}})
    served.members["docs"].refuse_with(DISCOVER, code)
    config = await served.answer(ANNA, "rag_config")
    (docs,) = (each for each in config["rag_servers"] if each["server"] == "docs")
    assert (docs["status"], docs["error"]["code"], docs["sources"][0]["status"]) == (status, code, status)


async def test_administrators_see_servers_outside_of_their_groups_as_locked() -> None:
    served = two(entries={"wiki": {"groups": ["editors"], "ui": {"displayName": "The wiki"}}})
    assert [each["server"] for each in (await served.answer(ANNA, "rag_config"))["rag_servers"]] == ["armarium", "docs"]
    tools = SessionTools(served.gateway, lambda principal: principal == ANNA)
    (locked,) = (each for each in await told(tools, ANNA) if each["status"] == "locked")
    assert locked == {
        "server": "wiki", "displayName": "The wiki", "selected": False, "sources": [], "status": "locked",
        "groups": ["editors"],
    }  # fmt: skip
    assert "wiki" not in [each["server"] for each in await told(tools, LEX)]


async def told(tools: SessionTools, who: Principal) -> list[Json]:
    from armarium.capabilities.gateway.arguments import SessionArgs
    from armarium.foundation.tools import Call

    return (await tools.config(Call(who), SessionArgs()))["rag_servers"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayServer]:
    base: Path = tmp_path_factory.mktemp("connections")
    with started(base, watch=False) as running:
        entries = {"notes": rag_entry("harbour", "tides"), "law": rag_entry("cases", groups=["legal"])}
        running.write("rag-mcp.json", entries)
        with running.api("root") as admin:
            assert admin.post("/admin/mcp/reload").status_code == 200
        yield running


def test_sources_are_listed_over_http_with_filters_and_by_page(server: GatewayServer) -> None:
    with server.api("anna") as anna:
        first = anna.get("/rag/resources", params={"page_size": 1, "types": ["wiki", "other"]}).json()["results"]
        assert first["paging"] == {"page": 1, "page_size": 1, "total": 2}
        second = anna.get("/rag/resources", params={"page_size": 1, "page": 2, "types": "wiki"}).json()["results"]
        ids = [each["id"] for page in (first, second) for each in page["resources"]]
        assert ids == ["notes:harbour", "notes:tides"]
        found = anna.get("/rag/resources", params={"search": "tid"}).json()["results"]["resources"]
        assert [each["name"] for each in found] == ["Tides"]
        assert anna.get("/rag/resources", params={"page": 0}).status_code == 400


def test_administrators_with_a_key_see_what_their_groups_lock(server: GatewayServer) -> None:
    with server.api("root") as admin, server.api("anna") as anna:
        servers = {each["server"]: each for each in admin.get("/config").json()["rag_servers"]}
        assert (servers["law"]["status"], servers["law"]["groups"]) == ("locked", ["legal"])
        assert "law" not in admin.get("/config").json()["authorized_servers"]
        assert "law" not in anna.get("/config").text
