"""Indexes a directory with Chroma and asks it questions; run by a Python that has Chroma, with ours to embed with.

Arguments: the directory, how long a passage is, and the directories our own packages are in. Questions come on stdin, a
line each; the seconds that indexing took, and each question's, go to stdout.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

directory, passage_characters, *packages = sys.argv[1:]
sys.path += packages

import chromadb  # noqa: E402 the paths come first
from anyio.from_thread import BlockingPortal, start_blocking_portal  # noqa: E402
from chromadb import Documents, EmbeddingFunction, Embeddings  # noqa: E402

from armarium.providers.local.embedder import LocalEmbedder  # noqa: E402

PASSAGES_AT_ONCE = 100


class OurEmbedder(EmbeddingFunction[Documents]):
    """The same model on the same threads as ours."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._embedder = LocalEmbedder()
        self._portal = portal
        portal.call(self._embedder.embed_query, "loaded before the clock starts")

    def __call__(self, input: Documents) -> Embeddings:
        if len(input) == 1:
            return [self._portal.call(self._embedder.embed_query, input[0])]
        return list(self._portal.call(self._embedder.embed, input))


def main() -> None:
    questions = sys.stdin.read().splitlines()
    with start_blocking_portal() as portal, tempfile.TemporaryDirectory() as state:
        client = chromadb.PersistentClient(state, chromadb.Settings(anonymized_telemetry=False))
        collection = client.create_collection("files", embedding_function=OurEmbedder(portal))
        started = time.perf_counter()
        passages: list[tuple[str, str]] = []
        size = int(passage_characters)
        for path in sorted(Path(directory).rglob("note_*")):
            text = path.read_text()
            passages += [(f"{path}:{start}", text[start : start + size]) for start in range(0, len(text), size)]
        for start in range(0, len(passages), PASSAGES_AT_ONCE):
            ids, texts = zip(*passages[start : start + PASSAGES_AT_ONCE], strict=True)
            collection.add(ids=list(ids), documents=list(texts))
        indexed_s = time.perf_counter() - started
        asked_s: list[float] = []
        for question in questions:
            asked = time.perf_counter()
            found = collection.query(query_texts=[question], n_results=10)
            asked_s.append(time.perf_counter() - asked)
            assert found["ids"][0]
    print(json.dumps({"passages": len(passages), "indexed_s": indexed_s, "asked_s": asked_s}))


main()
