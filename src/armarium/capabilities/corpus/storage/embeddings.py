"""Vectors, kept by the text they are of, and which passages have theirs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from armarium.capabilities.corpus.storage.database import Database
from armarium.retrieval.passages import IndexKind


class Pending(NamedTuple):
    """A chunk that has no vector yet."""

    chunk_id: int
    kind: IndexKind
    context: str
    text: str
    text_hash: bytes


class Embeddings:
    """The vectors of every model, and how far the passages are with theirs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending(self, after: int, limit: int) -> list[Pending]:
        """The next passages without a vector, by id."""
        return [Pending(*row) for row in self._database.read("pending_chunks", (after, limit))]

    def of_text(self, model: str, text_hash: bytes) -> bytes | None:
        """The vector of a text that was embedded before."""
        rows = self._database.read("embedding", (model, text_hash))
        return rows[0][0] if rows else None

    def put(self, model: str, vectors: Iterable[tuple[bytes, bytes]], chunk_ids: Iterable[int]) -> int:
        """Keep vectors by the hash of their text, and mark the passages that have theirs now; how many still live."""
        with self._database.transaction():
            self._database.write_many("put_embedding", ((model, text_hash, vector) for text_hash, vector in vectors))
            return self._database.write_many("mark_embedded", ((chunk_id,) for chunk_id in chunk_ids))

    def mark_unembeddable(self, chunk_ids: Iterable[int], why: str) -> None:
        """The provider would not take these; they are found by their words alone."""
        with self._database.transaction():
            self._database.write_many("mark_unembeddable", ((why, chunk_id) for chunk_id in chunk_ids))

    def retry_unembeddable(self) -> None:
        """Let the passages that failed be tried again."""
        with self._database.transaction():
            self._database.write("retry_unembeddable")

    def embedded_chunks(self, kind: IndexKind) -> list[int]:
        """Ids of the passages that have their vector."""
        return [row[0] for row in self._database.read("embedded_chunks", (kind,))]

    def of_chunks(self, model: str, kind: IndexKind) -> list[tuple[int, bytes]]:
        """Every passage's vector."""
        return self._database.read("vectors_of", {"model": model, "kind": kind})
