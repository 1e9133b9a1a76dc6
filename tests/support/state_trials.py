"""Opens one state directory after the other, as a follower and as the leader, and reports what searches find.

Run as a program: each line of standard input names a state directory, each line of standard output is the result. It is
a process of its own, so that a crash is noticed and affects one trial.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import numpy

from armarium.capabilities.corpus.ingest import synchronizer as indexing
from armarium.capabilities.corpus.ingest.prepare import Preparation
from armarium.capabilities.corpus.ingest.worker_process import WorkerSetup
from armarium.capabilities.corpus.lifespan import IndexingMode, open_service
from armarium.capabilities.corpus.query.search import Filters
from armarium.capabilities.corpus.service import Corpus
from armarium.capabilities.corpus.settings import CorpusSettings, EmbeddingSettings, IngestSettings
from armarium.capabilities.corpus.storage.prepared import Outcome, Prepared, PrepareRequest, chunk_hash
from armarium.foundation.errors import ArmariumError
from armarium.foundation.events import Events
from armarium.foundation.files.confine import ConfinedRoot
from armarium.providers.local.embedder import LocalEmbedder

DEADLINE_S = 60.0
QUERIES = (
    ("anchor of the harbour", "both"),
    ("beacon chart compass", "text"),
    ("turn the winch slowly", "code"),
    ("keel and galley", "auto"),
)


class WorkerPoolHere:
    """Prepares files in this process: starting workers would take longer than everything else."""

    def __init__(self, root: ConfinedRoot, setup: WorkerSetup, **_: Any) -> None:
        self._root = root
        self._preparation = Preparation(setup.instructions)

    def prepare(self, wanted: Iterable[PrepareRequest], on_idle: Callable[[], None]) -> Iterator[Outcome]:
        for each in wanted:
            with self._root.opened_regular(each.rel_path) as (fd, _):
                for outcome in self._preparation.prepare(fd, each):
                    yield _hashed(outcome) if isinstance(outcome, Prepared) else outcome

    def close(self) -> None:
        """Nothing to close."""


def _hashed(prepared: Prepared) -> Prepared:
    """Add the hashes, as the server does."""
    representations = [
        replace(
            each,
            chunks=[
                chunk._replace(text_hash=chunk_hash(chunk.index_kind, chunk.context, chunk.text))
                for chunk in each.chunks
            ],
        )
        for each in prepared.representations
    ]
    return replace(prepared, representations=representations)


def vectors_of(texts: Sequence[str]) -> Any:
    """Cheap vectors: texts that share words are near each other."""
    rows = numpy.zeros((len(texts), LocalEmbedder.dimensions), numpy.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in text.lower().split():
            row[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=2).digest()) % len(row)] += 1.0
        row[0] += 0.5
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


async def _embed(_: LocalEmbedder, texts: Sequence[str]) -> Any:
    return vectors_of(texts)


async def _embed_query(_: LocalEmbedder, text: str) -> Any:
    return vectors_of([text])[0]


async def _knows(_: LocalEmbedder, text: str) -> float:
    return 1.0


class Warnings(logging.Handler):
    """Collects log records of level warning and above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def searched(corpus: Corpus) -> tuple[list[Any], bool]:
    """What each query finds, and whether the index is reported as complete."""
    found: list[Any] = []
    complete = True
    for query, index in QUERIES:
        results = await corpus.search(query, 50, index, Filters())  # pyright: ignore[reportArgumentType] one of four
        complete = complete and corpus.indexing_complete
        found.append(
            [
                f"{hit.chunk.rel_path} {hit.chunk.span} {hit.chunk.doc_type} {hit.chunk.rep_type} "
                + hashlib.blake2b(hit.chunk.text.encode(), digest_size=4).hexdigest()
                for hit in results.hits
            ]
        )
    return found, complete


async def opened(root: Path, mode: IndexingMode) -> dict[str, Any]:
    """Open the corpus once: what searches find at once and, with indexing, at the end."""
    settings = CorpusSettings(
        root=str(root), embedding=EmbeddingSettings(provider="local"), ingest=IngestSettings(watch=False)
    )
    told: dict[str, Any] = {}
    warnings = Warnings()
    logging.getLogger().addHandler(warnings)
    try:
        with anyio.fail_after(DEADLINE_S):
            async with open_service(settings, Events(), indexing=mode) as corpus:
                try:
                    told["first"], told["complete"] = await searched(corpus)
                except ArmariumError as error:
                    told["error"] = error.code
                if mode == "background":
                    await corpus.until_indexed()
                    try:
                        told["last"], _ = await searched(corpus)
                    except ArmariumError as error:
                        told["last_error"] = error.code
                    if told.get("first") != told.get("last"):
                        # A damaged row that a search found is repaired afterwards.
                        await anyio.sleep(0.05)
                        await corpus.until_indexed()
                        told["last"], _ = await searched(corpus)
                warnings.lines += corpus.warnings
    except ArmariumError as error:
        told["error"] = error.code
    finally:
        logging.getLogger().removeHandler(warnings)
    return told | {"warnings": warnings.lines}


def trial(root: Path, state: Path) -> dict[str, Any]:
    """Put the state in place, then open it as a follower, as the leader, and as a follower again."""
    place = root / ".dir2mcp"
    while place.exists():
        # A merge that the library is still running for the previous state may create a file.
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(state, place)
    return {
        "reader": anyio.run(opened, root, "none"),
        "leader": anyio.run(opened, root, "background"),
        "after": anyio.run(opened, root, "none"),
    }


def cheap_models() -> Iterator[Any]:
    """Patches that make indexing nearly free."""
    yield patch.object(LocalEmbedder, "embed", _embed)
    yield patch.object(LocalEmbedder, "embed_query", _embed_query)
    yield patch.object(LocalEmbedder, "confidence", _knows)
    yield patch.object(indexing, "WorkerPool", WorkerPoolHere)


def main() -> None:
    for each in cheap_models():
        each.start()
    root = Path(sys.argv[1])
    for line in sys.stdin:
        try:
            answer = trial(root, Path(json.loads(line)))
        except BaseException:  # noqa: BLE001 the other end decides what it means
            answer = {"failure": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
