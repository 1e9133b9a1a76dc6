"""Search over many servers at once: identity, concurrency, partial results, one order for all hits."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from armarium.capabilities.gateway.contract import CONTRACT_VERSION, DISCOVER, RAW_RESULTS
from armarium.capabilities.gateway.errors import UpstreamTimeout, UpstreamUnavailable
from armarium.capabilities.gateway.model import RagHit
from armarium.capabilities.gateway.query.rank_fusion import RerankPolicy, fuse
from armarium.capabilities.gateway.query.source_cache import SourceCache
from armarium.capabilities.store.errors import RateLimited
from armarium.foundation.tools import Relayed
from support.rag_fakes import ANNA, LEX, FakeSource, FakeUpstream, hit, own_hit, resource, rig, specs


def wiki(source: str, *scores: float, **more: object) -> FakeUpstream:
    return FakeUpstream(
        [resource(source)], [hit(f"{source}{n}", source, score) for n, score in enumerate(scores)], **more
    )


@pytest.mark.contract("G1-4", "G2-3", "G7-1", "G12-1")
@pytest.mark.parametrize("tool", [DISCOVER, RAW_RESULTS])
async def test_the_username_is_always_the_authenticated_one(tool: str) -> None:
    upstream = wiki("a", 0.5)
    served = rig({"one": upstream})
    more = {} if tool == DISCOVER else {"query": "q", "sources": ["a"]}
    await served.answer(ANNA, tool, username="root", **more)
    assert {arguments["username"] for _, arguments in upstream.asked} == {"anna"}


async def test_an_answer_has_the_shape_of_the_contract() -> None:
    served = rig({"one": wiki("a", 0.5)})
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a"], top_k=3)
    assert answer["contract_version"] == CONTRACT_VERSION
    assert answer["results"]["stats"]["top_k"] == 3
    assert answer["meta_data"]["servers"]["one"]["hits"] == 1
    (found,) = answer["results"]["hits"]
    assert (found["resourceId"], found["server"], found["serverScore"]) == ("one:a", "one", 0.5)


@pytest.mark.contract("G1-1", "G5.1-6")
async def test_hits_of_several_servers_are_merged_by_rank_and_never_by_raw_score() -> None:
    served = rig({"loud": wiki("a", 900.0, 800.0), "quiet": wiki("b", 0.02, 0.01)})
    found = await served.hits(ANNA, "loud:a", "quiet:b")
    assert [each["id"] for each in found] == ["a0", "b0", "a1", "b1"]
    assert [each["score"] for each in found] == sorted((each["score"] for each in found), reverse=True)


def test_a_chunk_that_several_servers_find_comes_first_and_once() -> None:
    same = {"snippet": "the lamp", "uri": "wiki://lamp"}
    lists = {
        "one": [RagHit("x", 1, "a", snippet="x", uri="u:x"), RagHit("p", 1, "a", **same)],
        "two": [RagHit("y", 1, "b", snippet="y", uri="u:y"), RagHit("q", 1, "b", **same)],
    }
    found = fuse(lists)
    assert [each.hit.id for each in found] == ["p", "x", "y"]
    assert all(0 < each.score <= 1 for each in found)


async def test_hits_of_one_server_come_in_the_order_of_its_scores() -> None:
    served = rig({"one": wiki("a", 0.1, 0.9, 0.5)})
    assert [each["serverScore"] for each in await served.hits(ANNA, "a")] == [0.9, 0.5, 0.1]


@pytest.mark.contract("G3.2-3", "G9-2")
async def test_no_more_than_top_k_hits_come_back_whatever_servers_send() -> None:
    upstream = wiki("a")
    upstream.say(RAW_RESULTS, {"results": {"hits": [hit(str(n), "a", n) for n in range(50)]}})
    served = rig({"one": upstream, "two": wiki("b", *[0.5] * 9)})
    assert len(await served.hits(ANNA, "one:a", "two:b", top_k=5)) == 5


@pytest.mark.contract("G13-2")
async def test_servers_are_asked_at_the_same_time() -> None:
    everybody_asked, asked = anyio.Event(), []

    async def meet(arguments: dict) -> dict:
        asked.append(arguments["sources"])
        if len(asked) == 10:
            everybody_asked.set()
        # LookupRequest one after the other, the first would wait for ever.
        await everybody_asked.wait()
        return {"results": {"hits": [hit("h", arguments["sources"][0], 1.0)]}}

    upstreams = {f"s{n}": wiki(f"r{n}") for n in range(10)}
    for upstream in upstreams.values():
        upstream.handlers[RAW_RESULTS] = meet
    served = rig(upstreams)
    found = await served.hits(ANNA, *[f"s{n}:r{n}" for n in range(10)], top_k=20)
    assert len(found) == 10


@pytest.mark.contract("G13-2")
async def test_a_server_that_never_answers_costs_its_deadline_and_the_others_are_not_lost() -> None:
    async def never(asked: dict) -> dict:
        await anyio.sleep_forever()
        raise AssertionError

    slow = wiki("b", 1.0)
    slow.handlers[RAW_RESULTS] = never
    served = rig({"one": wiki("a", 1.0), "slow": slow}, {"slow": {"timeouts": {"call_s": 0.05}}})
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a", "slow:b"])
    assert [each["id"] for each in answer["results"]["hits"]] == ["a0"]
    (error,) = answer["meta_data"]["errors"]
    assert (error["source"], error["server"], error["code"]) == ("slow:b", "slow", "backend_unavailable")
    assert error["retryable"]


async def test_a_server_that_hangs_outside_of_its_calls_is_left_behind_too() -> None:
    class Hanging(FakeUpstream):
        async def tools(self, *, timeout_s: float | None = None) -> list:
            await anyio.sleep_forever()
            raise AssertionError

    served = rig({"one": wiki("a", 1.0), "slow": Hanging()}, discover_timeout_s=0.05)
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a", "slow:b"])
    assert [error["code"] for error in answer["meta_data"]["errors"]] == ["backend_unavailable"]


GARBAGE = [
    None,
    {},
    {"results": None},
    {"results": {"hits": "many"}},
    {"results": {"hits": {"a": 1}}},
    {"unexpected": [1, 2, 3]},
]


@pytest.mark.parametrize("body", GARBAGE)
async def test_garbage_of_one_server_is_an_error_or_nothing_of_that_server_alone(body: object) -> None:
    broken = wiki("b")
    broken.say(RAW_RESULTS, Relayed([{"type": "text", "text": "{not json"}], body, is_error=False))
    served = rig({"one": wiki("a", 1.0), "broken": broken})
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a", "broken:b"])
    assert [each["server"] for each in answer["results"]["hits"]] == ["one"]


async def test_hits_of_sources_nobody_asked_for_are_dropped_and_counted() -> None:
    liar = wiki("a")
    liar.say(RAW_RESULTS, {"results": {"hits": [hit("x", "law", 9.0), hit("y", "one:a", 9.0), hit("z", "a", 1.0), 7]}})
    served = rig({"one": liar})
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a"])
    assert [each["id"] for each in answer["results"]["hits"]] == ["z"]
    assert answer["meta_data"]["servers"]["one"]["dropped"] == 3


@pytest.mark.contract("G5.1-8", "G13-3")
async def test_one_source_failing_leaves_the_others_and_all_failing_is_an_error() -> None:
    served = rig({"one": wiki("a", 1.0)})
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a", "nowhere"])
    assert [error["code"] for error in answer["meta_data"]["errors"]] == ["invalid_source"]
    outcome = await served.outcome(ANNA, RAW_RESULTS, query="q", sources=["nowhere", "one:neither"])
    assert outcome.error is not None
    body = outcome.result["structuredContent"]
    assert body["results"]["error"]["code"] == "invalid_source"
    assert [error["source"] for error in body["meta_data"]["errors"]] == ["nowhere", "one:neither"]


@pytest.mark.contract("G3.4-1")
@pytest.mark.parametrize(
    "code",
    [
        "unauthorized_user",
        "unauthorized_source",
        "rate_limited",
        "invalid_source",
        "backend_unavailable",
        "token_expired",
    ],
)
@pytest.mark.parametrize("place", ["results", "meta_data"])
async def test_each_code_of_the_contract_is_passed_on_from_where_servers_put_it(code: str, place: str) -> None:
    upstream = wiki("a")
    upstream.say(RAW_RESULTS, {"results": {}, "meta_data": {}} | {place: {"error": code}})
    served = rig({"one": upstream})
    assert (await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["a"]))["code"] == code


@pytest.mark.contract("G5.1-5")
async def test_an_id_that_several_servers_have_must_say_which() -> None:
    served = rig({"one": wiki("same", 1.0), "two": wiki("same", 1.0)})
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["same"])
    assert refused["code"] == "invalid_source"
    assert "one:same" in refused["hint"]
    assert "two:same" in refused["hint"]
    assert [each["server"] for each in await served.hits(ANNA, "two:same")] == ["two"]


async def test_an_id_that_others_may_not_see_elsewhere_is_still_unique_for_them() -> None:
    served = rig({"one": wiki("same", 1.0), "two": wiki("same", 1.0)}, {"two": {"groups": ["legal"]}})
    assert [each["server"] for each in await served.hits(ANNA, "same")] == ["one"]
    assert (await served.refusal(LEX, RAW_RESULTS, query="q", sources=["same"]))["code"] == "invalid_source"


@pytest.mark.contract("G3.2-1")
async def test_a_query_without_words_is_told_before_anybody_is_asked() -> None:
    upstream = wiki("a", 1.0)
    refused = await rig({"one": upstream}).refusal(ANNA, RAW_RESULTS, query=" \n", sources=["a"])
    assert refused["code"] == "INVALID_ARGUMENT"
    assert upstream.asked == []


async def test_a_fault_of_ours_over_one_server_is_that_servers_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def quoting(asked: dict) -> dict:
        raise RuntimeError("said: " + "a-secret-" + "answer")

    broken = wiki("b")
    broken.handlers[RAW_RESULTS] = quoting
    served = rig({"one": wiki("a", 1.0), "broken": broken})
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["a", "b"])
    assert [error["server"] for error in answer["meta_data"]["errors"]] == ["broken"]
    (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
    assert "a-secret-answer" not in f"{record.__dict__}"
    assert "in quoting" in record.__dict__["where"]


async def test_the_same_source_written_twice_is_asked_once() -> None:
    upstream = wiki("a", 1.0)
    served = rig({"one": upstream})
    assert len(await served.hits(ANNA, "a", "one:a")) == 1
    assert [asked["sources"] for asked in upstream.calls_of(RAW_RESULTS)] == [["a"]]


async def test_a_source_that_came_since_the_last_discovery_is_found() -> None:
    upstream = wiki("a", 1.0)
    served = rig({"one": upstream})
    assert await served.ids(ANNA) == ["one:a"]
    upstream.resources.append(resource("new"))
    upstream.hits.append(hit("n", "new", 1.0))
    assert [each["id"] for each in await served.hits(ANNA, "one:new")] == ["n"]


async def test_a_mistyped_id_does_not_wait_for_every_server_again_and_again() -> None:
    first, second = wiki("a", 1.0), wiki("b", 1.0)
    served = rig({"one": first, "two": second})
    for _ in range(5):
        refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["mistyped"])
        assert refused["code"] == "invalid_source"
    assert (len(first.calls_of(DISCOVER)), len(second.calls_of(DISCOVER))) == (1, 1)
    await served.refusal(LEX, RAW_RESULTS, query="q", sources=["mistyped"])
    assert len(first.calls_of(DISCOVER)) == 2, "another caller may be told of other sources"


async def test_a_server_that_did_not_answer_is_waited_for_again_only_by_its_name() -> None:
    quick, slow = wiki("a", 1.0), wiki("b", 1.0)
    slow.handlers[DISCOVER] = lambda asked: anyio.sleep_forever()
    served = rig({"quick": quick, "slow": slow}, call_timeout_s=0.05, discover_timeout_s=0.05)
    for _ in range(3):
        assert await served.hits(ANNA, "a")
        refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["mistyped"])
        assert "slow" in refused["hint"]
    del slow.handlers[DISCOVER]
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["b"])
    assert len(slow.calls_of(DISCOVER)) == 1
    assert await served.hits(ANNA, "slow:b")


async def test_a_server_that_is_silent_after_a_mistyped_id_is_still_searched_for_what_it_told_of() -> None:
    first, second = wiki("a", 1.0), wiki("b", 1.0)
    served = rig({"one": first, "two": second}, discover_timeout_s=0.05)
    assert await served.hits(ANNA, "b")
    second.handlers[DISCOVER] = lambda asked: anyio.sleep_forever()
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["mistyped"])
    assert await served.hits(ANNA, "b")


async def test_a_project_of_ones_own_is_found_at_once_even_after_it_was_asked_for_in_vain() -> None:
    mine = {"anna": ["store:old"]}
    served = rig({}, own=[FakeSource("store", mine, [own_hit("n", "store:new", "lamp")])])
    for _ in range(2):
        await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["armarium:store:new"])
    mine["anna"].append("store:new")
    assert await served.hits(ANNA, "armarium:store:new")


def test_a_server_that_was_asked_in_vain_is_left_in_peace_for_a_moment() -> None:
    now = 0.0
    known = SourceCache(ttl_s=60, clock=lambda: now)
    spec, other = specs({"one": {}, "two": {}}).values()
    failure = UpstreamTimeout("it did not answer")
    known.record_miss(ANNA, spec)
    known.record_miss(ANNA, other, failure)
    assert (known.has_recent_miss(ANNA, spec), known.recent_failure(ANNA, spec)) == (True, None)
    assert known.recent_failure(ANNA, other) is failure
    assert not known.has_recent_miss(LEX, spec)
    assert not known.has_recent_miss(ANNA, replace(spec, description="another"))
    now = 5.0
    assert not known.has_recent_miss(ANNA, spec)
    assert known.recent_failure(ANNA, other) is None


async def test_a_search_relies_on_what_servers_lately_told() -> None:
    upstream = wiki("a", 1.0)
    served = rig({"one": upstream})
    for _ in range(5):
        await served.hits(ANNA, "a")
    assert len(upstream.calls_of(DISCOVER)) == 1
    forgetful = rig({"one": upstream}, discovery_kept_s=0)
    for _ in range(2):
        await forgetful.hits(ANNA, "a")
    assert len(upstream.calls_of(DISCOVER)) == 3


@pytest.mark.contract("G13-1")
async def test_options_that_a_tool_does_not_know_are_not_sent_to_it() -> None:
    upstream = wiki("a", 1.0)
    for tool in upstream.offered:
        tool.input_schema["properties"] = {"username": {}, "query": {}, "sources": {}}
    served = rig({"one": upstream})
    await served.hits(ANNA, "a", filters={"tags": []}, ranking={"rerank": False})
    assert set(upstream.calls_of(RAW_RESULTS)[0]) == {"username", "query", "sources"}


@pytest.mark.contract("G3.2-4", "G3.2-5")
async def test_filters_and_ranking_reach_servers_that_take_them() -> None:
    upstream = wiki("a", 1.0)
    served = rig({"one": upstream})
    await served.hits(ANNA, "a", filters={"tags": ["x"]}, ranking={"model": "m"})
    asked = upstream.calls_of(RAW_RESULTS)[0]
    assert (asked["filters"], asked["ranking"]) == ({"tags": ["x"]}, {"model": "m"})


async def test_own_sources_and_servers_answer_together() -> None:
    corpus = FakeSource("corpus", {"*": ["corpus"]}, [own_hit("guide", "corpus", "the lamp is lit at dusk")])
    served = rig({"one": wiki("a", 1.0)}, own=[corpus])
    assert await served.ids(ANNA) == ["armarium:corpus", "one:a"]
    assert {each["server"] for each in await served.hits(ANNA, "corpus", "a")} == {"armarium", "one"}


async def test_an_own_source_that_fails_does_not_take_the_other_with_it() -> None:
    class Failing(FakeSource):
        async def search(self, *asked: object) -> list:
            raise UpstreamUnavailable("the database is away")

    corpus = FakeSource("corpus", {"*": ["corpus"]}, [own_hit("guide", "corpus", "the lamp")])
    served = rig({}, own=[corpus, Failing("store", {"*": ["store:notes"]})])
    answer = await served.answer(ANNA, RAW_RESULTS, query="q", sources=["corpus", "store:notes"])
    assert [each["id"] for each in answer["results"]["hits"]] == ["guide"]
    assert [(error["source"], error["code"]) for error in answer["meta_data"]["errors"]] == [
        ("store:notes", "backend_unavailable")
    ]


async def test_a_store_that_is_asked_too_often_says_so_in_the_words_of_the_contract() -> None:
    class Busy(FakeSource):
        async def search(self, *asked: object) -> list:
            raise RateLimited("too many calls", hint="wait a little")

    served = rig({}, own=[Busy("store", {"*": ["store:notes"]})])
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["store:notes"])
    assert (refused["code"], refused["retryable"], refused["hint"]) == ("rate_limited", True, "wait a little")


class Backwards:
    """A reranker that turns every order around."""

    async def rerank(self, query: str, texts: list[str], top_n: int) -> list[tuple[int, float]]:
        return [(place, place / 10) for place in reversed(range(len(texts)))][:top_n]

    async def aclose(self) -> None: ...


@pytest.mark.contract("G3.2-5", "G5.1-6")
async def test_a_call_that_asks_for_it_gets_the_rerankers_order() -> None:
    look = RerankPolicy(Backwards(), candidates=10, timeout_s=5)
    served = rig({"one": wiki("a", 0.9, 0.5, 0.1)}, rerank_policy=look)
    assert [each["id"] for each in await served.hits(ANNA, "a")] == ["a0", "a1", "a2"]
    assert [each["id"] for each in await served.hits(ANNA, "a", ranking={"rerank": True})] == ["a2", "a1", "a0"]


async def test_a_caller_who_goes_away_ends_the_question_to_the_server() -> None:
    began, ended = anyio.Event(), anyio.Event()

    async def never(asked: dict) -> dict:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    upstream = wiki("a")
    upstream.handlers[RAW_RESULTS] = never
    served = rig({"one": upstream})
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: served.outcome(ANNA, RAW_RESULTS, query="q", sources=["a"]))
            await began.wait()
            tasks.cancel_scope.cancel()
        await ended.wait()


@pytest.mark.contract("G3.2-3")
async def test_without_a_number_a_search_gives_eight_hits() -> None:
    upstream = FakeUpstream([resource("a")], [hit(f"h{number:02}", "a", 1.0) for number in range(12)])
    served = rig({"one": upstream})
    assert len(await served.hits(ANNA, "a")) == 8
    (asked,) = upstream.calls_of(RAW_RESULTS)
    assert asked["top_k"] == 8
