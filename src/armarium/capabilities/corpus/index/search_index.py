"""The index that searches read: catalogue, lexical index and vector indexes, opened and kept in step with the
storage."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.index.catalogue import Catalogue
from armarium.capabilities.corpus.index.lexical_directory import (
    LEXICAL_DIRECTORY,
    clear_leftovers,
    is_made,
    open_fixed,
    remove,
    replaced,
)
from armarium.capabilities.corpus.index.seals import LexicalSealer, VectorSeal, has_lexical_seal, lexical_files_match
from armarium.capabilities.corpus.prepared import Prepared, PreparedChunk
from armarium.capabilities.corpus.storage.changes import Recorded
from armarium.capabilities.corpus.storage.chunks import IndexableChunk
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.capabilities.corpus.troubles import unwritable
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.errors import TornIndex
from armarium.retrieval.lexical import WordIndex, WordPassage
from armarium.retrieval.vectors import VectorIndex

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Vectors = NDArray[numpy.float32]

KINDS: tuple[IndexKind, ...] = ("text", "code")

_CHUNKS_AT_ONCE = 2000
_SEAL_PAUSES_S = (0.05, 0.2, 0.5, 0.0)
_PATH_SEPARATORS = re.compile(r"[/\\._\-!]+")


def vector_file(kind: IndexKind) -> str:
    """The name of the file for the vectors of a kind."""
    return f"vectors_{kind}.hnsw"


class SearchIndex:
    """Catalogue, lexical index and vector indexes of one corpus. All of it is derived from the storage and can be
    rebuilt."""

    def __init__(
        self,
        state_dir: Path,
        storage: Storage,
        dimensions: Mapping[IndexKind, int | None],
        *,
        writing: bool = True,
        health: Health | None = None,
    ) -> None:
        """`writing` is true in the one process that holds the lock. Other processes do not change the files."""
        self._state_dir = state_dir
        self._storage = storage
        self._health = health or Health()
        self._dimensions = dict(dimensions)
        self._writing = writing
        self._unsaved: set[IndexKind] = set()
        self._uncommitted: int | None = None
        self._filled_up_to = 0
        self.catalogue = Catalogue()
        self.lexical = self._open_lexical()
        self._sealer = LexicalSealer(storage, state_dir / LEXICAL_DIRECTORY) if writing else None
        self._seals = {kind: VectorSeal(storage, kind) for kind in KINDS}
        self.vectors: dict[IndexKind, VectorIndex] = {}

    def load(self, models: Mapping[IndexKind, str]) -> None:
        """Bring catalogue, lexical index and vectors up to date with the storage."""
        with ThreadPoolExecutor(1, "corpus-vectors") as beside:
            # Checking large files takes about as long as reading the lists of documents and chunks.
            vectors: dict[IndexKind, Future[VectorIndex]] = {
                kind: beside.submit(self._open_vectors, kind, dimensions)
                for kind, dimensions in self._dimensions.items()
                if dimensions is not None
            }
            self.catalogue.load(*self._storage.contents())
            if self._writing:
                self._catch_up_lexical()
            for kind, opened in vectors.items():
                self.vectors[kind] = opened.result()
                self._catch_up_vectors(kind, models[kind])

    def close(self) -> None:
        """Save what is not on disk yet, and close."""
        try:
            self.commit_lexical()
            self.save_vectors()
        finally:
            self.lexical.close()
            if self._sealer is not None:
                self._sealer.close()

    def abandon(self) -> None:
        """Close without saving, because the storage it is derived from is damaged."""
        self.lexical.close()
        if self._sealer is not None:
            self._sealer.abandon()

    # Lexical index

    def _open_lexical(self) -> WordIndex:
        if not self._writing:
            return self._open_followed_lexical()
        directory = self._state_dir / LEXICAL_DIRECTORY
        clear_leftovers(self._state_dir)
        if lexical_files_match(self._storage, directory):
            try:
                return WordIndex.open(directory)
            except TornIndex as error:
                self._warn("lexical index", f"{error.message}; it is rebuilt")
        elif is_made(self._state_dir) or has_lexical_seal(self._storage):
            self._warn("lexical index", "the lexical index does not belong to meta.sqlite; it is rebuilt")
        remove(self._state_dir)
        self._storage.notes.put("words_up_to", "0")
        return WordIndex.open(directory)

    def _open_followed_lexical(self) -> WordIndex:
        for pause_s in _SEAL_PAUSES_S:
            try:
                if not self._storage.checked and is_made(self._state_dir):
                    self._warn("lexical index", "the lexical index was built by an older version, without checksums")
                    return open_fixed(self._state_dir)
                if lexical_files_match(self._storage, self._state_dir / LEXICAL_DIRECTORY):
                    return open_fixed(self._state_dir)
            except TornIndex as error:
                raise _being_built() from error
            # The leading process may have committed a moment ago, and not recorded the checksums yet.
            time.sleep(pause_s)
        if has_lexical_seal(self._storage):
            self._warn("lexical index", "the lexical index does not belong to meta.sqlite")
        raise _being_built()

    def _warn(self, part: str, message: str) -> None:
        self._health.warn(f"damaged {part}", message)

    def _catch_up_lexical(self) -> None:
        """Add the chunks that were stored but not committed when the last process ended."""
        if len(self.lexical) == 0:
            self._seal_lexical(0)
        up_to = int(self._storage.notes.get("words_up_to") or 0)
        while chunks := self._storage.chunks.after(up_to, _CHUNKS_AT_ONCE):
            up_to = chunks[-1].chunk_id
            # Some of them may have been committed before the process ended.
            self.lexical.remove(chunk.chunk_id for chunk in chunks)
            self.lexical.add(_lexical_entry(chunk) for chunk in chunks)
            self._uncommitted = up_to
            self.commit_lexical()

    def commit_lexical(self) -> None:
        """Make the chunks added so far searchable, and record how far the lexical index is."""
        if self._uncommitted is None:
            return
        up_to, self._uncommitted = self._uncommitted, None
        self.lexical.commit()
        self._seal_lexical(up_to)

    def _seal_lexical(self, up_to: int) -> None:
        if self._sealer is not None:
            self._sealer.seal(words_up_to=str(up_to))

    def wipe(self) -> None:
        """Remove deleted chunks from disk completely, because policy excludes some of them."""
        wiped = self._storage.wipe()
        # The library removes the terms of a deleted chunk when it merges segments, which may be never.
        self.lexical = replaced(self._state_dir, self.lexical, self._fill)
        self._seal_lexical(self._filled_up_to)
        if wiped:
            self._storage.note_wiped()

    def _fill(self, lexical: WordIndex) -> None:
        up_to = 0
        while chunks := self._storage.chunks.after(up_to, _CHUNKS_AT_ONCE):
            up_to = chunks[-1].chunk_id
            lexical.add(_lexical_entry(chunk) for chunk in chunks)
        self._uncommitted = None
        self._filled_up_to = up_to

    # Vectors

    def _open_vectors(self, kind: IndexKind, dimensions: int) -> VectorIndex:
        file, seal, reason = self._state_dir / vector_file(kind), self._seals[kind], ""
        for pause_s in (0.0,) if self._writing else _SEAL_PAUSES_S:
            try:
                index = VectorIndex.load(file, dimensions, is_sound=seal.fits)
            except TornIndex as error:
                reason = error.message
            else:
                if len(index) or not seal.exists:
                    return index
                reason = f"{file.name} is lost"
            # The leading process may be about to replace the file.
            time.sleep(pause_s)
        self._warn(f"{kind} vectors", f"{reason}; the vectors are loaded from meta.sqlite")
        self._unsaved.add(kind)
        return VectorIndex(dimensions)

    def _catch_up_vectors(self, kind: IndexKind, model: str) -> None:
        import numpy

        index = self.vectors[kind]
        stored = numpy.array(self._storage.embeddings.embedded_chunks(kind), numpy.int64)
        missing = set(stored[~index.contains(stored)].tolist()) if len(stored) else set[int]()
        if not missing:
            return
        vectors = self._storage.embeddings.of_chunks(model, kind)
        rows = [(chunk_id, vector) for chunk_id, vector in vectors if chunk_id in missing]
        rows = [row for row in rows if len(row[1]) == 2 * index.dimensions]
        for start in range(0, len(rows), _CHUNKS_AT_ONCE):
            part = rows[start : start + _CHUNKS_AT_ONCE]
            index.add(numpy.array([each for each, _ in part], numpy.int64), unpacked([vector for _, vector in part]))
        self._unsaved.add(kind)
        lost = missing.difference(chunk_id for chunk_id, _ in rows)
        if lost:
            self._warn(
                f"stored {kind} vectors", f"{len(lost)} vectors in meta.sqlite are damaged; they are computed again"
            )
            if self._writing:
                self._storage.embeddings.embed_again(lost)

    def add_vectors(self, kind: IndexKind, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Make chunks available to semantic search."""
        import numpy

        if kind not in self.vectors:
            # Some endpoints reveal the dimensions only with the first vector.
            self.vectors[kind] = VectorIndex(vectors.shape[1])
            self._storage.notes.put(f"embed_{kind}_dim", str(vectors.shape[1]))
        self.vectors[kind].add(numpy.array(chunk_ids, numpy.int64), vectors)
        self._unsaved.add(kind)

    @property
    def unsaved(self) -> bool:
        """Whether some vectors are not in their files yet."""
        return bool(self._unsaved)

    def save_vectors(self) -> None:
        """Save the vector indexes that changed."""
        if not self._writing:
            return
        for kind in sorted(self._unsaved):
            try:
                self.vectors[kind].save(self._state_dir / vector_file(kind), self._seals[kind].accept)
            except RuntimeError as error:
                # The library raises nothing more specific when the disk is full.
                raise unwritable("the vectors cannot be saved") from error
            self._seals[kind].settle()
        self._unsaved.clear()

    # Documents

    def put(self, prepared: Prepared, recorded: Recorded) -> None:
        """Add a recorded document. Its chunks become searchable with the next commit."""
        self.catalogue.put_document(recorded.doc_id, prepared.rel_path, prepared.doc_type)
        title = prepared.representations[0].meta.get("title") if prepared.representations else None
        self._drop(recorded.deleted)
        if not recorded.added:
            return
        self.lexical.add(
            _lexical_entry(_chunk(chunk_id, recorded.doc_id, prepared.rel_path, title, chunk))
            for chunk_id, chunk in recorded.added
        )
        for chunk_id, chunk in recorded.added:
            self.catalogue.put_chunk(chunk_id, recorded.doc_id, chunk.index_kind)
        self._uncommitted = recorded.added[-1][0]

    def drop(self, gone: Recorded) -> None:
        """Remove a deleted document."""
        self.catalogue.drop_document(gone.doc_id)
        self._drop(gone.deleted)

    def _drop(self, chunk_ids: Iterable[int]) -> None:
        deleted = list(chunk_ids)
        for chunk_id in deleted:
            self.catalogue.drop_chunk(chunk_id)
        if deleted:
            self.lexical.remove(deleted)
            # Removals take effect with the next commit. Until then the catalogue hides them.


def _being_built() -> IndexNotReady:
    return IndexNotReady("the index is being built", hint="try again in a moment")


def _chunk(chunk_id: int, doc_id: int, rel_path: str, title: str | None, chunk: PreparedChunk) -> IndexableChunk:
    return IndexableChunk(chunk_id, doc_id, chunk.index_kind, rel_path, title, chunk.context, chunk.text)


def _lexical_entry(chunk: IndexableChunk) -> WordPassage:
    path_words = _PATH_SEPARATORS.sub(" ", chunk.rel_path)
    title = f"{path_words} {chunk.title}" if chunk.title else path_words
    return WordPassage(chunk.chunk_id, chunk.doc_id, chunk.kind, title, chunk.context, chunk.text)


def packed(vectors: Vectors) -> list[bytes]:
    """Vectors in their stored form."""
    return [row.tobytes() for row in vectors.astype("<f2")]


def unpacked(vectors: Sequence[bytes]) -> Vectors:
    """Vectors from their stored form."""
    import numpy

    return numpy.frombuffer(b"".join(vectors), dtype="<f2").reshape(len(vectors), -1).astype(numpy.float32)
