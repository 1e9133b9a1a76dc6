"""The vector index: nearest chunks, with filters, while it grows, and after a crash."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from armarium.retrieval.errors import DamagedIndex
from armarium.retrieval.search.vector_index import VectorIndex

DIMENSIONS = 32
Matrix = NDArray[numpy.float32]


def unit_vectors(count: int, seed: int = 0, dimensions: int = DIMENSIONS) -> Matrix:
    rows = numpy.random.default_rng(seed).normal(size=(count, dimensions)).astype(numpy.float32)
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


def filled(count: int, *, scan_below: int = 120_000) -> tuple[VectorIndex, Matrix]:
    """Vectors under the ids 10, 20, 30 …"""
    rows = unit_vectors(count)
    index = VectorIndex(DIMENSIONS, scan_below=scan_below)
    index.add(numpy.arange(1, count + 1) * 10, rows)
    return index, rows


def nearest(rows: Matrix, query: Matrix, k: int) -> list[int]:
    return ((numpy.argsort(-(rows @ query), kind="stable")[:k] + 1) * 10).tolist()


def test_a_small_index_is_scanned_and_misses_nothing() -> None:
    index, rows = filled(3000)
    for query in unit_vectors(20, seed=1):
        hits = index.search(query, 10)
        assert set(hits.ids.tolist()) == set(nearest(rows, query, 10))
        assert hits.scores == pytest.approx(numpy.sort(rows @ query)[::-1][:10], abs=2e-3)


def test_a_large_index_is_searched_by_its_graph_and_misses_little() -> None:
    index, rows = filled(5000, scan_below=0)
    queries = unit_vectors(40, seed=1)
    right = sum(len(set(index.search(query, 10).ids.tolist()) & set(nearest(rows, query, 10))) for query in queries)
    assert right >= 0.98 * 400


@pytest.mark.parametrize("scan_below", [0, 120_000])
@pytest.mark.parametrize("share", [0.002, 0.02, 0.5])
def test_a_filter_still_answers_k_hits_and_the_right_ones(scan_below: int, share: float) -> None:
    index, rows = filled(3000, scan_below=scan_below)
    chosen = numpy.random.default_rng(2).choice(3000, int(3000 * share), replace=False)
    query = unit_vectors(1, seed=3)[0]
    hits = index.search(query, 5, among=(chosen + 1) * 10)
    right = ((chosen[numpy.argsort(-(rows[chosen] @ query))][:5] + 1) * 10).tolist()
    assert len(hits.ids) == 5
    assert hits.ids[0] == right[0]
    assert set(hits.ids.tolist()) <= set(((chosen + 1) * 10).tolist())
    if share < 0.1 or scan_below:
        assert set(hits.ids.tolist()) == set(right)


@pytest.mark.parametrize("scan_below", [0, 120_000])
def test_the_dead_are_left_out_even_when_most_are_dead(scan_below: int) -> None:
    index, rows = filled(2000, scan_below=scan_below)
    query = unit_vectors(1, seed=4)[0]
    alive = set(nearest(rows, query, 2000)[-7:])  # the farthest are the only ones left
    hits = index.search(query, 5, alive=lambda ids: numpy.isin(ids, list(alive)))
    assert len(hits.ids) == 5
    assert set(hits.ids.tolist()) <= alive


def test_a_filter_and_the_dead_go_together() -> None:
    index, _ = filled(50)
    hits = index.search(unit_vectors(1)[0], 10, among=numpy.array([10, 20, 30]), alive=lambda ids: ids != 20)
    assert sorted(hits.ids.tolist()) == [10, 30]


def test_ids_in_a_filter_that_are_not_in_the_index_are_ignored() -> None:
    index, _ = filled(50)
    assert index.search(unit_vectors(1)[0], 10, among=numpy.array([10, 99_999])).ids.tolist() == [10]
    assert index.search(unit_vectors(1)[0], 10, among=numpy.array([99_999])).ids.tolist() == []
    assert index.search(unit_vectors(1)[0], 10, among=numpy.array([], numpy.int64)).ids.tolist() == []


def test_an_empty_index_answers_nothing() -> None:
    assert VectorIndex(DIMENSIONS).search(unit_vectors(1)[0], 10).ids.tolist() == []


def test_fewer_vectors_than_asked_for_are_all_answered() -> None:
    index, _ = filled(3)
    assert sorted(index.search(unit_vectors(1)[0], 10).ids.tolist()) == [10, 20, 30]


def test_adding_an_id_again_changes_nothing() -> None:
    index, rows = filled(20)
    index.add(numpy.array([10, 999]), unit_vectors(2, seed=9))
    assert len(index) == 21
    assert index.search(rows[0], 1).ids.tolist() == [10]
    assert index.contains(numpy.array([10, 999, 5])).tolist() == [True, True, False]


def test_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="32 numbers"):
        VectorIndex(DIMENSIONS).add(numpy.array([1]), unit_vectors(1, dimensions=8))


def test_a_saved_index_is_mapped_and_grows_again(tmp_path: Path) -> None:
    index, rows = filled(500)
    index.save(tmp_path / "v.hnsw")
    again = VectorIndex.load(tmp_path / "v.hnsw", DIMENSIONS)
    assert again.search(rows[7], 3).ids.tolist() == index.search(rows[7], 3).ids.tolist()
    again.add(numpy.array([7]), unit_vectors(1, seed=5))
    assert again.search(unit_vectors(1, seed=5)[0], 1).ids.tolist() == [7]
    again.save(tmp_path / "v.hnsw")
    assert len(VectorIndex.load(tmp_path / "v.hnsw", DIMENSIONS)) == 501
    assert [entry.name for entry in tmp_path.iterdir()] == ["v.hnsw"]


def test_an_index_that_was_never_saved_is_empty(tmp_path: Path) -> None:
    assert len(VectorIndex.load(tmp_path / "v.hnsw", DIMENSIONS)) == 0


def test_an_empty_index_can_be_saved(tmp_path: Path) -> None:
    VectorIndex(DIMENSIONS).save(tmp_path / "v.hnsw")
    assert len(VectorIndex.load(tmp_path / "v.hnsw", DIMENSIONS)) == 0


@given(kept=st.floats(0, 0.999))
@settings(max_examples=25, deadline=None)
def test_a_file_cut_anywhere_is_torn(tmp_path_factory: pytest.TempPathFactory, kept: float) -> None:
    path = tmp_path_factory.mktemp("cut") / "v.hnsw"
    filled(60)[0].save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    with pytest.raises(DamagedIndex):
        VectorIndex.load(path, DIMENSIONS)


def test_an_index_of_vectors_of_another_length_is_torn(tmp_path: Path) -> None:
    VectorIndex(8).save(tmp_path / "v.hnsw")
    with pytest.raises(DamagedIndex):
        VectorIndex.load(tmp_path / "v.hnsw", DIMENSIONS)


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "v.hnsw"
    filled(10)[0].save(path)
    larger, _ = filled(20)

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        larger.save(path)
    assert len(VectorIndex.load(path, DIMENSIONS)) == 10
    assert [entry.name for entry in tmp_path.iterdir()] == ["v.hnsw"]


def test_threads_search_while_another_adds() -> None:
    index, rows = filled(200)
    failures: list[str] = []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            ids = index.search(rows[3], 5).ids.tolist()
            if ids[0] != 40 or len(ids) != 5:
                failures.append(f"found {ids}")

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    for batch in range(20):
        index.add(numpy.arange(100) + 100_000 + batch * 100, unit_vectors(100, seed=100 + batch))
    done.set()
    for looker in lookers:
        looker.join()
    assert failures == []
    assert len(index) == 2200


def test_the_local_model_can_be_loaded_after_the_index() -> None:
    """In a process of its own: usearch and onnxruntime do not bear every order of loading."""
    load = (
        "from armarium.retrieval.search.vector_index import VectorIndex; VectorIndex(8)\n"
        "import onnxruntime; print('alive')"
    )
    ended = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True)
    assert ended.stdout == "alive\n", ended.stderr
