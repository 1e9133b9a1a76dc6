"""Answers: written by the server if it can, otherwise from the hits, with citations that exist."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from armarium.capabilities.gateway.contract import RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.query.synthesis import AnswerWriter
from armarium.foundation.audit import AuditFilter, read_records
from armarium.providers.interfaces import Message
from armarium.providers.vendors import OPENAI
from support.rag_fakes import ANNA, FakeSource, FakeUpstream, hit, own_hit, resource, rig

Json = dict[str, Any]
LAMP = "The lamp is lit at dusk by the keeper. Its lens turns once in thirty seconds."
HORN = "In fog the horn sounds every two minutes."


def lighthouse(**more: Any) -> FakeUpstream:
    return FakeUpstream(
        [resource("guide"), resource("fog")],
        [hit("lamp", "guide", 0.9, chunk=LAMP), hit("horn", "fog", 0.8, chunk=HORN)],
        **more,
    )


class FakeChat:
    """A model that says what it is told to, or fails."""

    model = "parrot"

    def __init__(self, says: str | Exception) -> None:
        self._says = says
        self.heard: list[Message] = []

    async def stream(self, messages: Sequence[Message], **options: Any) -> AsyncGenerator[str]:
        self.heard += messages
        if isinstance(self._says, Exception):
            raise self._says
        for word in self._says.split(" "):
            yield word + " "

    async def aclose(self) -> None: ...


def writer(says: str | Exception) -> AnswerWriter:
    return AnswerWriter(FakeChat(says), timeout_s=5, max_context_chars=2000)


async def synthesized(served: Any, *sources: str, **more: Any) -> Json:
    return await served.answer(ANNA, SYNTHESIZED, query="When is the lamp lit?", sources=list(sources), **more)


@pytest.mark.contract("G9-3")
async def test_the_only_server_writes_the_answer_itself() -> None:
    upstream = lighthouse(answers=True)
    answer = await synthesized(rig({"one": upstream}), "guide", synthesis_params={"style": "short"})
    assert answer["results"]["answer"] == "as the server says"
    assert answer["results"]["citations"] == [{"resourceId": "one:guide", "server": "one"}]
    assert answer["meta_data"]["synthesized_by"] == "one"
    (asked,) = upstream.calls_of(SYNTHESIZED)
    assert (asked["username"], asked["synthesis_params"]) == ("anna", {"style": "short"})
    assert not upstream.calls_of(RAW_RESULTS)


@pytest.mark.contract("G3.3-7")
async def test_what_a_server_shows_beside_its_answer_is_passed_on_as_far_as_it_is_of_the_contract() -> None:
    upstream = lighthouse(answers=True)
    upstream.say(
        SYNTHESIZED,
        {
            "results": {"answer": "so", "citations": [7, {"title": "T"}], "limits": {"truncated": True, "reason": 5}},
            "artifacts": [{"name": "r.html", "b64": "PGI+", "mime": "text/html", "path": "/etc"}, {"name": "x"}],
            "display": {"open_canvas": True, "primary_file": "r.html", "mode": 3, "run": "this"},
            "meta_data": {"model": "m-1", "tokens": {"prompt": 9, "completion": 3, "note": "cheap"}},
        },
    )
    answer = await synthesized(rig({"one": upstream}), "guide")
    assert answer["artifacts"] == [{"name": "r.html", "b64": "PGI+", "mime": "text/html", "size": 3, "server": "one"}]
    assert answer["display"] == {"open_canvas": True, "primary_file": "r.html", "server": "one"}
    assert answer["results"]["limits"] == {"truncated": True}
    assert (answer["meta_data"]["model"], answer["meta_data"]["tokens"]) == ("m-1", {"prompt": 9, "completion": 3})
    assert answer["meta_data"]["latency_ms"] >= 0
    told = answer["meta_data"]["servers"]["one"]
    assert (told["dropped"], told["dropped_artifacts"]) == (1, 1)
    assert told["meta_data"]["tokens"]["note"] == "cheap"


@pytest.mark.contract("G2-2", "G3.3-5", "G5.1-2", "G15-2")
async def test_a_server_without_the_tool_is_answered_from_by_its_own_sentences_with_citations() -> None:
    answer = await synthesized(rig({"one": lighthouse()}), "guide")
    results = answer["results"]
    assert "The lamp is lit at dusk by the keeper. [1]" in results["answer"]
    (citation,) = results["citations"]
    assert (citation["marker"], citation["resourceId"], citation["uri"]) == ("[1]", "one:guide", "wiki://guide/lamp")
    assert answer["meta_data"]["model"] == "extractive"
    assert answer["meta_data"]["synthesized_by"] == "armarium"


async def test_sources_of_several_servers_are_answered_from_together() -> None:
    corpus = FakeSource("corpus", {"*": ["corpus"]}, [own_hit("oil", "corpus", "The lamp burns oil that is lit.")])
    served = rig({"one": lighthouse(answers=True)}, own=[corpus])
    answer = await synthesized(served, "guide", "corpus")
    assert {citation["server"] for citation in answer["results"]["citations"]} == {"one", "armarium"}


@pytest.mark.contract("G9-3")
@pytest.mark.parametrize("code", ["backend_unavailable", "something_else"])
async def test_a_server_that_cannot_write_now_is_searched_instead(code: str) -> None:
    upstream = lighthouse(answers=True)
    upstream.refuse_with(SYNTHESIZED, code)
    answer = await synthesized(rig({"one": upstream}), "guide")
    assert "lit at dusk" in answer["results"]["answer"]


@pytest.mark.parametrize("code", ["unauthorized_user", "unauthorized_source", "token_expired", "rate_limited"])
async def test_a_servers_denial_is_not_gone_around(code: str) -> None:
    upstream = lighthouse(answers=True)
    upstream.refuse_with(SYNTHESIZED, code)
    served = rig({"one": upstream})
    assert (await served.refusal(ANNA, SYNTHESIZED, query="q", sources=["guide"]))["code"] == code
    assert not upstream.calls_of(RAW_RESULTS)


async def test_a_server_that_had_its_time_is_not_waited_for_again() -> None:
    async def never(asked: Json) -> Json:
        await anyio.sleep_forever()
        raise AssertionError

    upstream = lighthouse(answers=True)
    upstream.handlers[SYNTHESIZED] = never
    served = rig({"one": upstream}, {"one": {"timeouts": {"call_s": 0.05}}})
    refused = await served.refusal(ANNA, SYNTHESIZED, query="q", sources=["guide"])
    assert (refused["code"], refused["reason"]) == ("backend_unavailable", "backend_timeout")
    assert not upstream.calls_of(RAW_RESULTS)


async def test_a_model_answers_from_numbered_excerpts_and_numbers_that_do_not_exist_are_taken_out() -> None:
    chat = writer("The lamp is lit at dusk [1], the horn in fog [2] and the moon at noon [9] [1, 7].")
    answer = await synthesized(rig({"one": lighthouse()}, writer=chat), "guide", "fog")
    assert answer["results"]["answer"] == "The lamp is lit at dusk [1], the horn in fog [2] and the moon at noon [1]."
    assert [citation["marker"] for citation in answer["results"]["citations"]] == ["[1]", "[2]"]
    assert answer["meta_data"]["model"] == "parrot"
    tokens = answer["meta_data"]["tokens"]
    assert tokens["prompt"] > tokens["completion"] > 0
    assert tokens["estimated"]
    assert isinstance(chat.chat, FakeChat)
    assert LAMP in chat.chat.heard[1].content


@pytest.mark.contract("G3.3-7")
async def test_when_the_model_fails_the_hits_speak_for_themselves() -> None:
    answer = await synthesized(rig({"one": lighthouse()}, writer=writer(OPENAI.unavailable("away"))), "guide")
    assert answer["meta_data"]["model"] == "extractive"
    assert answer["meta_data"]["writer_error"] == OPENAI.unavailable.code
    assert answer["meta_data"]["tokens"] == {"prompt": 0, "completion": 0}
    assert "lit at dusk" in answer["results"]["answer"]


async def test_markers_inside_a_hit_are_not_taken_for_citations() -> None:
    upstream = FakeUpstream(
        [resource("guide")], [hit("x", "guide", 1.0, chunk="The lamp is lit at noon [1] they say.")]
    )
    answer = await synthesized(rig({"one": upstream}), "guide")
    assert "(1) they say. [1]" in answer["results"]["answer"]


@pytest.mark.contract("G3.3-3", "G3.3-6")
async def test_an_answer_is_cut_to_the_length_asked_for_and_says_so() -> None:
    answer = await synthesized(rig({"one": lighthouse()}), "guide", synthesis_params={"max_chars": 60})
    assert len(answer["results"]["answer"]) <= 60
    assert answer["results"]["limits"]["truncated"] is True
    assert all(each["marker"] in answer["results"]["answer"] for each in answer["results"]["citations"])


@pytest.mark.contract("G3.3-4")
async def test_hits_that_the_caller_chose_are_what_the_answer_is_made_of() -> None:
    upstream = lighthouse()
    served = rig({"one": upstream})
    chosen = (await served.hits(ANNA, "guide", "fog"))[:1]
    answer = await synthesized(served, "guide", "fog", provided_context={"hits": chosen})
    assert len(upstream.calls_of(RAW_RESULTS)) == 1
    assert [citation["resourceId"] for citation in answer["results"]["citations"]] == ["one:guide"]


@pytest.mark.contract("G3.3-4")
async def test_chosen_hits_reach_the_server_under_its_own_ids() -> None:
    upstream = lighthouse(answers=True)
    chosen = [{"id": "lamp", "resourceId": "one:guide", "snippet": "s"}]
    await synthesized(rig({"one": upstream}), "guide", provided_context={"hits": chosen})
    (asked,) = upstream.calls_of(SYNTHESIZED)
    assert asked["provided_context"]["hits"][0]["resourceId"] == "guide"


async def test_chosen_hits_do_not_open_a_source_that_may_not_be_used() -> None:
    served = rig({"one": lighthouse()}, {"one": {"groups": ["legal"]}})
    refused = await served.refusal(
        ANNA, SYNTHESIZED, query="q", sources=["one:guide"], provided_context={"hits": [{"snippet": "s"}]}
    )
    assert refused["code"] == "unauthorized_source"


async def test_where_nothing_is_found_the_answer_says_so() -> None:
    answer = await synthesized(rig({"one": FakeUpstream([resource("guide")])}), "guide")
    assert answer["results"]["citations"] == []
    assert "Nothing was found" in answer["results"]["answer"]


FOREIGN = [
    {"id": "law", "resourceId": "law:files", "snippet": "The lamp is lit in secret."},
    {"id": "vault", "resourceId": "one:fog", "snippet": "The lamp is lit in the vault."},
    {"id": "nowhere", "resourceId": 7, "snippet": "The lamp is lit nowhere."},
    {"id": "empty", "resourceId": "one:guide"},
]


async def test_a_server_is_told_only_hits_of_its_own_sources_of_this_call_and_only_the_fields_of_a_hit() -> None:
    upstream = lighthouse(answers=True)
    served = rig({"one": upstream, "law": FakeUpstream([resource("files")])}, {"law": {"groups": ["legal"]}})
    mine = {"id": "lamp", "score": 1, "resourceId": "one:guide", "snippet": "s", "capability_token": "t", "server": "x"}
    answer = await synthesized(served, "one:guide", provided_context={"hits": [*FOREIGN, mine]})
    (asked,) = upstream.calls_of(SYNTHESIZED)
    kept = {"id": "lamp", "score": 1.0, "resourceId": "guide", "snippet": "s"}
    assert asked["provided_context"] == {"hits": [kept]}
    assert answer["meta_data"]["provided_context"] == {"used": 1, "dropped": 4}


async def test_chosen_hits_of_sources_that_are_not_of_the_call_are_neither_quoted_nor_cited() -> None:
    served = rig({"one": lighthouse(), "law": FakeUpstream([resource("files")])}, {"law": {"groups": ["legal"]}})
    mine = {"resourceId": "guide", "snippet": "The lamp is lit by me."}
    answer = await synthesized(served, "one:guide", "law:files", provided_context={"hits": [*FOREIGN, mine]})
    assert "The lamp is lit by me. [1]" in answer["results"]["answer"]
    assert [citation["resourceId"] for citation in answer["results"]["citations"]] == ["one:guide"]
    for said in ("secret", "vault", "nowhere"):
        assert said not in answer["results"]["answer"]
    assert answer["meta_data"]["provided_context"] == {"used": 1, "dropped": 4}


async def test_a_chosen_hit_that_names_no_source_is_of_the_only_one_or_of_none() -> None:
    nameless = {"hits": [{"snippet": "The lamp is lit by hand."}]}
    one = await synthesized(rig({"one": lighthouse()}), "guide", provided_context=nameless)
    assert one["results"]["citations"][0]["resourceId"] == "one:guide"
    two = await synthesized(rig({"one": lighthouse()}), "guide", "fog", provided_context=nameless)
    assert two["meta_data"]["provided_context"] == {"used": 0, "dropped": 1}
    assert two["results"]["citations"] == []


async def test_a_context_without_hits_is_no_choice() -> None:
    answer = await synthesized(rig({"one": lighthouse()}), "guide", provided_context={})
    assert "lit at dusk" in answer["results"]["answer"]


@pytest.mark.parametrize(
    ("max_chars", "expected", "markers"),
    [
        (45, "The lamp is lit at dusk. [1] The horn sounds.", ["[1]"]),
        (44, "The lamp is lit at dusk. [1]", ["[1]"]),
        (28, "The lamp is lit at dusk. [1]", ["[1]"]),
        (27, "The lamp is lit at dusk.", []),
        (20, "The lamp is lit at…", []),
        (1, "…", []),
    ],
)
async def test_a_servers_answer_that_is_too_long_is_cut_where_a_sentence_or_a_word_ends(
    max_chars: int, expected: str, markers: list[str]
) -> None:
    upstream = lighthouse(answers=True)
    cited = [{"marker": "[1]", "resourceId": "guide"}, {"marker": "[2]", "resourceId": "guide"}, {"title": "Unmarked"}]
    text = "The lamp is lit at dusk. [1] The horn sounds. It is loud. [2]"
    upstream.say(SYNTHESIZED, {"results": {"answer": text, "citations": cited}})
    answer = await synthesized(rig({"one": upstream}), "guide", synthesis_params={"max_chars": max_chars})
    results = answer["results"]
    assert results["answer"] == expected
    assert results["limits"]["truncated"] is True
    assert [each.get("marker") for each in results["citations"]] == [*markers, None]


async def test_a_servers_answer_that_fits_is_left_as_it_is() -> None:
    upstream = lighthouse(answers=True)
    answer = await synthesized(rig({"one": upstream}), "guide", synthesis_params={"max_chars": 18})
    assert answer["results"]["answer"] == "as the server says"
    assert "limits" not in answer["results"]


@pytest.mark.parametrize("code", ["unauthorized_source", "rate_limited"])
async def test_when_the_one_server_left_refuses_what_was_denied_before_is_told_as_well(
    code: str, tmp_path: Path
) -> None:
    left, forbidden = FakeUpstream([resource("a")], answers=True), FakeUpstream([resource("b")])
    left.refuse_with(SYNTHESIZED, code)
    served = rig({"left": left, "law": forbidden}, {"law": {"groups": ["legal"]}}, audit_file=tmp_path / "audit")
    sources = ["law:b", "left:a", "nowhere"]
    outcome = await served.outcome(ANNA, SYNTHESIZED, query="q", sources=sources)
    body = outcome.result["structuredContent"]
    assert body["results"]["error"]["code"] == code
    told = {each["source"]: each["code"] for each in body["meta_data"]["errors"]}
    assert told == {"left:a": code, "law:b": "unauthorized_source", "nowhere": "invalid_source"}
    await served.close_audit()
    rows = [record for _, record in read_records(tmp_path / "audit", AuditFilter(), last=10)]
    codes = {(row.root, row.path): row.code for row in rows}
    assert codes[("left", "a")] == code
    assert codes[("law", "b")] == "unauthorized_source"
    assert codes[(None, "nowhere")] == "invalid_source"
