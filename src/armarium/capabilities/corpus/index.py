"""The words, vectors and catalogue over one storage: opened, caught up with it, and built anew where they are torn."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.catalogue import Catalogue
from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.ingest.prepared import Prepared, PreparedChunk
from armarium.capabilities.corpus.storage.changes import Recorded
from armarium.capabilities.corpus.storage.passages import Passage
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.capabilities.corpus.troubles import unwritable
from armarium.capabilities.corpus.words_directory import WORDS_DIRECTORY, clear_leftovers, is_made, open_fixed, replaced
from armarium.retrieval.errors import TornIndex
from armarium.retrieval.lexical import WordIndex, WordPassage
from armarium.retrieval.passages import IndexKind
from armarium.retrieval.vectors import VectorIndex

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    Vectors = NDArray[numpy.float32]

_log = logging.getLogger(__name__)

KINDS: tuple[IndexKind, ...] = ("text", "code")

_PASSAGES_AT_ONCE = 2000
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
    ) -> None:
        """`writing` is for the one process that holds the right to; others leave what is on disk as it is."""
        self._state_dir = state_dir
        self._storage = storage
        self._dimensions = dict(dimensions)
        self._writing = writing
        self._unsaved: set[IndexKind] = set()
        self._uncommitted: int | None = None
        self.catalogue = Catalogue()
        self.words = self._open_words()
        self.vectors: dict[IndexKind, VectorIndex] = {}

    def load(self, models: Mapping[IndexKind, str]) -> None:
        """Bring catalogue, words and vectors to where the storage is."""
        self.catalogue.load(self._storage.documents.all(), self._storage.passages.all())
        if self._writing:
            self._catch_up_words()
        for kind in KINDS:
            dimensions = self._dimensions[kind]
            if dimensions is not None:
                self.vectors[kind] = self._open_vectors(kind, dimensions)
                self._catch_up_vectors(kind, models[kind])

    def close(self) -> None:
        """Keep what is not on disk yet."""
        self.commit_words()
        self.save_vectors()
        self.words.close()

    # Words

    def _open_words(self) -> WordIndex:
        if not self._writing:
            return self._open_words_of_another()
        directory = self._state_dir / WORDS_DIRECTORY
        clear_leftovers(self._state_dir)
        try:
            return WordIndex.open(directory)
        except TornIndex as error:
            _log.warning("the words index is built anew", extra={"reason": error.message})
            shutil.rmtree(directory, ignore_errors=True)
            self._storage.notes.put("words_up_to", "0")
            return WordIndex.open(directory)

    def _open_words_of_another(self) -> WordIndex:
        try:
            if is_made(self._state_dir):
                return open_fixed(self._state_dir)
        except TornIndex as error:
            raise _being_built() from error
        raise _being_built()

    def _catch_up_words(self) -> None:
        """Add what was stored and not committed when the last process ended."""
        if len(self.words) == 0:
            self._storage.notes.put("words_up_to", "0")
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
        self._storage.notes.put("words_up_to", str(up_to))

    def wipe(self) -> None:
        """Leave nothing of what is deleted on disk, because policy excludes some of it."""
        wiped = self._storage.wipe()
        # The library forgets a deleted passage's words when it merges, which may be never.
        self.words = replaced(self._state_dir, self.words, self._fill)
        if wiped:
            self._storage.note_wiped()

    def _fill(self, words: WordIndex) -> None:
        up_to = 0
        while passages := self._storage.passages.after(up_to, _PASSAGES_AT_ONCE):
            up_to = passages[-1].chunk_id
            words.add(_word_passage(passage) for passage in passages)
        self._uncommitted = None
        self._storage.notes.put("words_up_to", str(up_to))

    # Vectors

    def _open_vectors(self, kind: IndexKind, dimensions: int) -> VectorIndex:
        try:
            return VectorIndex.load(self._state_dir / vector_file(kind), dimensions)
        except TornIndex as error:
            _log.warning("the vectors are read again from meta.sqlite", extra={"reason": error.message})
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
        for start in range(0, len(rows), _PASSAGES_AT_ONCE):
            part = rows[start : start + _PASSAGES_AT_ONCE]
            index.add(numpy.array([each for each, _ in part], numpy.int64), unpacked([vector for _, vector in part]))
        self._unsaved.add(kind)

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
                self.vectors[kind].save(self._state_dir / vector_file(kind))
            except RuntimeError as error:
                # The library has no other word for a disk that is full.
                raise unwritable("the vectors cannot be saved") from error
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


def _word_passage(passage: Passage) -> WordPassage:
    path_words = _PATH_SEPARATORS.sub(" ", passage.rel_path)
    title = f"{path_words} {passage.title}" if passage.title else path_words
    return WordPassage(passage.chunk_id, passage.doc_id, passage.kind, title, passage.context, passage.text)


def packed(vectors: Vectors) -> list[bytes]:
    """Vectors as the storage keeps them."""
    return [row.tobytes() for row in vectors.astype("<f2")]


def unpacked(vectors: Sequence[bytes]) -> Vectors:
    """Vectors as the storage kept them."""
    import numpy

    return numpy.frombuffer(b"".join(vectors), dtype="<f2").reshape(len(vectors), -1).astype(numpy.float32)
