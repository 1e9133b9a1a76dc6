"""Answers of the corpus as streams of events, over real HTTP, with emulated chat models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from armarium.foundation.errors import Cancelled, ResponseTooLarge
from armarium.surfaces.web.answer_stream import AnswerStream
from emulators import MistralEmulator, OpenAIEmulator, Refused, Silent, Stalled, Truncated
from support.api_server import STREAM, ApiServer, api_server, events_of, streamed, until_indexed
from support.corpus_calls import write_lighthouse
from support.waiting import eventually

Json = dict[str, Any]
KEY = "canary-5f3a9c-key"
QUESTION = {"question": "How often does the horn sound in fog?"}


@asynccontextmanager
async def serving(base: Path, **sections: Any) -> AsyncGenerator[ApiServer]:
    root = base / "lighthouse"
    write_lighthouse(root)
    corpus = {"root": str(root), "embedding": {"provider": "local"}, "ingest": {"watch": False}, **sections}
    async with api_server(base, corpus=corpus) as served:
        async with served.client() as http:
            await until_indexed(http)
        yield served


def mistral(emulator: MistralEmulator | OpenAIEmulator, **more: Any) -> Json:
    return {"chat": {"provider": "mistral", **more}, "mistral": {"base_url": emulator.url, "api_key": KEY}}


def openai(emulator: MistralEmulator | OpenAIEmulator, **more: Any) -> Json:
    settings = {"base_url": emulator.url, "api_key": KEY, "chat_model": "llama3.2"}
    return {"chat": {"provider": "openai", **more}, "openai": settings}


def kinds_of(events: list[tuple[str, Json]]) -> list[str]:
    """The kinds in order, each once for a run of the same."""
    return [kind for place, (kind, _) in enumerate(events) if place == 0 or events[place - 1][0] != kind]


def text_of(events: list[tuple[str, Json]]) -> str:
    return "".join(data["text"] for kind, data in events if kind == "text")


WHOLE = ["progress", "hits", "progress", "text", "citations", "done"]


async def test_without_a_chat_model_the_hits_come_first_and_the_sentences_after(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        events = await streamed(http, "/corpus/ask", QUESTION)
        whole = (await http.post("/corpus/ask", json=QUESTION)).json()
        await eventually(lambda: len(served.calls("corpus_ask")) == 2)
        recorded = served.calls("corpus_ask")
    assert kinds_of(events) == WHOLE
    by_kind = dict(events)
    assert by_kind["done"] == whole
    assert by_kind["hits"]["hits"] == whole["hits"]
    found_by = [hit["found_by"] for hit in whole["hits"]]
    # Everything in a small directory is near in meaning, and only the best hit has the words.
    assert (found_by[0], found_by[-1]) == ("both", "semantic")
    assert by_kind["citations"]["citations"] == whole["citations"]
    assert text_of(events) == whole["answer"]
    assert "model" not in whole
    assert [data["phase"] for kind, data in events if kind == "progress"] == ["searching", "answering"]
    # The record of both is the same, and tells nothing of the question but its length.
    assert {(record.outcome, record.surface) for record in recorded} == {("success", "api")}
    assert all("horn" not in record.arguments for record in recorded)


@pytest.mark.parametrize(
    ("emulated", "settings", "model"),
    [(MistralEmulator, mistral, "mistral-small-2506"), (OpenAIEmulator, openai, "llama3.2")],
)
async def test_with_a_chat_model_the_text_comes_in_the_pieces_of_the_provider(
    tmp_path: Path, emulated: type[MistralEmulator | OpenAIEmulator], settings: Callable[..., Json], model: str
) -> None:
    with emulated(KEY) as emulator:
        async with serving(tmp_path, **settings(emulator)) as served, served.client() as http:
            events = await streamed(http, "/corpus/ask", QUESTION)
        assert emulator.bodies("/chat/completions")[0]["stream"] is True
    assert kinds_of(events) == WHOLE
    assert sum(kind == "text" for kind, _ in events) > 5
    done = events[-1][1]
    assert text_of(events).strip() == done["answer"]
    assert done["model"] == model
    assert done["citations"]


async def test_a_stream_that_nobody_reads_on_ends_the_request_to_the_model(tmp_path: Path) -> None:
    with MistralEmulator(KEY) as emulator:
        async with serving(tmp_path, **mistral(emulator)) as served, served.client() as http:
            emulator.faults.append(Stalled(on="/chat/completions", after_events=4))
            async with http.stream("POST", "/corpus/ask", json=QUESTION, headers=STREAM) as answer:
                async for kind, _ in events_of(answer.aiter_lines()):
                    if kind == "text":
                        break
            await eventually(emulator.left.is_set, what="the server hangs up on the model")
            await eventually(lambda: served.calls("corpus_ask"))
            (record,) = served.calls("corpus_ask")
    assert record.code == "CANCELLED"


@pytest.mark.parametrize("fault", [Refused(status=401), Truncated(after_events=3)])
async def test_when_the_model_fails_the_answer_goes_on_with_sentences_found(tmp_path: Path, fault: Any) -> None:
    with MistralEmulator(KEY) as emulator:
        async with serving(tmp_path, **mistral(emulator)) as served, served.client() as http:
            emulator.faults += [fault] * 6
            events = await streamed(http, "/corpus/ask", QUESTION)
            assert KEY not in str(events)
    done = events[-1][1]
    assert events[-1][0] == "done"
    assert "The chat model failed" in done["answer"]
    assert "every two minutes" in done["answer"]
    assert text_of(events).endswith(done["answer"])
    assert "model" not in done


async def test_a_silent_model_ends_at_its_deadline(tmp_path: Path) -> None:
    with MistralEmulator(KEY) as emulator:
        async with serving(tmp_path, **mistral(emulator, timeout_s=0.5)) as served, served.client() as http:
            emulator.faults.append(Silent(on="/chat/completions"))
            events = await streamed(http, "/corpus/ask", QUESTION)
    assert "took longer than 0.5 seconds" in events[-1][1]["answer"]


async def test_a_call_that_fails_before_anything_is_known_is_answered_like_any_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        blank = await http.post("/corpus/ask", json={"question": " "}, headers=STREAM)
        late = await streamed(http, "/corpus/ask", {"question": "horn", "file_glob": "[" * 3})
        unknown = await http.post("/corpus/ask", json={"query": "horn"}, headers=STREAM)
    assert (blank.status_code, blank.json()["error"]["code"]) == (400, "INVALID_FIELD")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "INVALID_FIELD")
    assert late[-1][0] == "error"
    assert late[-1][1]["error"]["code"] == "INVALID_FIELD"


async def test_a_client_that_accepts_json_too_gets_json(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        both = {"accept": "application/json, text/event-stream"}
        answer = await http.post("/corpus/ask", json=QUESTION, headers=both)
    assert answer.headers["content-type"] == "application/json"
    assert "every two minutes" in answer.json()["answer"]


async def test_a_follow_up_is_searched_with_the_question_it_refers_to(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        body = {"question": "and what does it run on?", "earlier": [QUESTION["question"]]}
        asked = (await http.post("/corpus/ask", json=body)).json()
    assert asked["question"] == "and what does it run on?"
    assert asked["searched_for"] == "How often does the horn sound in fog? and what does it run on?"
    assert "compressed air" in asked["answer"]


async def test_a_chat_model_rewrites_a_follow_up(tmp_path: Path) -> None:
    with MistralEmulator(KEY) as emulator:
        async with serving(tmp_path, **mistral(emulator)) as served, served.client() as http:
            body = {"question": "and what does it run on?", "earlier": [QUESTION["question"]]}
            asked = (await http.post("/corpus/ask", json=body)).json()
            rewriting, answering = emulator.bodies("/chat/completions")
            emulator.faults += [Refused(status=400, on="/chat/completions")] * 2
            without = (await http.post("/corpus/ask", json=body)).json()
    assert QUESTION["question"] in rewriting["messages"][-1]["content"]
    # The emulated model has one sentence for whatever has no excerpts.
    assert asked["searched_for"] == "The chunks do not say."
    assert "Question: The chunks do not say." in answering["messages"][-1]["content"]
    assert without["searched_for"].startswith(QUESTION["question"])


async def test_a_slow_reader_cannot_make_the_server_keep_everything() -> None:
    released = anyio.Event()
    sent: list[Any] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await released.wait()
        sent.append(message)

    piece = {"text": "x" * 100_000}

    async def emit(stream: AnswerStream) -> None:
        while True:
            stream.emit("text", piece)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()

    stalled = AnswerStream(send)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stalled.forward)
        with pytest.raises(Cancelled):
            await emit(stalled)
        released.set()
        stalled.end("error", {"error": {"code": "CANCELLED"}})
    assert sent[-1] == {"type": "http.response.body", "body": b""}
    fast = AnswerStream(send)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fast.forward)
        with pytest.raises(ResponseTooLarge):
            await emit(fast)
        fast.end("done", {})
