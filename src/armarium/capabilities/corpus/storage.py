"""`meta.sqlite`: documents, representations, chunks, spans, vectors, settings. What is true of a corpus is in here."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from armarium.capabilities.corpus.errors import IndexVersionMismatch, StoreCorrupt
from armarium.capabilities.corpus.ingest.prepared import Prepared, PreparedChunk, Representation
from armarium.foundation.sql import queries
from armarium.retrieval.passages import IndexKind
from armarium.retrieval.spans import Span, span_from_columns

FORMAT_VERSION = "1"
"""Of everything in the state directory. Another number means: build it again."""
PROTOCOL_VERSION = "2025-11-25"

_BUSY_S = 30.0
_CHARS_PER_TOKEN = 4

_sql = queries("armarium.capabilities.corpus.sql")


class Known(NamedTuple):
    """A document as the last scan left it."""

    rel_path: str
    doc_id: int
    size_bytes: int
    mtime_ns: int
    content_hash: str
    status: str
    container: str | None


class Passage(NamedTuple):
    """A chunk as the words index wants it."""

    chunk_id: int
    doc_id: int
    kind: IndexKind
    rel_path: str
    title: str | None
    context: str
    text: str


class Pending(NamedTuple):
    """A chunk that has no vector yet."""

    chunk_id: int
    kind: IndexKind
    context: str
    text: str
    text_hash: bytes


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


class Counts(NamedTuple):
    """How much there is."""

    documents: int
    representations: int
    chunks: int
    embedded: int
    errors: int


@dataclass(slots=True)
class Recorded:
    """What recording a document changed in the index."""

    doc_id: int
    added: list[tuple[int, PreparedChunk]] = field(default_factory=list[tuple[int, PreparedChunk]])
    buried: list[int] = field(default_factory=list[int])
    representations: int = 0


class Storage:
    """One open `meta.sqlite`: any number of readers, one writer at a time, each change whole or not at all."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.RLock()
        self._readers = threading.local()
        self._open_readers: list[sqlite3.Connection] = []
        self._new_chunks: list[tuple[Any, ...]] = []
        self._new_spans: list[tuple[Any, ...]] = []
        # The text of every document is in it, and in the log that SQLite makes with the same permissions.
        path.touch(mode=0o600)
        self._writer = _connected(path)
        try:
            self._writer.execute("PRAGMA journal_mode = WAL")
            # FULL: a passage that is in the words index must be here too, whatever happens to the machine.
            self._writer.execute("PRAGMA synchronous = FULL")
            self._prepare_schema()
            self._next_chunk_id = int(self.setting("next_chunk_id") or 1)
        except sqlite3.DatabaseError as error:
            self._writer.close()
            raise _corrupt() from error
        except BaseException:
            self._writer.close()
            raise

    def _prepare_schema(self) -> None:
        tables = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables:
            with self.transaction():
                for statement in _statements((files("armarium.capabilities.corpus.sql") / "schema.sql").read_text()):
                    self._writer.execute(statement)
                self.put_setting("index_format_version", FORMAT_VERSION)
                self.put_setting("protocol_version", PROTOCOL_VERSION)
        found = self.setting("index_format_version")
        if found != FORMAT_VERSION:
            raise IndexVersionMismatch(
                f"the index has format {found}, this version reads {FORMAT_VERSION}", hint="run: dir2mcp reindex"
            )

    def close(self) -> None:
        """Close every connection."""
        for reader in self._open_readers:
            reader.close()
        self._open_readers.clear()
        with self._writing, suppress(sqlite3.Error):
            self._writer.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Changes made inside become true together. Nested, they belong to the outer one."""
        with self._writing:
            if self._writer.in_transaction:
                yield
                return
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._write_new_chunks()
            except BaseException:
                self._new_chunks.clear()
                self._new_spans.clear()
                self._writer.rollback()
                self._next_chunk_id = int(self.setting("next_chunk_id") or 1)
                raise
            self._writer.commit()

    def _read(self, name: str, parameters: Any = ()) -> list[Any]:
        reader: sqlite3.Connection | None = getattr(self._readers, "connection", None)
        if reader is None:
            reader = self._readers.connection = _connected(self._path)
            reader.execute("PRAGMA query_only = ON")
            self._open_readers.append(reader)
        try:
            return reader.execute(_sql[name], parameters).fetchall()
        except sqlite3.DatabaseError as error:
            raise _corrupt() from error

    def _write(self, name: str, parameters: Any = ()) -> list[Any]:
        return self._writer.execute(_sql[name], parameters).fetchall()

    def _write_many(self, name: str, rows: Iterable[Any]) -> None:
        self._writer.executemany(_sql[name], rows)

    # Settings

    def setting(self, key: str) -> str | None:
        """What is noted under the key."""
        with self._writing:
            row = self._writer.execute(_sql["get_setting"], (key,)).fetchone()
        return row[0] if row else None

    def put_setting(self, key: str, value: str) -> None:
        """Note a value, in the transaction under way or in one of its own."""
        with self.transaction():
            self._write("put_setting", (key, value))

    def note(self, settings: Mapping[str, str]) -> None:
        """Put down values that are not down yet; nothing is written when all are."""
        new = {key: value for key, value in settings.items() if self.setting(key) != value}
        if new:
            with self.transaction():
                for key, value in new.items():
                    self._write("put_setting", (key, value))

    def take_over(self) -> None:
        """From here on this process writes; another may have done so until now."""
        with self._writing:
            self._next_chunk_id = int(self.setting("next_chunk_id") or 1)

    def version(self) -> int:
        """A number that changes whenever another process changed something."""
        with self._writing:
            return self._writer.execute("PRAGMA data_version").fetchone()[0]

    # Documents

    def known_documents(self) -> dict[str, Known]:
        """Every document there is, by path."""
        return {row[0]: Known(*row) for row in self._read("known_documents")}

    def known_document(self, rel_path: str) -> Known | None:
        """One document."""
        with self._writing:
            row = self._writer.execute(_sql["known_document"], (rel_path,)).fetchone()
        return Known(*row) if row else None

    def paths_below(self, directory: str) -> list[str]:
        """The documents in a directory and below it; an archive counts as the directory of its members."""
        with self._writing:
            rows = self._write("documents_below", {"prefix": f"{directory}/"}) if directory else []
            return [row[0] for row in rows] + [row[0] for row in self._write("members_of", (directory,))]

    def touch(self, known: Known, size_bytes: int, mtime_ns: int) -> None:
        """The file was written again with the content it had."""
        self._write("touch_document", (size_bytes, mtime_ns // 1_000_000_000, mtime_ns, known.doc_id))

    def record(self, prepared: Prepared, *, known: bool = True) -> Recorded:
        """Put a new or changed document in the place of what was known of it. Passages that stay keep their id."""
        (row,) = self._write(
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
        wanted = {each.rep_type: each for each in prepared.representations}
        before: dict[bytes, list[int]] = {}
        for rep_id, rep_type, rep_hash in self._live_representations(recorded.doc_id) if known else ():
            kept = wanted.get(rep_type)
            if kept is not None and kept.rep_hash == rep_hash:
                del wanted[rep_type]
                continue
            for chunk_id, text_hash in self._write("live_chunks_of", (rep_id,)):
                before.setdefault(text_hash, []).append(chunk_id)
            self._write("bury_representation", (rep_id,))
        for representation in wanted.values():
            self._record_representation(recorded, representation, before)
        recorded.buried = [chunk_id for chunk_ids in before.values() for chunk_id in chunk_ids]
        if recorded.buried:
            self._write_many("bury_chunk", ((chunk_id,) for chunk_id in recorded.buried))
        return recorded

    def _live_representations(self, doc_id: int) -> list[Any]:
        # What was recorded earlier in this transaction must be there to be found.
        self._write_new_chunks()
        return self._write("live_representations", (doc_id,))

    def _record_representation(
        self, recorded: Recorded, representation: Representation, before: dict[bytes, list[int]]
    ) -> None:
        meta = json.dumps(representation.meta, ensure_ascii=False)
        content = zlib.compress(representation.content.encode(), 1) if representation.content is not None else None
        (row,) = self._write(
            "put_representation",
            (recorded.doc_id, representation.rep_type, representation.rep_hash, int(time.time()), meta, content),
        )
        rep_id = row[0]
        recorded.representations += 1
        for ordinal, chunk in enumerate(representation.chunks):
            same = before.get(chunk.text_hash)
            if same:
                chunk_id = same.pop()
                self._write("move_chunk", (rep_id, ordinal, chunk_id))
            else:
                chunk_id = self._next_chunk_id
                self._next_chunk_id += 1
                tokens = len(chunk.text) // _CHARS_PER_TOKEN + 1
                self._new_chunks.append(
                    (chunk_id, rep_id, ordinal, chunk.text, chunk.context, chunk.text_hash, tokens, chunk.index_kind)
                )
                recorded.added.append((chunk_id, chunk))
            self._new_spans.append((chunk_id, chunk.span_kind, chunk.start, chunk.end, None))

    def _write_new_chunks(self) -> None:
        """Many rows in one go cost a fraction of what they cost one by one."""
        if self._new_spans:
            self._write_many("put_chunk", self._new_chunks)
            self._write_many("put_span", self._new_spans)
            self._write("put_setting", ("next_chunk_id", str(self._next_chunk_id)))
            self._new_chunks.clear()
            self._new_spans.clear()

    def bury(self, rel_path: str) -> Recorded | None:
        """A document is gone: from now on neither it nor its passages are found."""
        rows = self._write("bury_document", (rel_path,))
        if not rows:
            return None
        gone = Recorded(rows[0][0])
        for rep_id, _, _ in self._live_representations(gone.doc_id):
            gone.buried += [chunk_id for chunk_id, _ in self._write("live_chunks_of", (rep_id,))]
            self._write("bury_representation", (rep_id,))
        self._write_many("bury_chunk", ((chunk_id,) for chunk_id in gone.buried))
        return gone

    # What the indexes are made of

    def all_documents(self) -> list[tuple[int, str, str]]:
        """Id, path and type of every document."""
        return self._read("all_documents")

    def all_chunks(self) -> list[tuple[int, int, int]]:
        """Id, document, and whether it is code, of every passage, in the order of the ids."""
        return self._read("all_chunks")

    def passages_after(self, chunk_id: int, limit: int) -> list[Passage]:
        """The next passages by id."""
        return [Passage(*row) for row in self._read("passages_after", (chunk_id, limit))]

    def embedded_chunks(self, kind: IndexKind) -> list[int]:
        """Ids of the passages that have their vector."""
        return [row[0] for row in self._read("embedded_chunks", (kind,))]

    def vectors(self, model: str, kind: IndexKind) -> list[tuple[int, bytes]]:
        """Every passage's vector."""
        return self._read("vectors_of", {"model": model, "kind": kind})

    # Embedding

    def pending_chunks(self, after: int, limit: int) -> list[Pending]:
        """The next passages without a vector, by id."""
        return [Pending(*row) for row in self._read("pending_chunks", (after, limit))]

    def embedding(self, model: str, text_hash: bytes) -> bytes | None:
        """The vector of a text that was embedded before."""
        rows = self._read("embedding", (model, text_hash))
        return rows[0][0] if rows else None

    def put_embeddings(self, model: str, vectors: Iterable[tuple[bytes, bytes]], chunk_ids: Iterable[int]) -> None:
        """Keep vectors by the hash of their text, and mark the passages that have theirs now."""
        with self.transaction():
            self._write_many("put_embedding", ((model, text_hash, vector) for text_hash, vector in vectors))
            self._write_many("mark_embedded", ((chunk_id,) for chunk_id in chunk_ids))

    def mark_unembeddable(self, chunk_ids: Iterable[int], why: str) -> None:
        """The provider would not take these; they are found by their words alone."""
        with self.transaction():
            self._write_many("mark_unembeddable", ((why, chunk_id) for chunk_id in chunk_ids))

    def retry_unembeddable(self) -> None:
        """Let the passages that failed be tried again."""
        with self.transaction():
            self._write("retry_unembeddable")

    # Answers

    def chunks(self, chunk_ids: Sequence[int]) -> dict[int, StoredChunk]:
        """The passages that still exist, by id."""
        found: dict[int, StoredChunk] = {}
        for row in self._read("chunks_by_id", (json.dumps([int(each) for each in chunk_ids]),)):
            span = span_from_columns(*row[-3:])
            found[row[0]] = StoredChunk(*row[:-3], span=span)
        return found

    def representation_text(self, rel_path: str) -> tuple[str, dict[str, Any]] | None:
        """The text that was extracted from a file which is not text itself, and what is known about it."""
        rows = self._read("representation_text", (rel_path,))
        if not rows:
            return None
        content, meta = rows[0]
        return zlib.decompress(content).decode(), json.loads(meta)

    def document_state(self, rel_path: str) -> tuple[str, str, str | None] | None:
        """Type, status and error of a document."""
        rows = self._read("document_state", (rel_path,))
        return rows[0] if rows else None

    def list_documents(self, prefix: str, limit: int, offset: int) -> tuple[int, list[Any]]:
        """One page of the documents whose path begins with `prefix`, and how many there are."""
        (total,) = self._read("count_documents", {"prefix": prefix})[0]
        page = self._read("list_documents", {"prefix": prefix, "limit": limit, "offset": offset})
        return total, page

    def documents_with_prefix(self, prefix: str) -> list[Any]:
        """All documents whose path begins with `prefix`, in order."""
        return self._read("paths_below", {"prefix": prefix})

    def counts(self) -> Counts:
        """How much there is of everything."""
        return Counts(*self._read("counts")[0])

    def doc_counts(self) -> dict[str, int]:
        """How many documents there are of each type."""
        return dict(self._read("doc_counts"))

    # Housekeeping

    def dead_share(self) -> float:
        """Which part of all passages is deleted."""
        dead, total = self._read("dead_chunks")[0]
        return dead / total if total else 0.0

    def purge(self) -> None:
        """Forget what is deleted, and vectors that nothing needs."""
        with self.transaction():
            for name in (
                "purge_spans",
                "purge_chunks",
                "purge_representations",
                "purge_documents",
                "purge_embeddings",
                "drop_other_models",
            ):
                self._write(name)

    def forget_documents(self) -> None:
        """Begin again, except that vectors of the same model stay: the same text has the same vector."""
        with self.transaction():
            for table in ("spans", "chunks", "representations", "documents"):
                self._writer.execute(f"DELETE FROM {table}")  # noqa: S608 names of our own
            self._write("put_setting", ("words_up_to", "0"))


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = OFF")
    return connection


def _statements(script: str) -> list[str]:
    lines = [line.split("--")[0].rstrip() for line in script.splitlines()]
    return [statement for part in "\n".join(lines).split(";") if (statement := part.strip())]


def _corrupt() -> StoreCorrupt:
    return StoreCorrupt("meta.sqlite cannot be read", hint="run: dir2mcp reindex")
