"""The words, vectors and catalogue over one storage: opened, caught up with it, and built anew where they are torn."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.catalogue import Catalogue
from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.ingest.prepared import Prepared, PreparedChunk
from armarium.capabilities.corpus.seals import VectorSeal, WordsSealer, words_fit, words_sealed
from armarium.capabilities.corpus.storage.changes import Recorded
from armarium.capabilities.corpus.storage.passages import Passage
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.capabilities.corpus.troubles import unwritable
from armarium.capabilities.corpus.words_directory import (
    WORDS_DIRECTORY,
    clear_leftovers,
    is_made,
    open_fixed,
    remove,
    replaced,
)
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.errors import DamagedIndex
from armarium.retrieval.search.lexical_index import LexicalChunk, LexicalIndex
from armarium.retrieval.search.vector_index import VectorIndex

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Vectors = NDArray[numpy.float32]

KINDS: tuple[IndexKind, ...] = ("text", "code")

_PASSAGES_AT_ONCE = 2000
_SEAL_PAUSES_S = (0.05, 0.2, 0.5, 0.0)
_PATH_SEPARATORS = re.compile(r"[/\\._\-!]+")


def vector_file(kind: IndexKind) -> str:
    """The name of the file that keeps a kind's vectors."""
    return f"vectors_{kind}.hnsw"


class CorpusIndex:
    """What a search looks into. It is made of the storage alone, and can always be made again."""

    def __init__(
        self,
        state_dir: Path,
        storage: Storage,
        dimensions: Mapping[IndexKind, int | None],
        *,
        writing: bool = True,
        health: Health | None = None,
    ) -> None:
        """`writing` is for the one process that holds the right to; others leave what is on disk as it is."""
        self._state_dir = state_dir
        self._storage = storage
        self._health = health or Health()
        self._dimensions = dict(dimensions)
        self._writing = writing
        self._unsaved: set[IndexKind] = set()
        self._uncommitted: int | None = None
        self._filled_up_to = 0
        self.catalogue = Catalogue()
        self.words = self._open_words()
        self._sealer = WordsSealer(storage, state_dir / WORDS_DIRECTORY) if writing else None
        self._seals = {kind: VectorSeal(storage, kind) for kind in KINDS}
        self.vectors: dict[IndexKind, VectorIndex] = {}

    def load(self, models: Mapping[IndexKind, str]) -> None:
        """Bring catalogue, words and vectors to where the storage is."""
        with ThreadPoolExecutor(1, "corpus-vectors") as beside:
            # Checking large files takes about as long as reading the lists of documents and passages.
            vectors: dict[IndexKind, Future[VectorIndex]] = {
                kind: beside.submit(self._open_vectors, kind, dimensions)
                for kind, dimensions in self._dimensions.items()
                if dimensions is not None
            }
            self.catalogue.load(*self._storage.contents())
            if self._writing:
                self._catch_up_words()
            for kind, opened in vectors.items():
                self.vectors[kind] = opened.result()
                self._catch_up_vectors(kind, models[kind])

    def close(self) -> None:
        """Keep what is not on disk yet."""
        try:
            self.commit_words()
            self.save_vectors()
        finally:
            self.words.close()
            if self._sealer is not None:
                self._sealer.close()

    def abandon(self) -> None:
        """Let go of everything without keeping it: what it was made from is damaged."""
        self.words.close()
        if self._sealer is not None:
            self._sealer.abandon()

    # Words

    def _open_words(self) -> LexicalIndex:
        if not self._writing:
            return self._open_words_of_another()
        directory = self._state_dir / WORDS_DIRECTORY
        clear_leftovers(self._state_dir)
        if words_fit(self._storage, directory):
            try:
                return LexicalIndex.open(directory)
            except DamagedIndex as error:
                self._warn("words", f"{error.message}; it is built anew")
        elif is_made(self._state_dir) or words_sealed(self._storage):
            self._warn("words", "the words index is not the one that belongs to meta.sqlite; it is built anew")
        remove(self._state_dir)
        self._storage.notes.put("words_up_to", "0")
        return LexicalIndex.open(directory)

    def _open_words_of_another(self) -> LexicalIndex:
        for pause_s in _SEAL_PAUSES_S:
            try:
                if not self._storage.checked and is_made(self._state_dir):
                    self._warn("words", "the words index was made by an older version, which kept no checksums of it")
                    return open_fixed(self._state_dir)
                if words_fit(self._storage, self._state_dir / WORDS_DIRECTORY):
                    return open_fixed(self._state_dir)
            except DamagedIndex as error:
                raise _being_built() from error
            # The other process may have committed just now, and be about to note it.
            time.sleep(pause_s)
        if words_sealed(self._storage):
            self._warn("words", "the words index is not the one that belongs to meta.sqlite")
        raise _being_built()

    def _warn(self, part: str, message: str) -> None:
        self._health.warn(f"damaged {part}", message)

    def _catch_up_words(self) -> None:
        """Add what was stored and not committed when the last process ended."""
        if len(self.words) == 0:
            self._seal_words(0)
        up_to = int(self._storage.notes.get("words_up_to") or 0)
        while passages := self._storage.passages.after(up_to, _PASSAGES_AT_ONCE):
            up_to = passages[-1].chunk_id
            # Some may have got there before the process ended.
            self.words.remove(passage.chunk_id for passage in passages)
            self.words.add(_word_passage(passage) for passage in passages)
            self._uncommitted = up_to
            self.commit_words()

    def commit_words(self) -> None:
        """Make the passages added so far searchable, and note how far the words are."""
        if self._uncommitted is None:
            return
        up_to, self._uncommitted = self._uncommitted, None
        self.words.commit()
        self._seal_words(up_to)

    def _seal_words(self, up_to: int) -> None:
        if self._sealer is not None:
            self._sealer.seal(words_up_to=str(up_to))

    def wipe(self) -> None:
        """Leave nothing of what is deleted on disk, because policy excludes some of it."""
        wiped = self._storage.wipe()
        # The library forgets a deleted passage's words when it merges, which may be never.
        self.words = replaced(self._state_dir, self.words, self._fill)
        self._seal_words(self._filled_up_to)
        if wiped:
            self._storage.note_wiped()

    def _fill(self, words: LexicalIndex) -> None:
        up_to = 0
        while passages := self._storage.passages.after(up_to, _PASSAGES_AT_ONCE):
            up_to = passages[-1].chunk_id
            words.add(_word_passage(passage) for passage in passages)
        self._uncommitted = None
        self._filled_up_to = up_to

    # Vectors

    def _open_vectors(self, kind: IndexKind, dimensions: int) -> VectorIndex:
        file, seal, reason = self._state_dir / vector_file(kind), self._seals[kind], ""
        for pause_s in (0.0,) if self._writing else _SEAL_PAUSES_S:
            try:
                index = VectorIndex.load(file, dimensions, is_sound=seal.fits)
            except DamagedIndex as error:
                reason = error.message
            else:
                if len(index) or not seal.exists:
                    return index
                reason = f"{file.name} is lost"
            # The other process may be about to replace it.
            time.sleep(pause_s)
        self._warn(f"{kind} vectors", f"{reason}; the vectors are read again from meta.sqlite")
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
        for start in range(0, len(rows), _PASSAGES_AT_ONCE):
            part = rows[start : start + _PASSAGES_AT_ONCE]
            index.add(numpy.array([each for each, _ in part], numpy.int64), unpacked([vector for _, vector in part]))
        self._unsaved.add(kind)
        lost = missing.difference(chunk_id for chunk_id, _ in rows)
        if lost:
            self._warn(f"stored {kind} vectors", f"{len(lost)} vectors in meta.sqlite are damaged; they are made again")
            if self._writing:
                self._storage.embeddings.embed_again(lost)

    def add_vectors(self, kind: IndexKind, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Passages can be found by meaning from now on."""
        import numpy

        if kind not in self.vectors:
            # Some endpoints do not say how long their vectors are before the first one.
            self.vectors[kind] = VectorIndex(vectors.shape[1])
            self._storage.notes.put(f"embed_{kind}_dim", str(vectors.shape[1]))
        self.vectors[kind].add(numpy.array(chunk_ids, numpy.int64), vectors)
        self._unsaved.add(kind)

    @property
    def unsaved(self) -> bool:
        """Whether there are vectors that their files do not have."""
        return bool(self._unsaved)

    def save_vectors(self) -> None:
        """Write the vectors that changed to their files."""
        if not self._writing:
            return
        for kind in sorted(self._unsaved):
            try:
                self.vectors[kind].save(self._state_dir / vector_file(kind), self._seals[kind].accept)
            except RuntimeError as error:
                # The library has no other word for a disk that is full.
                raise unwritable("the vectors cannot be saved") from error
            self._seals[kind].settle()
        self._unsaved.clear()

    # Documents

    def put(self, prepared: Prepared, recorded: Recorded) -> None:
        """A document was recorded: its passages are found by their words after the next commit."""
        self.catalogue.put_document(recorded.doc_id, prepared.rel_path, prepared.doc_type)
        title = prepared.representations[0].meta.get("title") if prepared.representations else None
        self._drop(recorded.buried)
        if not recorded.added:
            return
        self.words.add(
            _word_passage(_passage(chunk_id, recorded.doc_id, prepared.rel_path, title, chunk))
            for chunk_id, chunk in recorded.added
        )
        for chunk_id, chunk in recorded.added:
            self.catalogue.put_chunk(chunk_id, recorded.doc_id, chunk.index_kind)
        self._uncommitted = recorded.added[-1][0]

    def drop(self, gone: Recorded) -> None:
        """A document was buried: it is not found any more."""
        self.catalogue.drop_document(gone.doc_id)
        self._drop(gone.buried)

    def _drop(self, chunk_ids: Iterable[int]) -> None:
        buried = list(chunk_ids)
        for chunk_id in buried:
            self.catalogue.drop_chunk(chunk_id)
        if buried:
            self.words.remove(buried)
            # Removals ride along with the next commit; until then the catalogue hides them.


def _being_built() -> IndexNotReady:
    return IndexNotReady("the index is being built", hint="try again in a moment")


def _passage(chunk_id: int, doc_id: int, rel_path: str, title: str | None, chunk: PreparedChunk) -> Passage:
    return Passage(chunk_id, doc_id, chunk.index_kind, rel_path, title, chunk.context, chunk.text)


def _word_passage(passage: Passage) -> LexicalChunk:
    path_words = _PATH_SEPARATORS.sub(" ", passage.rel_path)
    title = f"{path_words} {passage.title}" if passage.title else path_words
    return LexicalChunk(passage.chunk_id, passage.doc_id, passage.kind, title, passage.context, passage.text)


def packed(vectors: Vectors) -> list[bytes]:
    """Vectors as the storage keeps them."""
    return [row.tobytes() for row in vectors.astype("<f2")]


def unpacked(vectors: Sequence[bytes]) -> Vectors:
    """Vectors as the storage kept them."""
    import numpy

    return numpy.frombuffer(b"".join(vectors), dtype="<f2").reshape(len(vectors), -1).astype(numpy.float32)
