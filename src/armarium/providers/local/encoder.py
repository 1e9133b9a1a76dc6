"""The local model itself: one text in, its vector out, on the calling thread."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armarium.foundation.processes.memory import give_memory_back
from armarium.providers.local.errors import LocalModelMissing
from armarium.providers.local.pack import INSTALL_HINT, load_pack
from armarium.providers.local.weights import constants

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_BESIDE = Path(__file__).parent

# The tokenizer reads all of a text before it truncates, and nobody else runs Python meanwhile. 512 tokens of anything
# that means something are shorter than this.
_MAX_CHARACTERS = 8192

_WORD = re.compile(r"[^\W\d_]+")


class Encoder:
    """A loaded model. Threads share it: a run works on the thread that asks for it, and keeps nothing behind.

    Every text is a run of its own. A batch of passages is no faster (benchmarks/embedding_throughput.py), padding would
    be work for nothing, and as a product's input is quantised by the range of the whole batch, the vector of a text
    would depend on its neighbours.
    """

    def __init__(self, pack_path: Path | None = None) -> None:
        try:
            import numpy as np
            import onnxruntime  # pyright: ignore[reportMissingTypeStubs] it has none
            import tokenizers
        except ImportError as error:
            raise LocalModelMissing("the libraries of the local model are not installed", hint=INSTALL_HINT) from error

        runtime: Any = onnxruntime
        pack = load_pack(pack_path)
        self._tokenizer = tokenizers.Tokenizer.from_buffer(pack.tokenizer)
        self._tokenizer.enable_truncation(pack.max_tokens)  # pyright: ignore[reportUnknownMemberType] untyped **kwargs
        with np.load(_BESIDE / "smoothing.npz") as smoothing:
            arrays = constants(pack, smoothing)
        # The word table stays on disk: it is most of the pack, and a text needs few of its rows.
        self._words = pack.grouped["word_emb"]
        pack.forget_pages()
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        # The graph is written as it should run: looking for more to fuse only takes time.
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        # Or every length of text would leave a plan of its memory behind.
        options.enable_mem_pattern = False
        # The session reads the arrays where they are, so they live as long as it does.
        self._constants = [(array, runtime.OrtValue.ortvalue_from_numpy(array)) for array in arrays.values()]
        options.add_external_initializers(list(arrays), [value for _, value in self._constants])
        self._session = runtime.InferenceSession(
            (_BESIDE / "graph.onnx").read_bytes(), options, providers=["CPUExecutionProvider"]
        )
        # What it took to make the constants was several times their size.
        give_memory_back()

    def vector(self, text: str) -> NDArray[np.float32]:
        """The normalised vector of a text, of its first 512 tokens if it has more."""
        return self.run(self.words(text))[0]

    def words(self, text: str) -> NDArray[np.float32]:
        """A text as the graph takes it: [1, tokens, dimensions], the row of the word table for each token."""
        return self._words.rows(self._tokenizer.encode(_readable(text)).ids)[None]

    def run(self, words: NDArray[np.float32]) -> NDArray[np.float32]:
        """The normalised vectors of texts with the same number of tokens, one row each."""
        return self._session.run(None, {"words": words})[0]

    def fertility(self, text: str) -> float:
        """How foreign a text is to the tokenizer: tokens beyond one a word, and letters beyond ASCII, for each letter.

        English prose and questions are at 0.02, code at 0.04; Spanish, French and German between 0.12 and 0.3; scripts
        other than Latin above 1, as every letter is spelt in bytes. Zero where there are no words.
        """
        words = _WORD.findall(_readable(text))
        if not words:
            return 0.0
        tokens = len(self._tokenizer.encode(" " + " ".join(words), add_special_tokens=False))
        letters = "".join(words)
        # French shares so many words with English that the accents have to tell them apart.
        accented = sum(not letter.isascii() for letter in letters)
        return (max(tokens - len(words), 0) + accented) / len(letters)


def _readable(text: str) -> str:
    # Half a surrogate pair is a Python string, but not UTF-8, which is all the tokenizer reads.
    return text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode()
