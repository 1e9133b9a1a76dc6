"""Any response of a server becomes the contract's format within its limits, or an error of that server."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.gateway.contract import DISCOVER, OUTPUT_SCHEMAS, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.errors import GatewayError, UpstreamProtocol
from armarium.capabilities.gateway.query.outcome import merge_attachments
from armarium.capabilities.gateway.query.rank_fusion import fuse
from armarium.capabilities.gateway.query.search import hit_as_json
from armarium.capabilities.gateway.responses import contract_answer
from armarium.capabilities.gateway.servers import response_parser
from armarium.foundation.schema import SchemaCheck
from armarium.foundation.tools import Relayed
from support.rag_fakes import ANNA, FakeUpstream, hit, resource, rig

KEYS = [
    "results", "meta_data", "resources", "hits", "answer", "citations", "error", "code", "message", "id", "name",
    "score", "snippet", "chunk", "uri", "resourceId", "groups", "authMode", "authRequired", "counts", "docs", "paging",
    "total", "limits", "truncated", "artifacts", "b64", "mime", "display", "open_canvas", "provenance", "result",
]  # fmt: skip
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["a", "rate_limited"])
)
ANYTHING = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=30,
)
BODIES = st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=6)


def _answered(body: Any) -> dict[str, Any]:
    return response_parser.parse_body("s", Relayed([], body, is_error=False))


@given(BODIES)
def test_any_json_becomes_a_listing_or_an_error_of_the_server(body: dict[str, Any]) -> None:
    try:
        listing = response_parser.parse_listing("s", _answered(body))
    except GatewayError:
        return
    assert len({each.id for each in listing.resources}) == len(listing.resources)
    assert all(each.id and each.name for each in listing.resources)


@given(BODIES, st.integers(1, 5))
def test_any_json_becomes_hits_of_the_sources_asked_or_an_error_of_the_server(body: dict[str, Any], most: int) -> None:
    try:
        hits = response_parser.parse_hits("s", _answered(body), {"a"}, most)
    except GatewayError:
        return
    assert len(hits.hits) <= most
    assert all(each.resource_id == "a" and abs(each.score) < float("inf") for each in hits.hits)


@given(BODIES)
def test_any_json_becomes_an_answer_or_an_error_of_the_server(body: dict[str, Any]) -> None:
    try:
        written = response_parser.parse_answer("s", _answered(body), ["a"])
    except GatewayError:
        return
    assert isinstance(written.answer, str)
    assert all(written.citations)


@pytest.mark.contract("G15-4")
@given(st.lists(ANYTHING, max_size=4))
def test_whatever_is_let_through_fits_what_we_promise(entries: list[Any]) -> None:
    """So that one server cannot break the answer of all."""
    hits = response_parser.parse_hits("s", {"results": {"hits": [*entries, hit("h", "a", 1.0)]}}, {"a"}, 5)
    shown = [hit_as_json(each) for each in fuse({"s": hits.hits})]
    assert any(each["id"] == "h" for each in shown)
    SchemaCheck(OUTPUT_SCHEMAS[RAW_RESULTS]).check(contract_answer({"hits": shown}, {}))
    written = response_parser.parse_answer("s", {"answer": "so", "citations": entries, "artifacts": entries}, ["a"])
    results = {"answer": written.answer, "citations": [*written.citations]}
    artifacts = [*written.attachments.artifacts]
    SchemaCheck(OUTPUT_SCHEMAS[SYNTHESIZED]).check(contract_answer(results, {}, artifacts=artifacts))


@given(BODIES | st.dictionaries(st.sampled_from(["display", "canvas", "artifacts", "returned_file_names"]), ANYTHING))
def test_whatever_is_attached_fits_what_we_promise(body: dict[str, Any]) -> None:
    attached = response_parser.parse_attachments(body)
    artifacts, display, told = merge_attachments({"s": attached, "t": attached})
    answer = contract_answer({"resources": []}, {"servers": told}, artifacts=artifacts, display=display)
    SchemaCheck(OUTPUT_SCHEMAS[DISCOVER]).check(answer)
    assert len({each["name"] for each in artifacts}) == len(artifacts)
    assert orjson.dumps(answer)


async def test_a_server_without_structured_answers_is_read_from_its_text() -> None:
    said = json.dumps({"results": {"hits": [hit("h", "a", 1.0)]}})
    upstream = FakeUpstream([resource("a")])
    upstream.say(RAW_RESULTS, Relayed([{"type": "text", "text": said}], None, is_error=False))
    assert [each["id"] for each in await rig({"one": upstream}).hits(ANNA, "a")] == ["h"]


@pytest.mark.contract("G13-1")
@pytest.mark.parametrize("wrapped", [{"result": {"results": {"hits": []}}}, {"hits": []}])
def test_other_usual_shapes_are_understood(wrapped: dict[str, Any]) -> None:
    assert response_parser.parse_hits("s", _answered(wrapped), {"a"}, 5).hits == []


@pytest.mark.parametrize("score", [None, "high", True, float("nan"), float("inf"), 10**400, [1]])
def test_a_score_that_is_no_number_counts_as_none(score: object) -> None:
    (found,) = response_parser.parse_hits("s", {"hits": [hit("h", "a", 1.0) | {"score": score}]}, {"a"}, 5).hits
    assert found.score == 0.0


def test_texts_are_no_longer_than_they_may_be() -> None:
    huge = "x" * 1_000_000
    body = {"hits": [hit("h", "a", 1.0, snippet=huge, chunk=huge, title=huge, provenance={"x": huge})]}
    (found,) = response_parser.parse_hits("s", body, {"a"}, 5).hits
    assert found.provenance is None
    assert len(found.text) <= 50_000
    assert len(found.title or "") <= 500


def test_what_a_server_says_is_repeated_shortly_and_on_one_line() -> None:
    with pytest.raises(GatewayError) as caught:
        _answered({"results": {"error": {"code": "rate_limited", "message": "slow\n\x1b[31mdown " + "x" * 1000}}})
    assert caught.value.code == "rate_limited"
    assert len(caught.value.message) < 300
    assert "\n" not in caught.value.message
    assert "\x1b" not in caught.value.message


def test_an_error_without_a_code_of_the_contract_says_that_the_server_failed() -> None:
    with pytest.raises(UpstreamProtocol):
        response_parser.parse_body("s", Relayed([{"type": "text", "text": "Traceback"}], None, is_error=True))
    with pytest.raises(UpstreamProtocol):
        _answered({"error": "the disk is full"})


@pytest.mark.contract("G15-4")
@pytest.mark.parametrize("tool", [DISCOVER, RAW_RESULTS, SYNTHESIZED])
async def test_answers_of_all_tools_fit_the_schema_that_clients_are_told(tool: str) -> None:
    upstream = FakeUpstream([resource("a", groups=["users"])], [hit("h", "a", 1.0)], answers=True)
    more = {} if tool == DISCOVER else {"query": "q", "sources": ["a", "nowhere"]}
    SchemaCheck(OUTPUT_SCHEMAS[tool]).check(await rig({"one": upstream}).answer(ANNA, tool, **more))
