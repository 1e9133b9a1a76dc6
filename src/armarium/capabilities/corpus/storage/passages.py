"""Passages as they are read: by id for a hit, and in order for the indexes that are made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from armarium.capabilities.corpus.storage.database import Database
from armarium.retrieval.passages import IndexKind
from armarium.retrieval.spans import Span, span_from_columns


class Passage(NamedTuple):
    """A chunk as the words index wants it."""

    chunk_id: int
    doc_id: int
    kind: IndexKind
    rel_path: str
    title: str | None
    context: str
    text: str


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk with everything that a hit tells."""

    chunk_id: int
    rel_path: str
    doc_type: str
    rep_type: str
    text: str
    context: str
    text_hash: bytes
    span: Span


class Passages:
    """Every passage that is not buried."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def by_id(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        """The passages that still exist, by id."""
        found: dict[int, StoredChunk] = {}
        for row in self._database.read("chunks_by_id", (json.dumps([int(each) for each in chunk_ids]),)):
            span = span_from_columns(*row[-3:])
            found[row[0]] = StoredChunk(*row[:-3], span=span)
        return found

    def all(self) -> list[tuple[int, int, int]]:
        """Id, document, and whether it is code, of every passage, in the order of the ids."""
        return self._database.read("all_chunks")

    def after(self, chunk_id: int, limit: int) -> list[Passage]:
        """The next passages by id."""
        return [Passage(*row) for row in self._database.read("passages_after", (chunk_id, limit))]
