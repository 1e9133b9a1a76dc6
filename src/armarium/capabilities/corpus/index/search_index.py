"""The index that searches read: catalogue, lexical index and vector indexes of one corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from armarium.capabilities.corpus.health import Health
from armarium.capabilities.corpus.index.catalogue import Catalogue
from armarium.capabilities.corpus.index.lexical import StoredLexicalIndex, lexical_chunk
from armarium.capabilities.corpus.index.vectors import StoredVectorIndexes
from armarium.capabilities.corpus.storage.changes import Recorded
from armarium.capabilities.corpus.storage.prepared import Prepared
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.retrieval.chunks import IndexKind


@dataclass(eq=False)
class SearchIndex:
    """Catalogue, lexical index and vector indexes. All of it is derived from the storage and can be rebuilt."""

    state_dir: Path
    storage: Storage
    dimensions: Mapping[IndexKind, int | None]
    _: KW_ONLY
    writing: bool = True
    """Whether this is the one process that holds the lock. Other processes do not change the files."""
    health: Health = field(default_factory=Health)

    def __post_init__(self) -> None:
        stored, writing = (self.state_dir, self.storage), self.writing
        self.catalogue = Catalogue()
        self.lexical = StoredLexicalIndex(*stored, self.health, writing=writing)
        self.vectors = StoredVectorIndexes(*stored, self.dimensions, self.health, writing=writing)

    def load(self, models: Mapping[IndexKind, str]) -> None:
        """Bring everything up to date with the storage."""
        with ThreadPoolExecutor(1, "corpus-vectors") as thread:
            # Verifying large files takes about as long as reading the lists of documents and chunks.
            vectors = thread.submit(self.vectors.read_files)
            self.catalogue.load(*self.storage.contents())
            if self.writing:
                self.lexical.catch_up()
            self.vectors.catch_up(vectors.result(), models)

    def close(self) -> None:
        """Save what is not on disk yet, and close."""
        try:
            self.lexical.commit()
            self.vectors.save()
        finally:
            self.lexical.close()

    def abandon(self) -> None:
        """Close without saving, because the storage it is derived from is damaged."""
        self.lexical.close(sealing=False)

    def put(self, prepared: Prepared, recorded: Recorded) -> None:
        """Add a recorded document. Its chunks become searchable with the next commit."""
        doc_id, rel_path = recorded.doc_id, prepared.rel_path
        self.catalogue.put_document(doc_id, rel_path, prepared.doc_type)
        title = prepared.representations[0].meta.get("title") if prepared.representations else None
        self._drop_chunks(recorded.deleted)
        if not recorded.added:
            return
        self.lexical.add(
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
            self.lexical.index.remove(chunk_ids)

    def wipe(self) -> None:
        """Remove deleted chunks from disk completely, because policy excludes some of them."""
        wiped = self.storage.wipe()
        self.lexical.rebuild()
        if wiped:
            self.storage.note_wiped()
