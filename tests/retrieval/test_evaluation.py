"""Judged sets are read and measured; invalid sets are rejected."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest
from numpy.typing import NDArray

from armarium.providers.client import ProviderClient
from armarium.providers.hosted import OpenAIEmbedder
from armarium.providers.local.embedder import LocalEmbedder
from armarium.providers.vendors import OPENAI
from armarium.retrieval.evaluation import UnreadableSet, evaluate, measured, read_judged_set
from emulators import OpenAIEmulator

DOCUMENTS = [
    {"id": "ships", "title": "Ships", "text": "A ship is a vessel that sails the sea."},
    {"id": "bread", "title": "", "text": "Bread is baked from flour and water."},
    {"id": "stars", "title": None, "text": "Stars shine at night."},
]
QUERIES = [
    {"id": "1", "text": "vessel at sea"},
    {"id": "2", "text": "baking bread"},
    {"id": "3", "text": "never judged"},
]


class LetterEmbedder:
    """How often each letter occurs, as a vector: near enough to meaning for a test."""

    model, dimensions = "letters", 26

    async def embed(self, texts: Sequence[str]) -> NDArray[numpy.float32]:
        rows = numpy.array([[text.lower().count(chr(97 + place)) for place in range(26)] for text in texts])
        return (rows / numpy.linalg.norm(rows, axis=1, keepdims=True)).astype(numpy.float32)

    async def embed_query(self, text: str) -> NDArray[numpy.float32]:
        return (await self.embed([text]))[0]

    async def aclose(self) -> None:
        pass


@pytest.fixture
def judged_set(tmp_path: Path) -> Path:
    write(tmp_path, "1\tships\t2\n1\tbread\t0\n2\tbread\t1\n")
    return tmp_path


def write(directory: Path, qrels: str, documents: Sequence[object] = DOCUMENTS) -> None:
    (directory / "docs.jsonl").write_text("".join(json.dumps(each) + "\n" for each in documents))
    (directory / "queries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in QUERIES))
    (directory / "qrels.tsv").write_text(qrels)


CODE = "def f(x):\n    return x\n"


async def test_a_hosted_embedder_receives_code_with_its_line_breaks(tmp_path: Path) -> None:
    write(tmp_path, "1\ta\t1\n", [{"id": "a", "title": "class A", "text": CODE}])
    with OpenAIEmulator() as emulator:
        embedder = OpenAIEmbedder(ProviderClient(OPENAI, emulator.key, base_url=emulator.url), "nomic-embed-text")
        await evaluate(read_judged_set(tmp_path), embedder, kind="code")
        await embedder.aclose()
    assert emulator.bodies("/embeddings")[0]["input"] == [f"class A\n{CODE}"]


async def test_the_local_embedder_receives_code_without_them(tmp_path: Path) -> None:
    embedded: list[str] = []

    class RecordingEmbedder(LocalEmbedder):
        async def embed(self, texts: Sequence[str]) -> NDArray[numpy.float32]:
            embedded.extend(texts)
            return await super().embed(texts)

    write(tmp_path, "1\ta\t1\n", [{"id": "a", "title": "class A", "text": CODE}])
    embedder = RecordingEmbedder()
    await evaluate(read_judged_set(tmp_path), embedder, kind="code")
    await embedder.aclose()
    assert embedded == ["class A\ndef f(x): return x"]


async def test_a_set_is_measured_by_words_by_vectors_and_by_both(judged_set: Path) -> None:
    reported: list[tuple[str, int, int]] = []
    evaluation = await evaluate(
        read_judged_set(judged_set), LetterEmbedder(), progress=lambda *progress: reported.append(progress)
    )
    assert (evaluation.documents, evaluation.queries, evaluation.index) == (3, 2, "text")
    assert evaluation.measures["words"].ndcg_10 == 1
    assert set(evaluation.measures) == {"words", "vectors", "hybrid"}
    assert reported == [("documents", 3, 3), ("questions", 1, 2), ("questions", 2, 2)]


def test_questions_without_anything_relevant_are_left_out(judged_set: Path) -> None:
    assert [name for name, _ in read_judged_set(judged_set).queries] == ["1", "2"]
    assert [name for name, _ in read_judged_set(judged_set, limit=1).queries] == ["1"]


async def test_a_set_of_programs_is_a_set_for_the_code_index(tmp_path: Path) -> None:
    write(tmp_path, "1\ta\t1\n", [{"id": "a", "title": "", "text": "def f(x):\n    return x\n"}])
    judged = read_judged_set(tmp_path)
    assert (await evaluate(judged, LetterEmbedder())).index == "code"


def test_only_a_new_line_ends_a_line_of_a_set(tmp_path: Path) -> None:
    write(tmp_path, "1\ta\t1\n")
    text = "one\u2028two\u2029three\u0085four"
    (tmp_path / "docs.jsonl").write_text(json.dumps({"id": "a", "text": text}, ensure_ascii=False) + "\r\n\n")
    assert [document.text for document in read_judged_set(tmp_path).documents] == [text]


@pytest.mark.parametrize("missing", ["docs.jsonl", "queries.jsonl", "qrels.tsv"])
def test_a_set_with_a_file_missing_is_refused_by_the_name_of_the_file(judged_set: Path, missing: str) -> None:
    (judged_set / missing).unlink()
    with pytest.raises(UnreadableSet, match=missing) as refused:
        read_judged_set(judged_set)
    assert refused.value.code == "EVAL_SET_UNREADABLE"


@pytest.mark.parametrize("qrels", ["", "1\tships\n", "1\tships\tvery\n", "1\tships\t0\n", "9\tships\t1\n"])
def test_a_set_without_a_usable_judgement_is_refused(tmp_path: Path, qrels: str) -> None:
    write(tmp_path, qrels)
    with pytest.raises(UnreadableSet):
        read_judged_set(tmp_path)


def test_documents_that_are_not_objects_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "1\tships\t1\n", ["ships"])
    with pytest.raises(UnreadableSet):
        read_judged_set(tmp_path)


def test_the_measures_are_those_of_a_ranking_worked_out_by_hand() -> None:
    found = measured([["x", "a", "b"]], [{"a": 1, "b": 3, "c": 2}])
    gained = 1 / math.log2(3) + 3 / math.log2(4)
    possible = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    assert found.ndcg_10 == pytest.approx(gained / possible)
    assert found.recall_10 == found.recall_100 == pytest.approx(2 / 3)
    assert found.mrr_10 == 0.5


def test_what_is_found_after_the_tenth_counts_for_recall_at_100_only() -> None:
    found = measured([[f"other{number}" for number in range(10)] + ["a"]], [{"a": 1}])
    assert (found.ndcg_10, found.recall_10, found.recall_100, found.mrr_10) == (0, 0, 1, 0)
