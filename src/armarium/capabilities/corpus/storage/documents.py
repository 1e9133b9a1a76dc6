"""Reads documents: for scans, listings and opening."""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from armarium.capabilities.corpus.storage.changes import Changes
from armarium.capabilities.corpus.storage.checks import text_check
from armarium.capabilities.corpus.storage.database import Database
from armarium.capabilities.corpus.storage.errors import damaged_error


class KnownDocument(NamedTuple):
    """A document as the last scan recorded it."""

    rel_path: str
    doc_id: int
    size_bytes: int
    mtime_ns: int
    content_hash: str
    status: str
    container: str | None
    forbidden: int
    """Whether it is excluded because of credentials in it; SQLite has no booleans."""


class Trouble(NamedTuple):
    """A document that failed or was skipped."""

    rel_path: str
    doc_type: str
    size_bytes: int
    error: str | None
    """The code and the message."""


class Documents:
    """All live documents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def changing(self) -> Generator[Changes]:
        with self._database.transaction():
            changes = Changes(self._database)
            yield changes
            changes.finish()

    def known(self) -> dict[str, KnownDocument]:
        return {row[0]: KnownDocument(*row) for row in self._database.read("known_documents")}

    def known_at(self, rel_path: str) -> KnownDocument | None:
        rows = self._database.execute("known_document", (rel_path,))
        return KnownDocument(*rows[0]) if rows else None

    def paths_below(self, directory: str) -> list[str]:
        """The documents below a directory, or the members of an archive."""
        below = self._database.execute("documents_below", {"prefix": f"{directory}/"}) if directory else []
        members = self._database.execute("members_of", (directory,))
        return [row[0] for row in (*below, *members)]

    def page(self, prefix: str, limit: int, offset: int) -> tuple[int, list[Any]]:
        """One page of the documents whose path begins with `prefix`, and their total number."""
        (total,) = self._database.read("count_documents", {"prefix": prefix})[0]
        rows = self._database.read("list_documents", {"prefix": prefix, "limit": limit, "offset": offset})
        return total, rows

    def modified_between(self, first_ns: int, last_ns: int) -> set[int]:
        """The ids of documents whose modification time is within these times."""
        return {row[0] for row in self._database.read("documents_modified", (first_ns, last_ns))}

    def modification_times(self, rel_paths: Sequence[str]) -> dict[str, int]:
        """The modification times of some documents, in nanoseconds, by path."""
        return dict(self._database.read("modification_times", (json.dumps(rel_paths),)))

    def extent(self) -> tuple[int, int | None]:
        """The number of indexed documents, and when the last one was recorded."""
        ((count, recorded_unix),) = self._database.read("extent")
        return count, recorded_unix

    def in_trouble(self, state: str, after: str, limit: int) -> list[Trouble]:
        """The next documents with this status, by path."""
        rows = self._database.read("documents_in_trouble", {"state": state, "after": after, "limit": limit})
        return [Trouble(*row) for row in rows]

    def count_in_trouble(self, state: str, limit: int) -> int:
        """The number of documents with this status, counted up to a limit."""
        return self._database.read("count_in_trouble", {"state": state, "limit": limit})[0][0]

    def state(self, rel_path: str) -> tuple[str, str, str | None] | None:
        """Type, status and error of a document."""
        rows = self._database.read("document_state", (rel_path,))
        return rows[0] if rows else None

    def seen(self, rel_path: str) -> tuple[int, int] | None:
        """The size and the modification time, in nanoseconds, of a file when it was indexed."""
        rows = self._database.read("known_document", (rel_path,))
        return (known.size_bytes, known.mtime_ns) if rows and (known := KnownDocument(*rows[0])) else None

    def text(self, rel_path: str) -> tuple[str, dict[str, Any]] | None:
        """The extracted text of a file that is not plain text, and its metadata."""
        rows = self._database.read("representation_text", (rel_path,))
        if not rows:
            return None
        content, meta_json = rows[0]
        try:
            meta: dict[str, Any] = json.loads(meta_json)
            check = meta.pop("check", None)
            if check is None or check == text_check(content, json.dumps(meta, ensure_ascii=False)):
                return zlib.decompress(content).decode(), meta
        except (ValueError, zlib.error):
            pass
        self._database.on_damaged_rows([rel_path])
        raise damaged_error(f"the text of {rel_path}")
