"""Vectors, kept by the text they are of, and which chunks have theirs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from armarium.capabilities.corpus.storage.checks import sealed_vector, unsealed_vector
from armarium.capabilities.corpus.storage.database import Database
from armarium.retrieval.chunks import IndexKind


class PendingChunk(NamedTuple):
    """A chunk that has no vector yet."""

    chunk_id: int
    kind: IndexKind
    context: str
    text: str
    text_hash: bytes


class Embeddings:
    """The vectors of every model, and how far the chunks are with theirs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, after: int, limit: int) -> list[PendingChunk]:
        """The next chunks without a vector, by id."""
        return [PendingChunk(*row) for row in self._database.read("pending_chunks", (after, limit))]

    def of_text(self, model: str, text_hash: bytes) -> bytes | None:
        """The vector of a text that was embedded before, if it is sound."""
        rows = self._database.read("embedding", (model, text_hash))
        return unsealed_vector(text_hash, rows[0][0]) if rows else None

    def put(self, model: str, vectors: Iterable[tuple[bytes, bytes]], chunk_ids: Iterable[int]) -> int:
        """Keep vectors by the hash of their text, and mark the chunks that have theirs now; how many still live."""
        with self._database.transaction():
            rows = [(model, text_hash, sealed_vector(text_hash, vector)) for text_hash, vector in vectors]
            self._database.write_many("put_embedding", rows)
            return self._database.write_many("mark_embedded", ((chunk_id,) for chunk_id in chunk_ids))

    def mark_unembeddable(self, chunk_ids: Iterable[int], why: str) -> None:
        """The provider would not take these; they are found by their words alone."""
        with self._database.transaction():
            self._database.write_many("mark_unembeddable", ((why, chunk_id) for chunk_id in chunk_ids))

    def retry_unembeddable(self) -> None:
        """Let the chunks that failed be tried again."""
        with self._database.transaction():
            self._database.write("retry_unembeddable")

    def embedded_chunks(self, kind: IndexKind) -> list[int]:
        """Ids of the chunks that have their vector."""
        return [row[0] for row in self._database.read("embedded_chunks", (kind,))]

    def of_chunks(self, model: str, kind: IndexKind) -> list[tuple[int, bytes]]:
        """Every chunk's vector, those that are damaged left out."""
        rows = self._database.read("vectors_of", {"model": model, "kind": kind})
        vectors = ((chunk_id, unsealed_vector(text_hash, stored)) for chunk_id, text_hash, stored in rows)
        return [(chunk_id, vector) for chunk_id, vector in vectors if vector is not None]

    def embed_again(self, chunk_ids: Iterable[int]) -> None:
        """The vectors of these chunks are lost: let them be made again."""
        with self._database.transaction():
            self._database.write_many("embed_again", ((chunk_id,) for chunk_id in chunk_ids))

    def salvaged_from(self, damaged: Path) -> int:
        """Take over what can still be read of another database's vectors; how many. Some of them cost money."""
        if not damaged.is_file():
            return 0
        with closing(sqlite3.connect(damaged)) as old:
            rows = [row for row in _readable_vectors(old) if len(row[2]) % 2 and unsealed_vector(row[1], row[2])]
        with self._database.transaction():
            return self._database.write_many("put_embedding", rows)


def _readable_vectors(database: sqlite3.Connection) -> Iterator[tuple[str, bytes, bytes]]:
    """Model, hash and vector of every row up to the first that cannot be read."""
    with suppress(sqlite3.Error, UnicodeDecodeError):
        for model, text_hash, vector in database.execute("SELECT model, text_hash, vector FROM embeddings"):
            if isinstance(model, str) and isinstance(text_hash, bytes) and isinstance(vector, bytes):
                yield model, text_hash, vector
