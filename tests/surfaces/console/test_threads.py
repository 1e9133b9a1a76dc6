"""Threads: saved conversations, over real HTTP against a whole server."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from armarium.foundation.security.identity import Principal, key_hash
from armarium.surfaces.console.threads import store as thread_store
from armarium.surfaces.console.threads.store import ThreadDescription, ThreadsFull, ThreadStore, ThreadsUnavailable
from emulators import MistralEmulator, Stalled
from support.api_server import STREAM, ApiServer, api_server, events_of, streamed, until_indexed
from support.corpus_calls import write_lighthouse
from support.waiting import eventually

Json = dict[str, Any]
HORN = "How often does the horn sound in fog?"
KEY = "canary-5f3a9c-key"
ANN, BEN = (Principal(name, (), key_hash(name)) for name in ("ann", "ben"))


@asynccontextmanager
async def serving(base: Path, *, gateway: bool = False, **corpus: Any) -> AsyncGenerator[ApiServer]:
    root = base / "lighthouse"
    write_lighthouse(root)
    sections: Json = {"corpus": {"root": str(root), "groups": ["users"], "ingest": {"watch": False}, **corpus}}
    if gateway:
        sections["gateway"] = {"config_dir": str(base / "config"), "watch": False}
    async with api_server(base, **sections) as served:
        async with served.client() as http:
            await until_indexed(http)
        yield served


def body_of(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


async def created(http: httpx.AsyncClient, **body: Any) -> Json:
    return body_of(await http.post("/threads", json=body), 201)


async def asked(http: httpx.AsyncClient, thread: Json, question: str, **body: Any) -> Json:
    answer = await http.post(f"/threads/{thread['id']}/messages", json={"question": question, **body})
    return body_of(answer, 201)


async def test_a_follow_up_is_asked_with_the_questions_before_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        thread = await created(http)
        first = await asked(http, thread, HORN)
        second = await asked(http, thread, "and what does it run on?")
        page = body_of(await http.get(f"/threads/{thread['id']}/messages"))
        await eventually(lambda: len(served.calls("corpus_ask")) == 2)
        recorded = [*served.calls("corpus_ask"), *served.calls("ask_in_thread")]
    assert "every two minutes" in first["answer"]["answer"]
    assert second["answer"]["searched_for"] == f"{HORN} and what does it run on?"
    assert "compressed air" in second["answer"]["answer"]
    assert second["answer"]["citations"]
    assert page["messages"] == [first, second]
    assert (page["thread"]["title"], page["has_more"]) == (HORN, False)
    assert {record.outcome for record in recorded} == {"success"}
    assert all("horn" not in record.arguments for record in recorded)


async def test_a_thread_is_renamed_listed_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        threads = [await created(http, title=f"thread {number}") for number in range(5)]
        renamed = body_of(await http.patch(f"/threads/{threads[1]['id']}", json={"title": "lamps"}))
        assert (renamed["title"], renamed["created_at"]) == ("lamps", threads[1]["created_at"])
        titles: list[str] = []
        query: Json = {"limit": 2}
        while True:
            page = body_of(await http.get("/threads", params=query))
            titles += [each["title"] for each in page["threads"]]
            if "next" not in page:
                break
            query["cursor"] = page["next"]
        assert titles == ["lamps", "thread 4", "thread 3", "thread 2", "thread 0"]
        await asked(http, threads[0], HORN)
        assert (await http.delete(f"/threads/{threads[0]['id']}")).status_code == 204
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/messages")):
            answer = await http.request(method, f"/threads/{threads[0]['id']}{path}")
            assert body_of(answer, 404)["error"]["code"] == "THREAD_NOT_FOUND"
        (file,) = (tmp_path / "state/threads").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert HORN.encode() not in file.read_bytes()


async def test_nobody_sees_the_threads_of_another_person(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client("anna") as anna, served.client("ben") as ben:
        thread = await created(anna, title="private")
        path = f"/threads/{thread['id']}"
        assert body_of(await ben.get("/threads"))["threads"] == []
        for answer in [
            await ben.get(path),
            await ben.patch(path, json={"title": "mine"}),
            await ben.delete(path),
            await ben.get(f"{path}/messages"),
            await ben.post(f"{path}/messages", json={"question": HORN}),
        ]:
            assert body_of(answer, 404)["error"]["code"] == "THREAD_NOT_FOUND"
        assert [each["title"] for each in body_of(await anna.get("/threads"))["threads"]] == ["private"]


async def test_who_may_not_ask_has_threads_and_no_answers(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client("guest") as guest:
        thread = await created(guest)
        answer = await guest.post(f"/threads/{thread['id']}/messages", json={"question": HORN})
        assert body_of(answer, 403)["error"]["code"] == "NOT_PERMITTED"
        assert body_of(await guest.get(f"/threads/{thread['id']}/messages"))["messages"] == []


async def test_the_selection_is_kept_with_the_thread(tmp_path: Path) -> None:
    async with serving(tmp_path) as served, served.client() as http:
        thread = await created(http, selection={"file_glob": "*.py"})
        first = await asked(http, thread, "What turns the lens?")
        assert {hit["rel_path"] for hit in first["answer"]["hits"]} == {"lamp.py"}
        second = await asked(http, thread, "What turns the lens?", selection={"doc_types": ["md"], "sources": []})
        assert {hit["rel_path"] for hit in second["answer"]["hits"]} == {"handbook.md"}
        assert body_of(await http.get(f"/threads/{thread['id']}"))["selection"] == {"doc_types": ["md"]}
        unfit = {"question": HORN, "selection": {"sources": ["a:b"]}}
        refused = await http.post(f"/threads/{thread['id']}/messages", json=unfit)
        assert body_of(refused, 400)["error"]["code"] == "INVALID_ARGUMENT"


async def test_with_a_gateway_sources_are_asked_and_filters_go_to_the_corpus(tmp_path: Path) -> None:
    async with serving(tmp_path, gateway=True) as served, served.client() as http:
        thread = await created(http)
        everywhere = await asked(http, thread, HORN)
        source = everywhere["answer"]["results"]["hits"][0]["resourceId"]
        chosen = await asked(http, thread, "and what does it run on?", selection={"sources": [source]})
        filtered = await asked(http, thread, HORN, selection={"path_prefix": "handbook"})
        unknown = await asked(http, thread, HORN, selection={"sources": ["nowhere:x"]})
    assert (everywhere["tool"], chosen["tool"], filtered["tool"]) == ("rag_ask", "rag_ask", "corpus_ask")
    assert "compressed air" in chosen["answer"]["results"]["answer"]
    assert "chunk" not in chosen["answer"]["results"]["hits"][0]
    assert (unknown["status"], "answer" in unknown) == ("failed", False)
    assert unknown["error"]["results"]["error"]["code"]


async def test_an_answer_in_a_thread_is_streamed_and_a_cancelled_one_stays_without_answer(tmp_path: Path) -> None:
    with MistralEmulator(KEY) as emulator:
        chat = {"mistral": {"base_url": emulator.url, "api_key": KEY}, "embedding": {"provider": "local"}}
        async with serving(tmp_path, **chat) as served, served.client() as http:
            thread = await created(http)
            path = f"/threads/{thread['id']}/messages"
            events = await streamed(http, path, {"question": HORN})
            emulator.faults.append(Stalled(on="/chat/completions", after_events=1))
            async with http.stream("POST", path, json={"question": "And the lamp?"}, headers=STREAM) as answer:
                async for kind, _ in events_of(answer.aiter_lines()):
                    if kind == "message":
                        await eventually(emulator.silent.is_set, what="the model is asked")
                        break
            await eventually(emulator.left.is_set, what="the server hangs up on the model")
            await eventually(lambda: served.calls("ask_in_thread")[1:])
            messages = body_of(await http.get(path))["messages"]
    kinds = [kind for kind, _ in events]
    assert (kinds[0], kinds[-1]) == ("message", "done")
    assert {"progress", "hits", "text", "citations"} <= set(kinds)
    assert events[-1][1]["id"] == events[0][1]["id"] == messages[0]["id"]
    assert events[-1][1] == messages[0]
    assert (messages[1]["question"], messages[1]["status"]) == ("And the lamp?", "unanswered")


def thread_of(thread_id: str) -> ThreadDescription:
    return {"id": thread_id, "title": "t", "selection": {}, "created_at": "2026", "changed_at": "2026"}


async def test_messages_come_page_by_page_newest_first(tmp_path: Path) -> None:
    store = ThreadStore(tmp_path)
    thread = thread_of("a" * 16)
    await store.add(ANN, thread)
    for number in range(5):
        await store.begin_message(ANN, thread, f"question {number}", {}, 20)
    _, newest = await store.messages(ANN, thread["id"], None, 2)
    _, before = await store.messages(ANN, thread["id"], newest[0]["id"], 9)
    assert [each["question"] for each in (*before, *newest)] == [f"question {number}" for number in range(5)]
    _, earlier = await store.begin_message(ANN, thread, "last", {}, 2)
    assert earlier == ["question 3", "question 4"]


async def test_threads_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_store, "MAX_THREADS", 2)
    monkeypatch.setattr(thread_store, "MAX_MESSAGES", 2)
    store = ThreadStore(tmp_path)
    threads = [thread_of(str(number) * 16) for number in range(3)]
    for thread in threads[:2]:
        await store.add(ANN, thread)
        await store.begin_message(ANN, thread, "?", {}, 1)
    with pytest.raises(ThreadsFull):
        await store.add(ANN, threads[2])
    message, _ = await store.begin_message(ANN, threads[0], "?", {}, 1)
    with pytest.raises(ThreadsFull):
        await store.begin_message(ANN, threads[0], "?", {}, 1)
    await store.add(BEN, threads[2])
    large = {"answer": "x" * 10**6, "hits": [{"snippet": "s", "chunk": "c"}], "artifacts": [{"b64": "A"}]}
    kept = await store.end_message(ANN, message, "answered", "any", large)
    assert kept["shortened"] is True
    assert len(kept["answer"]) < 100_000
    monkeypatch.setattr(thread_store, "MAX_FILE_BYTES", 1)
    with pytest.raises(ThreadsFull):
        await store.begin_message(ANN, threads[1], "?", {}, 1)


async def test_a_damaged_file_is_an_error_of_its_owner_alone(tmp_path: Path) -> None:
    store = ThreadStore(tmp_path)
    await store.add(ANN, thread_of("a" * 16))
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"not a database at all" * 1000)
    with pytest.raises(ThreadsUnavailable) as failure:
        await store.list_threads(ANN, ("~", ""), 1)
    assert str(tmp_path) not in f"{failure.value.message} {failure.value.hint}"
    assert await store.list_threads(BEN, ("~", ""), 1) == []
    assert isinstance(failure.value.__cause__, sqlite3.Error)
