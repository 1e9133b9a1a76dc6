"""Artifacts, display, metadata and further fields of servers, in all three tools: bounded, and safe to show."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from support.client import connected
from support.gateway_server import rag_entry, started
from support.rag_fakes import ANNA, LEX, NOBODY, FakeUpstream, Rig, hit, resource, rig

Json = dict[str, Any]
PAGE = base64.b64encode(b"<b>report</b>").decode()
REPORT: Json = {"name": "report.html", "b64": PAGE, "mime": "text/html"}
SHOW: Json = {"open_canvas": True, "primary_file": "report.html", "mode": "split", "viewer_hint": "html"}
TOOLS = (DISCOVER, RAW_RESULTS, SYNTHESIZED)


def saying(**more: Any) -> FakeUpstream:
    """A server with one source, whose responses all have these fields."""
    upstream = FakeUpstream(answers=True)
    upstream.say(DISCOVER, {"results": {"resources": [resource("a")]}, **more})
    upstream.say(RAW_RESULTS, {"results": {"hits": [hit("h", "a", 1.0)]}, **more})
    upstream.say(SYNTHESIZED, {"results": {"answer": "so"}, **more})
    return upstream


async def answered(served: Rig, tool: str, *sources: str) -> Json:
    asked: Json = {} if tool == DISCOVER else {"query": "q", "sources": list(sources or ["one:a"])}
    return await served.answer(ANNA, tool, **asked)


@pytest.mark.contract("G3-1", "G3.1-8", "G3.2-9", "G6-5")
@pytest.mark.parametrize("tool", TOOLS)
async def test_every_tool_passes_on_files_and_how_to_show_them(tool: str) -> None:
    served = rig({"one": saying(artifacts=[REPORT], display=SHOW, meta_data={"provider": "wiki", "shards": 3})})
    answer = await answered(served, tool)
    assert answer["artifacts"] == [{**REPORT, "size": 13, "server": "one"}]
    assert answer["display"] == {**SHOW, "server": "one"}
    assert answer["meta_data"]["servers"]["one"]["meta_data"] == {"provider": "wiki", "shards": 3}


@pytest.mark.contract("G15-3")
@pytest.mark.parametrize("tool", TOOLS)
async def test_the_older_lists_of_files_and_a_canvas_become_the_same(tool: str) -> None:
    canvas = {
        "open": True,
        "id": "d1",
        "type": "iframe",
        "url": "https://tools.example/view",
        "token": "t",
        "mode": "append",
    }
    older = {"returned_file_names": ["a.csv", "b.bin", "c"], "returned_file_contents": ["YSxi", "AAE="]}
    answer = await answered(rig({"one": saying(canvas=canvas, **older)}), tool)
    assert [(each["name"], each["mime"], each["size"]) for each in answer["artifacts"]] == [
        ("a.csv", "text/csv", 3),
        ("b.bin", "application/octet-stream", 2),
    ]
    assert answer["meta_data"]["servers"]["one"]["dropped_artifacts"] == 1, "the third has no content"
    assert answer["display"]["canvas"] == {
        "type": "iframe",
        "url": "https://tools.example/view",
        "id": "d1",
        "token": "t",
    }
    assert (answer["display"]["open_canvas"], answer["display"]["mode"]) == (True, "append")
    both = await answered(rig({"one": saying(artifacts=[REPORT], **older)}), tool)
    assert [each["name"] for each in both["artifacts"]] == ["report.html"]


async def test_files_of_several_servers_keep_apart() -> None:
    served = rig({"one": saying(artifacts=[REPORT]), "two": saying(artifacts=[REPORT], display=SHOW)})
    answer = await answered(served, RAW_RESULTS, "one:a", "two:a")
    names = {each["server"]: each["name"] for each in answer["artifacts"]}
    assert names["one"] == "report.html"
    assert names["two"] != "report.html"
    assert (answer["display"]["server"], answer["display"]["primary_file"]) == ("two", names["two"])


async def test_the_files_of_all_servers_together_are_bounded() -> None:
    large = base64.b64encode(bytes(3 * 1024 * 1024)).decode()
    served = rig({name: saying(artifacts=[{**REPORT, "b64": large}]) for name in ("one", "two", "three")})
    answer = await answered(served, RAW_RESULTS, "one:a", "two:a", "three:a")
    assert len(answer["artifacts"]) == 2
    servers = answer["meta_data"]["servers"].values()
    assert [told["hits"] for told in servers] == [1, 1, 1], "the hits of all servers are still there"
    left_out = [told.get("dropped_artifacts", 0) for told in servers]
    assert sorted(left_out) == [0, 0, 1]


DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
BAD_ARTIFACTS: list[Any] = [
    7, None, {}, {"name": "..", "b64": ""}, {"name": "x", "b64": "not base64"}, {"name": "x", "b64": 7},
    {"name": "x", "b64": DEEP}, {"name": "\ud800/", "b64": ""},
]  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS)
async def test_hostile_attachments_are_left_out_and_the_answer_stays(tool: str) -> None:
    hostile = saying(
        artifacts=[
            *BAD_ARTIFACTS,
            {"name": "../../etc/passwd", "b64": "", "mime": "text/html; charset=<script>", "viewer": "<img>"},
            {"name": "C:\\x\\y\u0000.txt", "b64": "", "description": "half \ud800"},
        ],
        display={"open_canvas": "yes", "primary_file": "<script>", "mode": "<b>", "viewer_hint": DEEP},
        canvas={"open": 1, "url": "javascript:alert(1)", "title": "x" * 10**6},
        meta_data={"deep": DEEP},
    )
    answer = await answered(rig({"one": hostile, "two": saying(artifacts=[REPORT])}), tool, "one:a", "two:a")
    shown = [each for each in answer["artifacts"] if each["server"] == "one"]
    assert [each["name"] for each in shown] == ["passwd", "y.txt"]
    assert (shown[0]["mime"], "viewer" in shown[0]) == ("application/octet-stream", False)
    assert shown[1]["description"] == "half ?"
    assert "display" not in answer
    assert answer["meta_data"]["servers"]["one"]["dropped_artifacts"] == len(BAD_ARTIFACTS)
    assert "meta_data" not in answer["meta_data"]["servers"]["one"], "it is nested too deeply"
    assert [each["name"] for each in answer["artifacts"] if each["server"] == "two"] == ["report.html"]


async def test_fields_of_a_hit_and_a_citation_that_the_contract_does_not_have_are_kept_within_bounds() -> None:
    own = {
        "author": "kim",
        "page": {"number": 3, "href": " java\nscript:alert(1)"},
        "server": "forged",
        "serverRank": -1,
    }
    upstream = saying()
    upstream.say(RAW_RESULTS, {"results": {"hits": [hit("h", "a", 1.0, **own), hit("g", "a", 0.5, note="x" * 10**5)]}})
    upstream.say(SYNTHESIZED, {"results": {"answer": "so", "citations": [{"resourceId": "a", "title": "T", **own}]}})
    served = rig({"one": upstream})
    first, second = await served.hits(ANNA, "one:a")
    assert (first["author"], first["page"]) == ("kim", {"number": 3})
    assert (first["server"], first["serverRank"]) == ("one", 1), "what the gateway says cannot be forged"
    assert "note" not in second
    (citation,) = (await answered(served, SYNTHESIZED))["results"]["citations"]
    assert (citation["author"], citation["server"], citation["resourceId"]) == ("kim", "one", "one:a")


@pytest.mark.parametrize("uri", ["javascript:alert(1)", "\tJava\nScript:x", "data:text/html,x", "vbscript:x"])
async def test_an_address_that_runs_a_script_is_not_passed_on(uri: str) -> None:
    upstream = saying()
    upstream.say(RAW_RESULTS, {"results": {"hits": [hit("h", "a", 1.0, uri=uri)]}})
    (found,) = await rig({"one": upstream}).hits(ANNA, "one:a")
    assert "uri" not in found


async def test_an_unpaired_surrogate_anywhere_does_not_break_the_answer() -> None:
    half = "half \ud83d"
    upstream = saying(meta_data={half: half})
    upstream.say(
        RAW_RESULTS, {"results": {"hits": [hit("h", "a", 1.0, title=half, chunk=half, provenance={"x": half})]}}
    )
    upstream.say(SYNTHESIZED, {"results": {"answer": half, "citations": [{"title": half, "resourceId": "a"}]}})
    served = rig({"one": upstream})
    (found,) = await served.hits(ANNA, "one:a")
    assert (found["title"], found["provenance"]) == ("half ?", {"x": "half ?"})
    assert (await answered(served, SYNTHESIZED))["results"]["answer"] == "half ?"
    assert (await answered(served, DISCOVER))["meta_data"]["servers"]["one"]["meta_data"] == {"half ?": "half ?"}


@pytest.mark.contract("G4-5")
async def test_what_a_server_selects_by_default_is_kept_unless_its_entry_says_otherwise() -> None:
    upstream = FakeUpstream([resource("a", defaultSelected=True), resource("b"), resource("c", defaultSelected="x")])
    entry = {"dataSources": [{"id": "b", "defaultSelected": True}]}
    found = await rig({"one": upstream}, {"one": entry}).answer(ANNA, DISCOVER)
    assert [each["defaultSelected"] for each in found["results"]["resources"]] == [True, True, False]


@pytest.mark.parametrize(("who", "seen"), [(LEX, ["one"]), (NOBODY, [])])
async def test_files_of_a_server_reach_members_of_its_groups_only(who: Any, seen: list[str]) -> None:
    served = rig({"one": saying(artifacts=[REPORT])}, {"one": {"groups": ["legal"]}})
    found = await served.answer(who, DISCOVER)
    assert [each["server"] for each in found.get("artifacts", [])] == seen


async def test_a_model_reads_the_names_of_files_and_not_their_content(tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    more.write_text(json.dumps({tool: {"artifacts": [REPORT], "display": SHOW} for tool in TOOLS}))
    with started(tmp_path, watch=False) as server:
        server.write("rag-mcp.json", {"notes": rag_entry("a", f"--more={more}")})
        with server.api("root") as admin:
            assert admin.post("/admin/mcp/reload").status_code == 200
        async with connected(server.process.url, key="key-of-anna") as client:
            for tool in TOOLS:
                asked: Json = {} if tool == DISCOVER else {"query": "q", "sources": ["notes:a"]}
                result = await client.mcp.call_tool(tool, asked)
                assert result.structured_content is not None
                assert result.structured_content["artifacts"][0]["b64"] == PAGE
                text = getattr(result.content[0], "text", "")
                assert "report.html" in text
                assert PAGE not in text
