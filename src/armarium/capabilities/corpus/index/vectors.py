"""The vector indexes of a corpus on disk: opened, brought up to date with the storage, saved."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.index.seals import SEAL_PAUSES_S, VectorSeal
from armarium.capabilities.corpus.storage.errors import unwritable_error
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.errors import DamagedIndex
from armarium.retrieval.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from armarium.providers.interfaces import Vectors

KINDS: tuple[IndexKind, ...] = ("text", "code")

_CHUNKS_AT_ONCE = 2000


def vector_file(kind: IndexKind) -> str:
    return f"vectors_{kind}.hnsw"


@dataclass(frozen=True, slots=True)
class StoredVectorIndexes:
    """One vector index for each kind of chunk, each with its file."""

    state_dir: Path
    storage: Storage
    dimensions: Mapping[IndexKind, int | None]
    health: Health
    writing: bool
    unsaved: set[IndexKind] = field(default_factory=set[IndexKind])
    """The kinds of which some vectors are not in their file yet."""
    by_kind: dict[IndexKind, VectorIndex] = field(default_factory=dict[IndexKind, VectorIndex])
    """A kind without any vector may be missing."""

    def read_files(self) -> dict[IndexKind, VectorIndex]:
        """Read and verify the files. Independent of the storage's rows, so it can run in another thread."""
        known = self.dimensions.items()
        return {kind: self._read_file(kind, dimensions) for kind, dimensions in known if dimensions is not None}

    def catch_up(self, indexes: Mapping[IndexKind, VectorIndex], models: Mapping[IndexKind, str]) -> None:
        """Use these indexes, after adding the vectors that are only in the storage."""
        self.by_kind.update(indexes)
        for kind, index in indexes.items():
            self._add_missing(kind, index, models[kind])

    def _read_file(self, kind: IndexKind, dimensions: int) -> VectorIndex:
        file, seal, reason = self.state_dir / vector_file(kind), VectorSeal(self.storage, kind), ""
        for pause_s in (0.0,) if self.writing else SEAL_PAUSES_S:
            try:
                index = VectorIndex.load(file, dimensions, is_sound=seal.fits)
            except DamagedIndex as error:
                reason = error.message
            else:
                if len(index) or not seal.exists:
                    return index
                reason = f"{file.name} is lost"
            # The leading process may be about to replace the file.
            time.sleep(pause_s)
        self.health.warn(f"damaged {kind} vectors", f"{reason}; the vectors are loaded from meta.sqlite")
        self.unsaved.add(kind)
        return VectorIndex(dimensions)

    def _add_missing(self, kind: IndexKind, index: VectorIndex, model: str) -> None:
        import numpy

        stored = numpy.array(self.storage.embeddings.embedded_chunks(kind), numpy.int64)
        missing = set(stored[~index.contains(stored)].tolist()) if len(stored) else set[int]()
        if not missing:
            return
        rows = self.storage.embeddings.of_chunks(model, kind)
        rows = [row for row in rows if row[0] in missing and len(row[1]) == 2 * index.dimensions]
        for start in range(0, len(rows), _CHUNKS_AT_ONCE):
            ids, vectors = zip(*rows[start : start + _CHUNKS_AT_ONCE], strict=True)
            index.add(numpy.array(ids, numpy.int64), unpack_vectors(vectors))
        self.unsaved.add(kind)
        lost = missing.difference(chunk_id for chunk_id, _ in rows)
        if lost:
            message = f"{len(lost)} vectors in meta.sqlite are damaged; they are computed again"
            self.health.warn(f"damaged stored {kind} vectors", message)
            if self.writing:
                self.storage.embeddings.embed_again(lost)

    def add(self, kind: IndexKind, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Make chunks available to semantic search."""
        import numpy

        if kind not in self.by_kind:
            # Some endpoints reveal the dimensions only with the first vector.
            self.by_kind[kind] = VectorIndex(vectors.shape[1])
            self.storage.notes.put(f"embed_{kind}_dim", str(vectors.shape[1]))
        self.by_kind[kind].add(numpy.array(chunk_ids, numpy.int64), vectors)
        self.unsaved.add(kind)

    def save(self) -> None:
        """Save the indexes that changed. Does nothing in a process that may not write."""
        if not self.writing:
            return
        for kind in sorted(self.unsaved):
            seal = VectorSeal(self.storage, kind)
            try:
                self.by_kind[kind].save(self.state_dir / vector_file(kind), seal.accept)
            except RuntimeError as error:
                # The library raises nothing more specific when the disk is full.
                raise unwritable_error("the vectors cannot be saved") from error
            seal.settle()
        self.unsaved.clear()


def pack_vectors(vectors: Vectors) -> list[bytes]:
    return [row.tobytes() for row in vectors.astype("<f2")]


def unpack_vectors(vectors: Sequence[bytes]) -> Vectors:
    import numpy

    return numpy.frombuffer(b"".join(vectors), dtype="<f2").reshape(len(vectors), -1).astype(numpy.float32)
