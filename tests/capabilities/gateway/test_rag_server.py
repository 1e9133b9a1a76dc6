"""The standalone RAG server keeps the contract: provided hits, filters, pages, tokens."""

from __future__ import annotations

import base64
import html
import json
from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.rag_server import rag_server_tools
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens, CapabilityVerifier, server_key
from armarium.foundation.telemetry import Metrics
from armarium.retrieval.sources import Sources
from armarium.surfaces.dispatch import Caller, Dispatcher
from support.rag_fakes import ANNA, FakeSource, own_hit

Json = dict[str, Any]
SECRET = b"a secret that the gateway alone has"
HORN = {"query": "How does the horn sound?", "sources": ["files"]}


def server(tokens: CapabilityVerifier | None = None) -> Dispatcher:
    sources = Sources()
    sources.register(FakeSource("corpus", {"*": ["corpus"]}, [own_hit("horn", "corpus", "The horn sounds in fog.")]))
    tools = [("rag-server", tool) for tool in rag_server_tools(sources, tokens)]
    return Dispatcher(tools, metrics=Metrics(), audit=None, default_deadline_s=None, check_answers=True)


async def asked(served: Dispatcher, tool: str, **arguments: Any) -> Json:
    result = (await served.outcome(Caller(ANNA, "test"), tool, {"username": "anna", **arguments})).result
    return result["structuredContent"]


async def test_an_answer_is_made_of_the_hits_that_the_caller_chose() -> None:
    chosen = [
        {"id": "mine", "score": 1, "resourceId": "files", "snippet": "The horn sounds purple."},
        {"id": "other", "score": 1, "resourceId": "elsewhere", "snippet": "The horn sounds stolen."},
    ]
    answer = (await asked(server(), SYNTHESIZED, **HORN, provided_context={"hits": chosen}))["results"]
    assert "The horn sounds purple. [1]" in answer["answer"]
    assert "in fog" not in answer["answer"]
    assert "stolen" not in answer["answer"]
    assert [each["resourceId"] for each in answer["citations"]] == ["files"]


@pytest.mark.parametrize("context", [{}, {"provided_context": {}}])
async def test_without_a_choice_the_answer_is_made_of_what_is_found(context: Json) -> None:
    answer = (await asked(server(), SYNTHESIZED, **HORN, **context))["results"]
    assert "The horn sounds in fog. [1]" in answer["answer"]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, 1),
        ({"search": "CORP"}, 1),
        ({"search": "law"}, 0),
        ({"types": ["files"]}, 1),
        ({"types": ["wiki"]}, 0),
        ({"tags": ["fog"]}, 0),
    ],
)
async def test_the_source_is_told_where_it_fits_what_is_wanted(filters: Json, found: int) -> None:
    told = (await asked(server(), DISCOVER, filters=filters))["results"]
    assert len(told["resources"]) == told["paging"]["total"] == found


async def test_a_page_behind_the_last_is_empty_and_says_so() -> None:
    told = (await asked(server(), DISCOVER, filters={"page": 7, "page_size": 3}))["results"]
    assert told == {"resources": [], "paging": {"page": 7, "page_size": 3, "total": 1}}


async def test_what_is_filtered_by_something_files_do_not_have_is_not_found() -> None:
    found = await asked(server(), RAW_RESULTS, **HORN, filters={"tags": ["fog"], "owners": []})
    assert found["results"]["hits"] == []
    assert found["meta_data"]["unmet_filters"] == ["tags"]
    unfiltered = await asked(server(), RAW_RESULTS, **HORN, filters={"tags": []})
    assert [each["id"] for each in unfiltered["results"]["hits"]] == ["horn"]


@pytest.mark.contract("G3.3-8", "G6-5", "G10-2")
async def test_an_answer_comes_with_a_page_and_its_citations_as_files() -> None:
    question = {**HORN, "query": "horn <script>alert(1)</script>"}
    answer = await asked(server(), SYNTHESIZED, **question)
    page, citations = answer["artifacts"]
    text = base64.b64decode(page["b64"])
    assert (page["name"], page["mime"], page["size"]) == ("report.html", "text/html", len(text))
    assert html.escape(answer["results"]["answer"]).encode() in text
    assert b"<script>" not in text
    assert json.loads(base64.b64decode(citations["b64"])) == answer["results"]["citations"]
    assert answer["display"]["primary_file"] == page["name"]


@pytest.mark.contract("G10-2")
async def test_a_token_for_another_server_opens_nothing_not_even_for_hits_that_were_chosen() -> None:
    served = server(CapabilityVerifier("one", server_key(SECRET, "one")))
    tokens = CapabilityTokens(SECRET)
    mine, theirs = (tokens.issue(name, "anna", ["files"])[0] for name in ("one", "two"))
    assert (await asked(served, RAW_RESULTS, **HORN, capability_token=mine))["results"]["hits"]
    for tool, more in ((RAW_RESULTS, {}), (SYNTHESIZED, {"provided_context": {"hits": []}})):
        refused = await asked(served, tool, **HORN, **more, capability_token=theirs)
        assert refused["results"]["error"]["code"] == "token_expired"
