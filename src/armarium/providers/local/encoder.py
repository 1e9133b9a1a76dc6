"""The local model: computes the vector of one text on the calling thread."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armarium.foundation.processes.memory import give_memory_back
from armarium.foundation.surrogates import replace_unpaired_surrogates
from armarium.providers.errors import LocalModelMissing
from armarium.providers.local.pack import INSTALL_HINT, load_pack
from armarium.providers.local.weights import constants

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BESIDE = Path(__file__).parent

# The tokenizer reads all of a text before it truncates, and holds the GIL meanwhile. 512 tokens of any meaningful text
# are shorter than this.
_MAX_CHARACTERS = 8192

_WORD = re.compile(r"[^\W\d_]+")


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
