"""Stores vectors by the hash of their text, and which chunks have one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from armarium.capabilities.corpus.storage.checks import seal_vector, unseal_vector
from armarium.capabilities.corpus.storage.database import Database
from armarium.retrieval.chunks import IndexKind


class PendingChunk(NamedTuple):
    """A chunk without a vector."""

    chunk_id: int
    kind: IndexKind
    context: str
    text: str
    text_hash: bytes


class Embeddings:
    """The vectors of all models, and the embedding status of chunks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, after: int, limit: int) -> list[PendingChunk]:
        """The next chunks without a vector, in id order."""
        return [PendingChunk(*row) for row in self._database.read("pending_chunks", (after, limit))]

    def of_text(self, model: str, text_hash: bytes) -> bytes | None:
        """The stored vector of a text, if there is one and it is intact."""
        rows = self._database.read("embedding", (model, text_hash))
        return unseal_vector(text_hash, rows[0][0]) if rows else None

    def put(self, model: str, vectors: Iterable[tuple[bytes, bytes]], chunk_ids: Iterable[int]) -> int:
        """Store vectors by the hash of their text, mark chunks as embedded, and return how many of those are live."""
        with self._database.transaction():
            rows = [(model, text_hash, seal_vector(text_hash, vector)) for text_hash, vector in vectors]
            self._database.execute_many("put_embedding", rows)
            return self._database.execute_many("mark_embedded", ((chunk_id,) for chunk_id in chunk_ids))

    def mark_unembeddable(self, chunk_ids: Iterable[int], why: str) -> None:
        """Mark chunks that the provider refused. Only lexical search finds them."""
        with self._database.transaction():
            self._database.execute_many("mark_unembeddable", ((why, chunk_id) for chunk_id in chunk_ids))

    def retry_unembeddable(self) -> None:
        with self._database.transaction():
            self._database.execute("retry_unembeddable")

    def embedded_chunks(self, kind: IndexKind) -> list[int]:
        return [row[0] for row in self._database.read("embedded_chunks", (kind,))]

    def of_chunks(self, model: str, kind: IndexKind) -> list[tuple[int, bytes]]:
        """The intact vectors of all chunks."""
        rows = self._database.read("vectors_of", {"model": model, "kind": kind})
        vectors = ((chunk_id, unseal_vector(text_hash, stored)) for chunk_id, text_hash, stored in rows)
        return [(chunk_id, vector) for chunk_id, vector in vectors if vector is not None]

    def embed_again(self, chunk_ids: Iterable[int]) -> None:
        """Mark chunks as pending, because their vectors are lost."""
        with self._database.transaction():
            self._database.execute_many("embed_again", ((chunk_id,) for chunk_id in chunk_ids))

    def salvage_from(self, damaged: Path) -> int:
        """Copy the readable vectors of a damaged database: to compute them again may cost money. Returns their
        number."""
        if not damaged.is_file():
            return 0
        with closing(sqlite3.connect(damaged)) as old:
            rows = [row for row in _readable_vectors(old) if len(row[2]) % 2 and unseal_vector(row[1], row[2])]
        with self._database.transaction():
            return self._database.execute_many("put_embedding", rows)


def _readable_vectors(database: sqlite3.Connection) -> Iterator[tuple[str, bytes, bytes]]:
    """Model, hash and vector of every row up to the first unreadable one."""
    with suppress(sqlite3.Error, UnicodeDecodeError):
        for model, text_hash, vector in database.execute("SELECT model, text_hash, vector FROM embeddings"):
            if isinstance(model, str) and isinstance(text_hash, bytes) and isinstance(vector, bytes):
                yield model, text_hash, vector
