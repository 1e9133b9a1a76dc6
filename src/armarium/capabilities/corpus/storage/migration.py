"""Migrates a database of an older format."""

from __future__ import annotations

from typing import Any, Protocol

from armarium.capabilities.corpus.storage.checks import (
    CHUNKS_TALLY,
    DOCUMENTS_TALLY,
    chunk_mark,
    document_mark,
    span_check,
    tally,
)

_ROWS_AT_ONCE = 5000


class _Database(Protocol):
    def write(self, name: str, parameters: Any = ()) -> list[Any]: ...

    def write_many(self, name: str, rows: Any) -> int: ...

    def put_setting(self, key: str, value: str) -> None: ...


def add_checks(database: _Database) -> None:
    """Migrate from format 1, which had no checksums. Existing rows are assumed to be intact."""
    after = 0
    while rows := database.write("spans_to_check", (after, _ROWS_AT_ONCE)):
        after = rows[-1][0]
        database.write_many("put_span_check", [(span_check(*row), row[0]) for row in rows])
    documents = sum(document_mark(*row) for row in database.write("all_documents"))
    chunks = sum(chunk_mark(*row) for row in database.write("all_chunks"))
    for key, value in database.write("all_settings"):
        database.put_setting(key, value)
    database.put_setting(DOCUMENTS_TALLY, tally(documents))
    database.put_setting(CHUNKS_TALLY, tally(chunks))
