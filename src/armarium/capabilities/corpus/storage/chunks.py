"""Reads chunks: by id for search results, and in order to build the indexes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from armarium.capabilities.corpus.errors import StoreCorrupt
from armarium.capabilities.corpus.storage.checks import span_check
from armarium.capabilities.corpus.storage.database import Database
from armarium.retrieval.chunks import IndexKind
from armarium.retrieval.spans import Span, span_from_columns


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk with all fields of a search result."""

    chunk_id: int
    rel_path: str
    doc_type: str
    rep_type: str
    text: str
    context: str
    text_hash: bytes
    span: Span


class Chunks:
    """All live chunks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def by_id(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        """The chunks that still exist, by id. Damaged ones are left out and reported."""
        found: dict[int, StoredChunk] = {}
        damaged: set[str] = set()
        for row in self._rows(chunk_ids, damaged):
            chunk_id, rel_path, doc_type, rep_type, text, context, text_hash, kind, check, *span = row
            checked = (chunk_id, rep_type, kind, context, text, text_hash, *span)
            if self._database.checked and not _is_sound(check, checked):
                damaged.add(str(rel_path))
                continue
            place = span_from_columns(*span)
            found[chunk_id] = StoredChunk(chunk_id, rel_path, doc_type, rep_type, text, context, text_hash, place)
        if len(found) < len(chunk_ids) and not damaged and self._is_incomplete(chunk_ids, found):
            damaged.add("")
        if damaged:
            self._database.on_damaged_rows(damaged)
        return found

    def _rows(self, chunk_ids: Sequence[int], damaged: set[str]) -> list[Any]:
        try:
            return self._database.read("chunks_by_id", (_as_json(chunk_ids),))
        except StoreCorrupt:
            if len(chunk_ids) == 1:
                damaged.add("")
                return []
        # One unreadable row must not hide the others.
        return [row for each in chunk_ids for row in self._rows([each], damaged)]

    def _is_incomplete(self, chunk_ids: Sequence[int], found: Mapping[int, StoredChunk]) -> bool:
        """Whether a live chunk could not be read because a row it needs is missing."""
        missing = [each for each in chunk_ids if each not in found]
        living = [row[0] for row in self._database.read("living_chunks", (_as_json(missing),))]
        # Read again, because they may have been written meanwhile.
        return bool(living) and len(self._database.read("chunks_by_id", (_as_json(living),))) < len(living)

    def after(self, chunk_id: int, limit: int) -> list[tuple[int, int, IndexKind, str, str | None, str, str]]:
        """Id, document id, kind, path, title, context and text of the next chunks in id order."""
        return self._database.read("chunks_after", (chunk_id, limit))


def _as_json(chunk_ids: Sequence[int]) -> str:
    return json.dumps([int(each) for each in chunk_ids])


def _is_sound(check: Any, columns: tuple[Any, ...]) -> bool:
    try:
        return check == span_check(*columns)
    except (TypeError, ValueError):  # a column has the wrong type
        return False
