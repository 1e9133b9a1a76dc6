"""Everything in one `meta.sqlite`, and what concerns all of it: how much there is, and forgetting what is deleted."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from armarium.capabilities.corpus.storage.database import Database
from armarium.capabilities.corpus.storage.documents import Documents
from armarium.capabilities.corpus.storage.embeddings import Embeddings
from armarium.capabilities.corpus.storage.notes import Notes
from armarium.capabilities.corpus.storage.passages import Passages

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


class Storage:
    """One open `meta.sqlite`. What is true of a corpus is in here; everything else is made from it."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._database = Database(path, read_only=read_only)
        self.notes = Notes(self._database)
        self.documents = Documents(self._database)
        self.passages = Passages(self._database)
        self.embeddings = Embeddings(self._database)

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
            self.notes.put("words_up_to", "0")
