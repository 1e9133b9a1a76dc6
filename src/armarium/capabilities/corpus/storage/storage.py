"""Everything in one `meta.sqlite`, and what concerns all of it: how much there is, and forgetting what is deleted."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from armarium.capabilities.corpus.errors import StoreCorrupt
from armarium.capabilities.corpus.storage.checks import DOCUMENTS_TALLY, PASSAGES_TALLY
from armarium.capabilities.corpus.storage.database import Database
from armarium.capabilities.corpus.storage.documents import Documents
from armarium.capabilities.corpus.storage.embeddings import Embeddings
from armarium.capabilities.corpus.storage.notes import Notes
from armarium.capabilities.corpus.storage.passages import Passages
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
_FORGETS = ("forget_spans", "forget_chunks", "forget_representations", "forget_documents")


class Counts(NamedTuple):
    """How much there is."""

    documents: int
    representations: int
    chunks: int
    embedded: int
    errors: int


class Tallies(NamedTuple):
    """The sums of the marks of all rows, as they were written with them."""

    documents: str
    passages: str


def remove_damaged(path: Path) -> None:
    """Remove what is left of a damaged `meta.sqlite`: it holds the text of files, some of which policy may exclude."""
    for suffix in ("", "-wal", "-shm"):
        aside = path.with_name(path.name + DAMAGED_SUFFIX + suffix)
        make_way(aside)
        aside.unlink(missing_ok=True)


def opened_anew(path: Path) -> Storage:
    """An empty storage in the place of one that cannot be opened. Sound vectors are taken along."""
    aside = path.with_name(path.name + DAMAGED_SUFFIX)
    for suffix in ("", "-wal"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{aside}{suffix}")
    Path(f"{path}-shm").unlink(missing_ok=True)
    storage = Storage(path)
    storage.embeddings.salvaged_from(aside)
    remove_damaged(path)
    return storage


class Storage:
    """One open `meta.sqlite`. What is true of a corpus is in here; everything else is made from it."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._database = Database(path, read_only=read_only)
        self._origin: Mapping[str, str] = {}
        self._damage: Callable[[Collection[str]], None] = lambda rel_paths: None
        self.notes = Notes(self._database)
        self.documents = Documents(self._database, lambda rel_paths: self._damage(rel_paths))
        self.passages = Passages(self._database, lambda rel_paths: self._damage(rel_paths))
        self.embeddings = Embeddings(self._database)

    def note_origin(self, notes: Mapping[str, str]) -> None:
        """Put down how this corpus came about: which models, under which name. It is put down again in a new file."""
        self._origin = notes
        self.notes.put_new(notes)

    def report_damage(self, rows: Callable[[Collection[str]], None], structure: Callable[[StoreCorrupt], None]) -> None:
        """From now on `rows` hears of documents with a damaged row, `structure` that the file itself is damaged.

        An empty path stands for a document that cannot be told.
        """
        self._damage = rows
        self._database.on_damage = structure

    @property
    def checked(self) -> bool:
        """Whether rows have checksums: those of an older format that may not be written have none."""
        return self._database.checked

    @property
    def is_whole(self) -> bool:
        """Whether SQLite finds the file in order. Reads all of it."""
        return self._database.is_whole()

    def contents(self) -> tuple[list[tuple[int, str, str]], list[tuple[int, int, int]], Tallies | None]:
        """Every document and every passage of one moment, and the tallies that they must come to."""
        with self._database.reading_together():
            documents, passages = self.documents.all(), self.passages.all()
            if not self._database.checked:
                return documents, passages, None
            tallies = [self._database.read("get_setting", (key,)) for key in (DOCUMENTS_TALLY, PASSAGES_TALLY)]
        return documents, passages, Tallies(*(rows[0][0] if rows else "" for rows in tallies))

    def start_over(self, first_chunk_id: int) -> None:
        """Begin with an empty file, because this one is damaged. Sound vectors are taken along.

        `first_chunk_id` is beyond those in use: whoever still searches an old index must not find another passage.
        """
        digest_key = self._sound_digest_key()
        aside = self._path.with_name(self._path.name + DAMAGED_SUFFIX)
        self._database.start_over(aside)
        if digest_key is not None:
            self._origin = {**self._origin, **digest_key}
        self.notes.put_new({**self._origin, "next_chunk_id": str(first_chunk_id)})
        self.embeddings.salvaged_from(aside)
        remove_damaged(self._path)

    def _sound_digest_key(self) -> dict[str, str] | None:
        """Findings in the registry are known by it."""
        try:
            return self.notes.digest_key_as_noted()
        except (StoreCorrupt, sqlite3.Error):
            return None

    def close(self) -> None:
        """Close every connection."""
        self._database.close()

    def version(self) -> int:
        """A number that changes whenever another process changed something."""
        return self._database.version()

    def counts(self) -> Counts:
        """How much there is of everything."""
        return Counts(*self._database.read("counts")[0])

    def dead_share(self) -> float:
        """Which part of all passages is deleted."""
        dead, total = self._database.read("dead_chunks")[0]
        return dead / total if total else 0.0

    def purge(self) -> None:
        """Forget what is deleted, and vectors that nothing needs."""
        with self._database.transaction():
            for name in _PURGES:
                self._database.write(name)

    @property
    def holds_forbidden(self) -> bool:
        """Whether something policy excludes is deleted, and may still be on disk."""
        return self.notes.get(_HOLDS_FORBIDDEN) == "yes"

    def note_forbidden(self) -> None:
        """Policy excludes what the transaction under way deletes: if this process does not wipe it, the next does."""
        self.notes.put(_HOLDS_FORBIDDEN, "yes")

    def note_wiped(self) -> None:
        """Nothing of it is left, here or in what is made from here."""
        self.notes.put(_HOLDS_FORBIDDEN, "no")

    def wipe(self) -> bool:
        """Forget what is deleted, and leave none of it on disk; False when somebody still reads from before."""
        self.purge()
        return self._database.leave_no_trace()

    def forget_documents(self) -> None:
        """Begin again, except that vectors of the same model stay: the same text has the same vector."""
        with self._database.transaction():
            for name in _FORGETS:
                self._database.write(name)
            for key in ("words_up_to", DOCUMENTS_TALLY, PASSAGES_TALLY):
                self.notes.put(key, "0")
