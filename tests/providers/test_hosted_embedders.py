"""Embeddings from Mistral and from OpenAI-compatible endpoints."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import anyio
import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.providers.client import ProviderClient
from armarium.providers.errors import ProviderAuth, ProviderFailed
from armarium.providers.hosted import MistralEmbedder, OpenAIEmbedder
from armarium.providers.interfaces import Embedder
from armarium.providers.vendors import MISTRAL, OPENAI
from emulators import MistralEmulator, OpenAIEmulator, RateLimited, Refused, ServerError, Together, Unusable
from emulators.model_output import embedding
from support.manual_clock import ManualClock

TEXTS = ["The rain falls on the plain.", "def parse(line): return line.split()", "Ein Satz über Äpfel.", "雨が降る"]


@pytest.fixture
def mistral() -> Generator[MistralEmulator]:
    with MistralEmulator() as emulator:
        yield emulator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def embedder_of(mistral: MistralEmulator, clock: ManualClock, model: str = "mistral-embed", **options: Any) -> Embedder:
    client = ProviderClient(MISTRAL, mistral.key or "", base_url=mistral.url, clock=clock.clock, concurrency=3)
    return MistralEmbedder(client, model, **options)


@pytest.mark.parametrize(("model", "dimensions"), [("mistral-embed", 1024), ("codestral-embed", 1536)])
async def test_mistrals_models_give_vectors_of_length_one_in_the_order_of_the_texts(
    mistral: MistralEmulator, clock: ManualClock, model: str, dimensions: int
) -> None:
    embedder = embedder_of(mistral, clock, model)
    assert (embedder.model, embedder.dimensions) == (model, dimensions)
    vectors = await embedder.embed(TEXTS)
    await embedder.aclose()
    assert vectors.dtype == numpy.float32
    assert vectors.shape == (4, dimensions)
    expected = numpy.array([embedding(text, dimensions) for text in TEXTS])
    numpy.testing.assert_allclose(vectors, expected, atol=1e-5)
    numpy.testing.assert_allclose(numpy.linalg.norm(vectors, axis=1), 1.0, atol=1e-6)


async def test_a_question_gets_the_vector_of_its_words(mistral: MistralEmulator, clock: ManualClock) -> None:
    embedder = embedder_of(mistral, clock)
    chunks = await embedder.embed(TEXTS)
    query = await embedder.embed_query("falls rain")
    await embedder.aclose()
    assert query.shape == (1024,)
    assert int(numpy.argmax(chunks @ query)) == 0


async def test_no_texts_need_no_request(mistral: MistralEmulator, clock: ManualClock) -> None:
    assert (await embedder_of(mistral, clock).embed([])).shape == (0, 1024)
    assert mistral.requests == []


async def test_many_texts_go_out_in_batches_side_by_side_and_come_back_in_order(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    mistral.faults.extend([Together(barrier=threading.Barrier(3))] * 3)
    texts = [f"number {number}" for number in range(128 * 3 + 5)]
    embedder = embedder_of(mistral, clock)
    vectors = await embedder.embed(texts)
    await embedder.aclose()
    assert sorted(len(body["input"]) for body in mistral.bodies("/embeddings")) == [5, 128, 128, 128]
    assert mistral.most_in_flight == 3
    expected = numpy.array([embedding(text, 1024) for text in texts])
    numpy.testing.assert_allclose(vectors, expected, atol=1e-5)


async def test_batches_are_also_cut_by_length(mistral: MistralEmulator, clock: ManualClock) -> None:
    texts = ["word " * 2400] * 10  # about 4,000 tokens each by our estimate
    embedder = embedder_of(mistral, clock)
    await embedder.embed(texts)
    await embedder.aclose()
    sizes = [sum(len(text) for text in body["input"]) for body in mistral.bodies("/embeddings")]
    assert len(sizes) == 4
    assert max(sizes) <= 16_000 * 3


async def test_a_batch_that_was_estimated_too_small_is_halved(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.longest_request_tokens = 40
    texts = [f"some words of text number {number}" for number in range(10)]
    embedder = embedder_of(mistral, clock)
    vectors = await embedder.embed(texts)
    await embedder.aclose()
    numpy.testing.assert_allclose(vectors, [embedding(text, 1024) for text in texts], atol=1e-5)
    assert len(mistral.requests) > 2


async def test_a_text_that_is_too_long_is_cut_and_an_empty_one_does_no_harm(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    embedder = embedder_of(mistral, clock)
    vectors = await embedder.embed(["日" * 100_000, "", "half \ud800 surrogate"])
    await embedder.aclose()
    assert vectors.shape == (3, 1024)
    inputs = [text for body in mistral.bodies("/embeddings") for text in body["input"]]
    assert "日" * 8_000 in inputs
    assert " " in inputs


async def test_a_shorter_vector_can_be_asked_for(mistral: MistralEmulator, clock: ManualClock) -> None:
    embedder = embedder_of(mistral, clock, "codestral-embed", output_dimension=256)
    vectors = await embedder.embed(TEXTS)
    await embedder.aclose()
    assert vectors.shape == (4, 256)
    assert mistral.bodies("/embeddings")[0]["output_dimension"] == 256


async def test_limits_and_failures_of_single_batches_do_not_fail_the_whole(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    mistral.faults.extend([RateLimited(retry_after=2), ServerError(), RateLimited(shape="message")])
    texts = [f"number {number}" for number in range(300)]
    embedder = embedder_of(mistral, clock)
    vectors = await embedder.embed(texts)
    await embedder.aclose()
    numpy.testing.assert_allclose(vectors, [embedding(text, 1024) for text in texts], atol=1e-5)


async def test_the_first_batch_that_cannot_be_embedded_ends_the_rest(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    embedder = embedder_of(mistral, clock, "no-such-model")
    with pytest.raises(ProviderFailed) as raised:
        await embedder.embed([f"number {number}" for number in range(128 * 40)])
    await embedder.aclose()
    assert raised.value.code == "MISTRAL_FAILED"
    assert len(mistral.requests) < 40


async def test_a_wrong_key_is_told_as_such(mistral: MistralEmulator) -> None:
    embedder = MistralEmbedder(ProviderClient(MISTRAL, "wrong", base_url=mistral.url), "mistral-embed")
    with pytest.raises(ProviderAuth) as raised:
        await embedder.embed(["text"])
    await embedder.aclose()
    assert (raised.value.code, raised.value.retryable) == ("MISTRAL_AUTH", False)
    assert len(mistral.requests) == 1


def data_with(change: Callable[[list[Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda answer: answer | {"data": change(answer["data"])}


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: {"data": None},
        lambda answer: {},
        data_with(lambda rows: rows[:-1]),
        data_with(lambda rows: [*rows, rows[0]]),
        data_with(lambda rows: [row | {"index": 0} for row in rows]),
        data_with(lambda rows: [row | {"index": row["index"] + 1} for row in rows]),
        data_with(lambda rows: [row | {"index": [row["index"]]} for row in rows]),
        data_with(lambda rows: [row | {"embedding": row["embedding"][:512]} for row in rows]),
        data_with(lambda rows: [row | {"embedding": row["embedding"][: 1024 - row["index"]]} for row in rows]),
        data_with(lambda rows: [row | {"embedding": []} for row in rows]),
        data_with(lambda rows: [row | {"embedding": 0.5} for row in rows]),
        data_with(lambda rows: [row | {"embedding": "AACAPwAAgD8="} for row in rows]),
        data_with(lambda rows: [row | {"embedding": [None] * 1024} for row in rows]),
        data_with(lambda rows: [row | {"embedding": [1e300] * 1024} for row in rows]),
        data_with(lambda rows: [1, 2, 3, 4]),
    ],
    ids=[
        "no list",
        "nothing",
        "one too few",
        "one too many",
        "same number",
        "numbered from 1",
        "numbered by lists",
        "wrong dimensions",
        "uneven dimensions",
        "no dimensions",
        "a number each",
        "base64",
        "no numbers",
        "too large numbers",
        "no objects",
    ],
)
async def test_a_server_that_lies_is_not_believed(
    mistral: MistralEmulator, clock: ManualClock, change: Callable[[dict[str, Any]], object]
) -> None:
    mistral.faults.append(Unusable(change=change))
    embedder = embedder_of(mistral, clock)
    with pytest.raises(ProviderFailed) as raised:
        await embedder.embed(TEXTS)
    assert (raised.value.code, raised.value.retryable) == ("MISTRAL_FAILED", False)
    assert (await embedder.embed(TEXTS)).shape == (4, 1024)
    await embedder.aclose()


async def test_rows_without_a_number_are_taken_in_their_order_and_vectors_need_not_have_length_one(
    mistral: MistralEmulator, clock: ManualClock
) -> None:
    def change(answer: dict[str, Any]) -> object:
        rows = sorted(answer["data"], key=lambda row: row["index"])
        return {"data": [{"embedding": [3 * value for value in row["embedding"]]} for row in rows]}

    mistral.faults.append(Unusable(change=change))
    embedder = embedder_of(mistral, clock)
    vectors = await embedder.embed(TEXTS)
    await embedder.aclose()
    numpy.testing.assert_allclose(vectors, [embedding(text, 1024) for text in TEXTS], atol=1e-5)


async def test_a_vector_of_zeros_stays_one(mistral: MistralEmulator, clock: ManualClock) -> None:
    mistral.faults.append(Unusable(change=data_with(lambda rows: [row | {"embedding": [0.0] * 1024} for row in rows])))
    embedder = embedder_of(mistral, clock)
    assert not (await embedder.embed(["text"])).any()
    await embedder.aclose()


async def test_an_openai_compatible_endpoint_tells_its_dimensions_with_the_first_answer(clock: ManualClock) -> None:
    with OpenAIEmulator() as emulator:
        embedder: Embedder = OpenAIEmbedder(
            ProviderClient(OPENAI, base_url=emulator.url, clock=clock.clock), "nomic-embed-text"
        )
        assert embedder.dimensions is None
        vectors = await embedder.embed(TEXTS)
        assert embedder.dimensions == 768
        emulator.faults.append(
            Unusable(change=data_with(lambda rows: [row | {"embedding": row["embedding"][:64]} for row in rows]))
        )
        with pytest.raises(ProviderFailed) as raised:
            await embedder.embed_query("rain")
        await embedder.aclose()
    assert vectors.shape == (4, 768)
    assert raised.value.code == "OPENAI_FAILED"


async def test_an_openai_compatible_endpoint_is_asked_for_shorter_vectors(clock: ManualClock) -> None:
    with OpenAIEmulator("key") as emulator:
        client = ProviderClient(OPENAI, "key", base_url=emulator.url, clock=clock.clock)
        embedder = OpenAIEmbedder(client, "nomic-embed-text", output_dimension=256)
        await embedder.embed(["rain"])
        await embedder.aclose()
        assert emulator.bodies("/embeddings")[0]["dimensions"] == 256


async def test_an_openai_compatible_endpoint_has_errors_of_its_own(clock: ManualClock) -> None:
    with OpenAIEmulator("key") as emulator:
        emulator.faults.append(Refused(status=404))
        embedder = OpenAIEmbedder(
            ProviderClient(OPENAI, "key", base_url=emulator.url, clock=clock.clock), "nomic-embed-text"
        )
        with pytest.raises(ProviderFailed) as raised:
            await embedder.embed_query("rain")
        await embedder.aclose()
    assert (raised.value.code, raised.value.hint) == ("OPENAI_FAILED", "check the base URL")


class _Answering(ProviderClient):
    """Answers every request alike."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(OPENAI)
        self._answer_given = answer

    async def post(self, path: str, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        return self._answer_given


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(width=32) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
NEARLY_AN_EMBEDDING = st.fixed_dictionaries(
    {}, optional={"index": JSON, "embedding": st.lists(JSON, max_size=3) | JSON}
)


@given(st.lists(NEARLY_AN_EMBEDDING | JSON, min_size=1, max_size=3) | JSON)
def test_no_answer_breaks_the_embedder_or_becomes_a_vector_that_is_none(rows: object) -> None:
    async def ask() -> None:
        embedder = OpenAIEmbedder(_Answering({"data": rows}), "m")
        with suppress(ProviderFailed):
            vector = await embedder.embed_query("rain")
            assert vector.ndim == 1
            assert numpy.isfinite(vector).all()

    anyio.run(ask)
