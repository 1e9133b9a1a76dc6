"""The local model: computes the vector of one text on the calling thread."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armarium.foundation.processes.memory import give_memory_back
from armarium.foundation.surrogates import replace_unpaired_surrogates
from armarium.providers.errors import LocalModelMissing
from armarium.providers.local.pack import INSTALL_HINT, Pack, load_pack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BESIDE = Path(__file__).parent

# The tokenizer reads all of a text before it truncates, and holds the GIL meanwhile. 512 tokens of any meaningful text
# are shorter than this.
_MAX_CHARACTERS = 8192

_WORD = re.compile(r"[^\W\d_]+")

PRODUCTS = ("qkv", "ao", "f1", "f2")
"""The matrix products of a layer: query, key and value; attention output; the two feed-forward products."""

_LARGEST = 127


class Encoder:
    """A loaded model. It is thread-safe: a run uses the calling thread and keeps no state.

    Each text is a separate run. Batches are no faster (benchmarks/embedding_throughput.py), padding would waste work,
    and the vector of a text would depend on its batch, because inputs are quantised by the range of the whole batch.
    """

    def __init__(self) -> None:
        try:
            import numpy as np
            import onnxruntime  # pyright: ignore[reportMissingTypeStubs] it has none
            import tokenizers
        except ImportError as error:
            raise LocalModelMissing("the libraries of the local model are not installed", hint=INSTALL_HINT) from error

        runtime: Any = onnxruntime
        pack = load_pack()
        self._tokenizer = tokenizers.Tokenizer.from_buffer(pack.tokenizer)
        self._tokenizer.enable_truncation(pack.max_tokens)  # pyright: ignore[reportUnknownMemberType] untyped **kwargs
        with np.load(_BESIDE / "smoothing.npz") as smoothing:
            arrays = constants(pack, smoothing)
        # The word table stays mapped from disk: it is most of the pack, and a text needs few of its rows.
        self._words = pack.grouped["word_emb"]
        pack.release_pages()
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # The graph is already fused; further optimisation only takes time.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Otherwise the session keeps a memory plan for every length of text.
        options.enable_mem_pattern = False
        # The session uses the arrays in place, so they must live as long as the session.
        self._constants = [(array, runtime.OrtValue.ortvalue_from_numpy(array)) for array in arrays.values()]
        options.add_external_initializers(list(arrays), [value for _, value in self._constants])
        self._session = runtime.InferenceSession(
            (_BESIDE / "graph.onnx").read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        # Building the constants took several times their size.
        give_memory_back()

    def vector(self, text: str) -> NDArray[np.float32]:
        """The normalised vector of a text. Only the first 512 tokens count."""
        return self.run(self.words(text))[0]

    def words(self, text: str) -> NDArray[np.float32]:
        """The input of the graph, [1, tokens, dimensions]: one row of the word table per token."""
        return self._words.rows(self._tokenizer.encode(_encodable(text)).ids)[None]

    def run(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        """The normalised vectors of texts with the same number of tokens, one row each."""
        return self._session.run(None, {"words": words})[0]

    def fertility(self, text: str) -> float:
        """Tokens beyond one per word, plus letters beyond ASCII, divided by the number of letters.

        English prose and queries have 0.02, code 0.04; Spanish, French and German between 0.12 and 0.3; other scripts
        above 1, because every letter becomes several byte tokens. Zero for a text without words.
        """
        if not (words := _WORD.findall(_encodable(text))):
            return 0.0
        tokens = len(self._tokenizer.encode(" " + " ".join(words), add_special_tokens=False))
        letters = "".join(words)
        # French shares many words with English; its accents distinguish it.
        accented = sum(not letter.isascii() for letter in letters)
        return (max(tokens - len(words), 0) + accented) / len(letters)


def _encodable(text: str) -> str:
    return replace_unpaired_surrogates(text[:_MAX_CHARACTERS])


def constants(pack: Pack, smoothing: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.generic]]:
    """The constants of the graph: the tensors of the model pack as smoothed int8 matrices.

    A matrix product in int8 rounds its input to 256 steps. A few channels of this model are a hundred times larger than
    the others, which would all round to zero. Smoothing divides each input channel by a factor and multiplies its row
    of the matrix by the same factor. The factors were calibrated on texts of many kinds (scripts/build-embedder-graph)
    and are shipped with the graph, which computes products without factors in float32.
    """
    import numpy as np

    named: dict[str, NDArray[np.generic]] = {
        # All texts have the same token type, so its vector is added to the positions.
        "positions": pack.floats["pos_emb"][pack.shape["position_offset"] :] + pack.floats["type_emb"][0],
        "emb_ln.w": pack.floats["emb_ln.w"],
        "emb_ln.b": pack.floats["emb_ln.b"],
    }
    for layer in range(pack.shape["layers"]):
        for norm in ("aln", "fln"):
            for part in ("w", "b"):
                named[f"l{layer}.{norm}.{part}"] = pack.floats[f"l{layer}.{norm}.{part}"]
        for product in PRODUCTS:
            named |= _product(pack, smoothing, layer, product)
    # The runtime needs aligned memory, and slices of the pack are not aligned.
    return {name: np.require(array, requirements=["C", "A"]) for name, array in named.items()}


def _product(
    pack: Pack, smoothing: Mapping[str, NDArray[np.floating]], layer: int, product: str
) -> dict[str, NDArray[np.generic]]:
    """The constants of one product: int8 matrix, scales, bias and input factors, or float matrix and bias."""
    import numpy as np

    name = f"l{layer}.{product}"
    matrix, bias = pack.grouped[f"{name}.w"].dequantised(), pack.floats[f"{name}.b"]
    if name not in smoothing:
        return {f"{name}.matrix": matrix.T, f"{name}.bias": bias}
    factors = smoothing[name].astype(np.float32)
    matrix = matrix * factors
    if product == "qkv" and (following := f"l{layer}.ao") in smoothing:
        # Attention is linear in its values, so the factors of the following product can be folded into the values.
        folded = np.ones(matrix.shape[0], np.float32)
        folded[-pack.shape["hidden"] :] = 1 / smoothing[following].astype(np.float32)
        matrix, bias = matrix * folded[:, None], bias * folded
    scales = np.abs(matrix).max(axis=1) / np.float32(_LARGEST)
    constants: dict[str, NDArray[np.generic]] = {
        f"{name}.values": np.rint(matrix / scales[:, None]).astype(np.int8).T,
        f"{name}.scales": scales,
        f"{name}.bias": bias,
    }
    if product != "ao":
        constants[f"{name}.factors"] = 1 / factors
    return constants
