"""Records, updates and deletes documents with their chunks, within one transaction."""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

from armarium.capabilities.corpus.storage.checks import (
    CHUNKS_TALLY,
    DOCUMENTS_TALLY,
    chunk_mark,
    document_mark,
    span_check,
    tally,
    text_check,
)
from armarium.capabilities.corpus.storage.database import Database
from armarium.capabilities.corpus.storage.prepared import Prepared, PreparedChunk, Representation

_CHARS_PER_TOKEN = 4
_NEXT_CHUNK_ID = "next_chunk_id"

_ChunkRow = tuple[int, bytes, int, int]
"""Id, hash, whether it has a vector, whether it is code."""


@dataclass(slots=True)
class Recorded:
    """What changed in the index when a document was recorded or deleted."""

    doc_id: int
    added: list[tuple[int, PreparedChunk]] = field(default_factory=list[tuple[int, PreparedChunk]])
    deleted: list[int] = field(default_factory=list[int])
    deleted_embedded: int = 0
    """How many of the deleted chunks had a vector."""
    representations: int = 0


class Changes:
    """The changes of one transaction. Buffered rows are dropped if it fails."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._new_chunks: list[tuple[Any, ...]] = []
        self._new_spans: list[tuple[Any, ...]] = []
        # Read within the transaction, because another process may have used more ids before it began.
        self._next_chunk_id = int(database.setting(_NEXT_CHUNK_ID) or 1)
        self._documents_tally = 0
        self._chunks_tally = 0

    def touch(self, doc_id: int, size_bytes: int, mtime_ns: int) -> None:
        """Update size and time of a file whose content did not change."""
        self._database.execute("touch_document", (size_bytes, mtime_ns // 1_000_000_000, mtime_ns, doc_id))

    def record(self, prepared: Prepared, *, known: bool = True) -> Recorded:
        """Record a document in place of its previous version. Chunks that did not change keep their ids."""
        for doc_id, doc_type in self._database.execute("live_document", (prepared.rel_path,)):
            self._documents_tally -= document_mark(doc_id, prepared.rel_path, doc_type)
        (row,) = self._database.execute(
            "put_document",
            (
                prepared.rel_path,
                "archive_member" if prepared.container else "file",
                prepared.doc_type,
                prepared.size_bytes,
                prepared.mtime_ns // 1_000_000_000,
                prepared.mtime_ns,
                prepared.content_hash,
                prepared.status,
                prepared.error,
                prepared.container,
            ),
        )
        recorded = Recorded(row[0])
        self._documents_tally += document_mark(recorded.doc_id, prepared.rel_path, prepared.doc_type)
        wanted = {each.rep_type: each for each in prepared.representations}
        before: dict[bytes, list[_ChunkRow]] = {}
        for rep_id, rep_type, rep_hash in self._live_representations(recorded.doc_id) if known else ():
            kept = wanted.get(rep_type)
            if kept is not None and kept.rep_hash == rep_hash:
                del wanted[rep_type]
                continue
            for row in self._delete_representation(rep_id):
                before.setdefault(row[1], []).append(row)
        for representation in wanted.values():
            self._record_representation(recorded, representation, before)
        self._delete_chunks(recorded, [row for rows in before.values() for row in rows])
        return recorded

    def delete(self, rel_path: str) -> Recorded | None:
        rows = self._database.execute("mark_document_deleted", (rel_path,))
        if not rows:
            return None
        ((doc_id, doc_type),) = rows
        self._documents_tally -= document_mark(doc_id, rel_path, doc_type)
        gone = Recorded(doc_id)
        representations = self._live_representations(doc_id)
        self._delete_chunks(
            gone, [row for rep_id, _, _ in representations for row in self._delete_representation(rep_id)]
        )
        return gone

    def finish(self) -> None:
        """Write the buffered rows and the tallies."""
        self.write_new_chunks()
        for key, change in ((DOCUMENTS_TALLY, self._documents_tally), (CHUNKS_TALLY, self._chunks_tally)):
            if change:
                self._database.put_setting(key, tally(int(self._database.setting(key) or 0) + change))

    def write_new_chunks(self) -> None:
        """Write the buffered chunks: one large insert costs a fraction of many small ones."""
        if self._new_spans:
            self._database.execute_many("put_chunk", self._new_chunks)
            self._database.execute_many("put_span", self._new_spans)
            self._database.put_setting(_NEXT_CHUNK_ID, str(self._next_chunk_id))
            self._new_chunks.clear()
            self._new_spans.clear()

    def _live_representations(self, doc_id: int) -> list[Any]:
        # Rows recorded earlier in this transaction must be visible.
        self.write_new_chunks()
        return self._database.execute("live_representations", (doc_id,))

    def _record_representation(
        self, recorded: Recorded, representation: Representation, before: dict[bytes, list[_ChunkRow]]
    ) -> None:
        content = zlib.compress(representation.content.encode(), 1) if representation.content is not None else None
        meta = json.dumps(representation.meta, ensure_ascii=False)
        if content is not None:
            meta = json.dumps(representation.meta | {"check": text_check(content, meta)}, ensure_ascii=False)
        (row,) = self._database.execute(
            "put_representation",
            (recorded.doc_id, representation.rep_type, representation.rep_hash, int(time.time()), meta, content),
        )
        rep_id = row[0]
        recorded.representations += 1
        for ordinal, chunk in enumerate(representation.chunks):
            text, context, text_hash, kind, span_kind, start, end = chunk
            if same := before.get(text_hash):
                chunk_id = same.pop()[0]
                self._database.execute("move_chunk", (rep_id, ordinal, chunk_id))
            else:
                chunk_id = self._next_chunk_id
                self._next_chunk_id += 1
                tokens = len(text) // _CHARS_PER_TOKEN + 1
                self._new_chunks.append((chunk_id, rep_id, ordinal, text, context, text_hash, tokens, kind))
                recorded.added.append((chunk_id, chunk))
                self._chunks_tally += chunk_mark(chunk_id, recorded.doc_id, kind == "code")
            rep_type = representation.rep_type
            check = span_check(chunk_id, rep_type, kind, context, text, text_hash, span_kind, start, end)
            self._new_spans.append((chunk_id, span_kind, start, end, check))

    def _delete_representation(self, rep_id: int) -> list[_ChunkRow]:
        """Mark it as deleted. Returns its chunks."""
        self._database.execute("mark_representation_deleted", (rep_id,))
        return self._database.execute("live_chunks_of", (rep_id,))

    def _delete_chunks(self, recorded: Recorded, rows: list[_ChunkRow]) -> None:
        recorded.deleted = [chunk_id for chunk_id, _, _, _ in rows]
        recorded.deleted_embedded = sum(has_vector for _, _, has_vector, _ in rows)
        self._chunks_tally -= sum(chunk_mark(chunk_id, recorded.doc_id, is_code) for chunk_id, _, _, is_code in rows)
        self._database.execute_many("mark_chunk_deleted", ((chunk_id,) for chunk_id in recorded.deleted))
