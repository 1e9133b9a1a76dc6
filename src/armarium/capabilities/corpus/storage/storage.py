"""One `meta.sqlite`: its parts, counts, damage reports, and the removal of deleted data."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from armarium.capabilities.corpus.errors import StoreCorrupt
from armarium.capabilities.corpus.storage.checks import CHUNKS_TALLY, DOCUMENTS_TALLY
from armarium.capabilities.corpus.storage.chunks import Chunks
from armarium.capabilities.corpus.storage.database import Database, move_aside
from armarium.capabilities.corpus.storage.documents import Documents
from armarium.capabilities.corpus.storage.embeddings import Embeddings
from armarium.foundation.files.state_files import make_way

DAMAGED_SUFFIX = ".damaged"

_PURGES = (
    "purge_spans",
    "purge_chunks",
    "purge_representations",
    "purge_documents",
    "purge_embeddings",
    "drop_other_models",
)
_HOLDS_FORBIDDEN = "holds_forbidden"
_DIGEST_KEY = "credential_digest_key"
_DIGEST_KEY_BYTES = 32
_FORGETS = ("forget_spans", "forget_chunks", "forget_representations", "forget_documents")


class Counts(NamedTuple):
    """The number of rows of each kind."""

    documents: int
    representations: int
    chunks: int
    embedded: int
    errors: int


def remove_damaged(path: Path) -> None:
    """Remove the copy of a damaged `meta.sqlite`: it contains text of files, some of which policy may exclude."""
    for suffix in ("", "-wal", "-shm"):
        aside = path.with_name(path.name + DAMAGED_SUFFIX + suffix)
        make_way(aside)
        aside.unlink(missing_ok=True)


def replace_damaged(path: Path) -> Storage:
    """Replace a storage that cannot be opened by an empty one. Intact vectors are copied."""
    aside = path.with_name(path.name + DAMAGED_SUFFIX)
    move_aside(path, aside)
    storage = Storage(path)
    storage.embeddings.salvage_from(aside)
    remove_damaged(path)
    return storage


class Notes:
    """What a corpus records about itself: its models, its id, how far each index is."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, key: str) -> str | None:
        return self._database.setting(key)

    def put(self, key: str, value: str) -> None:
        """Set a value, in the current transaction or in a new one."""
        with self._database.transaction():
            self._database.put_setting(key, value)

    def digest_key(self) -> bytes:
        """The random key for digests that identify credentials without storing them. Created on first use."""
        kept = self.get(_DIGEST_KEY)
        if kept is None:
            kept = secrets.token_hex(_DIGEST_KEY_BYTES)
            self.put(_DIGEST_KEY, kept)
        return bytes.fromhex(kept)

    def put_new(self, notes: Mapping[str, str]) -> None:
        """Set the values that differ from the stored ones. Writes nothing if none does."""
        new = {key: value for key, value in notes.items() if not self._is_noted(key, value)}
        if new:
            with self._database.transaction():
                for key, value in new.items():
                    self.put(key, value)

    def _is_noted(self, key: str, value: str) -> bool:
        try:
            return self.get(key) == value
        except StoreCorrupt:
            # It is about to be overwritten.
            return False


class Storage(Database):
    """One open `meta.sqlite`, the source of truth of a corpus. All indexes are derived from it."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__(path, read_only=read_only)
        self._origin: Mapping[str, str] = {}
        self.notes = Notes(self)
        self.documents = Documents(self)
        self.chunks = Chunks(self)
        self.embeddings = Embeddings(self)

    def note_origin(self, notes: Mapping[str, str]) -> None:
        """Record how this corpus was built: models and id. A replacement file gets the same record."""
        self._origin = notes
        self.notes.put_new(notes)

    def has_foreign_schema(self) -> bool:
        """Whether the file has views or triggers, which this program does not make."""
        return bool(self.read("foreign_schema"))

    def report_damage(self, rows: Callable[[Collection[str]], None], structure: Callable[[StoreCorrupt], None]) -> None:
        """Report damage from now on: `rows` receives the documents with damaged rows ("" for an unknown one),
        `structure` an error of the whole file."""
        self.on_damaged_rows = rows
        self.on_damage = structure

    def contents(self) -> tuple[list[tuple[int, str, str]], list[tuple[int, int, int]], tuple[str, str] | None]:
        """A consistent snapshot of all documents and chunks, and the tallies they must match, if rows are checked."""
        keys = (DOCUMENTS_TALLY, CHUNKS_TALLY)
        documents, chunks, stored = self.read_together(
            ("all_documents", ()), ("all_chunks", ()), ("get_checked_setting", keys)
        )
        tallies: dict[str, str] = dict(stored)
        return documents, chunks, (tallies.get(keys[0], ""), tallies.get(keys[1], "")) if self.checked else None

    def start_over(self, first_chunk_id: int) -> None:
        """Replace this damaged file by an empty one. Intact vectors are copied. `first_chunk_id` is greater than all
        ids in use, so that a search of an old index cannot return a different chunk."""
        digest_key = None
        with suppress(StoreCorrupt, sqlite3.Error):
            # It identifies findings in the registry.
            digest_key = self.notes.get(_DIGEST_KEY)
        aside = self._path.with_name(self._path.name + DAMAGED_SUFFIX)
        self._begin_anew(aside)
        if digest_key is not None:
            self._origin = {**self._origin, _DIGEST_KEY: digest_key}
        self.notes.put_new({**self._origin, "next_chunk_id": str(first_chunk_id)})
        self.embeddings.salvage_from(aside)
        remove_damaged(self._path)

    def counts(self) -> Counts:
        return Counts(*self.read("counts")[0])

    def dead_share(self) -> float:
        dead, total = self.read("dead_chunks")[0]
        return dead / total if total else 0.0

    def purge(self) -> None:
        """Remove deleted rows, and vectors that no chunk uses."""
        with self.transaction():
            for name in _PURGES:
                self.execute(name)

    @property
    def holds_forbidden(self) -> bool:
        """Whether deleted data that policy excludes may still be on disk."""
        return self.notes.get(_HOLDS_FORBIDDEN) == "yes"

    def note_forbidden(self) -> None:
        """Record that this transaction deletes data that policy excludes. This process or the next one wipes it."""
        self.notes.put(_HOLDS_FORBIDDEN, "yes")

    def note_wiped(self) -> None:
        """Record that no such data is left, here or in the indexes."""
        self.notes.put(_HOLDS_FORBIDDEN, "no")

    def wipe(self) -> bool:
        """Remove deleted rows completely from disk. Returns False if another reader still uses an old snapshot."""
        self.purge()
        return self.leave_no_trace()

    def forget_documents(self) -> None:
        """Remove all documents. Vectors remain, because the same text has the same vector."""
        with self.transaction():
            for name in _FORGETS:
                self.execute(name)
            for key in ("words_up_to", DOCUMENTS_TALLY, CHUNKS_TALLY):
                self.notes.put(key, "0")
