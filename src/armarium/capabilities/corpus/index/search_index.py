"""The index that searches read: catalogue, lexical index and vector indexes of one corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.index.catalogue import Catalogue
from armarium.capabilities.corpus.index.lexical import StoredLexicalIndex, lexical_chunk
from armarium.capabilities.corpus.index.vectors import StoredVectorIndexes
from armarium.capabilities.corpus.prepared import Prepared
from armarium.capabilities.corpus.storage.changes import Recorded
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.search.lexical_index import LexicalIndex
from armarium.retrieval.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from armarium.providers.interfaces import Vectors


class SearchIndex:
    """Catalogue, lexical index and vector indexes. All of it is derived from the storage and can be rebuilt."""

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
        self._storage = storage
        self._writing = writing
        health = health or Health()
        self.catalogue = Catalogue()
        self._lexical = StoredLexicalIndex(state_dir, storage, health, writing=writing)
        self._vectors = StoredVectorIndexes(state_dir, storage, dimensions, health, writing=writing)

    @property
    def lexical(self) -> LexicalIndex:
        return self._lexical.index

    @property
    def vectors(self) -> Mapping[IndexKind, VectorIndex]:
        """The vector indexes by kind. A kind without any vector may be missing."""
        return self._vectors.by_kind

    def load(self, models: Mapping[IndexKind, str]) -> None:
        """Bring everything up to date with the storage."""
        with ThreadPoolExecutor(1, "corpus-vectors") as thread:
            # Verifying large files takes about as long as reading the lists of documents and chunks.
            vectors = thread.submit(self._vectors.read_files)
            self.catalogue.load(*self._storage.contents())
            if self._writing:
                self._lexical.catch_up()
            self._vectors.catch_up(vectors.result(), models)

    def close(self) -> None:
        """Save what is not on disk yet, and close."""
        try:
            self._lexical.commit()
            self._vectors.save()
        finally:
            self._lexical.close()

    def abandon(self) -> None:
        """Close without saving, because the storage it is derived from is damaged."""
        self._lexical.close(sealing=False)

    def put(self, prepared: Prepared, recorded: Recorded) -> None:
        """Add a recorded document. Its chunks become searchable with the next commit."""
        doc_id, rel_path = recorded.doc_id, prepared.rel_path
        self.catalogue.put_document(doc_id, rel_path, prepared.doc_type)
        title = prepared.representations[0].meta.get("title") if prepared.representations else None
        self._drop_chunks(recorded.deleted)
        if not recorded.added:
            return
        self._lexical.add(
            [
                lexical_chunk(chunk_id, doc_id, chunk.index_kind, rel_path, title, chunk.context, chunk.text)
                for chunk_id, chunk in recorded.added
            ]
        )
        for chunk_id, chunk in recorded.added:
            self.catalogue.put_chunk(chunk_id, doc_id, chunk.index_kind)

    def drop(self, gone: Recorded) -> None:
        self.catalogue.drop_document(gone.doc_id)
        self._drop_chunks(gone.deleted)

    def _drop_chunks(self, chunk_ids: Sequence[int]) -> None:
        for chunk_id in chunk_ids:
            self.catalogue.drop_chunk(chunk_id)
        if chunk_ids:
            # Takes effect with the next commit. Until then the catalogue hides them.
            self.lexical.remove(chunk_ids)

    def commit_lexical(self) -> None:
        """Make the chunks added so far searchable."""
        self._lexical.commit()

    def wipe(self) -> None:
        """Remove deleted chunks from disk completely, because policy excludes some of them."""
        wiped = self._storage.wipe()
        self._lexical.rebuild()
        if wiped:
            self._storage.note_wiped()

    def add_vectors(self, kind: IndexKind, chunk_ids: Sequence[int], vectors: Vectors) -> None:
        """Make chunks available to semantic search."""
        self._vectors.add(kind, chunk_ids, vectors)

    @property
    def unsaved(self) -> bool:
        """Whether some vectors are not in their files yet."""
        return bool(self._vectors.unsaved)

    def save_vectors(self) -> None:
        self._vectors.save()
