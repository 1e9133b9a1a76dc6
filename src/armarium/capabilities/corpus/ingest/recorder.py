"""Records prepared files in batches: first in the storage, then in the lexical index, then as events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from armarium.capabilities.corpus.errors import ExtractFailed, FileTooLarge, Forbidden
from armarium.capabilities.corpus.events import DocumentChanged, FileFailed
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.ingest.budgets import StateBudget
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.storage.changes import Changes, Recorded
from armarium.capabilities.corpus.storage.documents import KnownDocument
from armarium.capabilities.corpus.storage.prepared import Finished, Outcome, Prepared, Refused, Unchanged, Vanished
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.events import FileScanned, ScannerFinding
from armarium.foundation.files.names import unescape_name
from armarium.retrieval.document_types import classify

_DOCUMENTS_PER_TRANSACTION = 400
_CHARS_PER_TRANSACTION = 4_000_000
_TRANSACTION_S = 0.3
_FIRST_COMMIT_S = 0.2
_SLOWEST_COMMIT_S = 8.0
_SECRET_SCANNER = "armarium-secrets"  # noqa: S105 the name of a scanner
_REPORTED_CODES = frozenset({Forbidden.code, FileTooLarge.code, ExtractFailed.code})
"""Reported even though the document is only skipped, because users may miss it."""


@dataclass(slots=True)
class Recorder:
    """Records outcomes as they arrive. Most are searchable soon, all of them once it is closed."""

    storage: Storage
    index: SearchIndex
    progress: Progress
    on_recorded: Callable[[], None]
    root_path: str
    budget: StateBudget
    known: Mapping[str, KnownDocument] | None
    """The documents known at the start of a scan, or None outside of scans."""
    _waiting: list[Outcome] = field(default_factory=list[Outcome])
    _chars: int = 0
    _since: float = field(default_factory=time.monotonic)
    _committed_at: float = field(default_factory=time.monotonic)
    _commit_every_s: float = _FIRST_COMMIT_S
    _is_uncommitted: bool = False
    _members: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _holds_forbidden: bool = False

    def take(self, outcome: Outcome) -> None:
        """Record an outcome, now or together with the following ones."""
        if isinstance(outcome, Prepared) and outcome.representations and self.budget.is_exhausted:
            outcome = self._over_budget(outcome)
        self._waiting.append(outcome)
        if isinstance(outcome, Prepared):
            self._chars += sum(len(piece.text) for rep in outcome.representations for piece in rep.chunks)
        is_full = len(self._waiting) >= _DOCUMENTS_PER_TRANSACTION or self._chars >= _CHARS_PER_TRANSACTION
        if is_full or time.monotonic() - self._since >= _TRANSACTION_S:
            self._flush()

    def catch_up(self) -> None:
        """Record the buffered outcomes, because no more arrive for now, and commit if a commit is due."""
        self._flush()
        self._commit_if_due()

    def refuse(self, rel_path: str) -> None:
        """Record that a file was not read because the budget is exhausted."""
        doc_type = classify(rel_path, b"").doc_type
        self.take(self._over_budget(Prepared(rel_path, doc_type, 0, 0, "", "error")))

    def _over_budget(self, prepared: Prepared) -> Prepared:
        # Without size and time, so that the next scan finds it changed and tries again.
        error = f"{self.budget.error.code}: {self.budget.error.message}"
        return replace(
            prepared, size_bytes=0, mtime_ns=0, content_hash="", status="error", error=error, representations=()
        )

    def delete(self, rel_path: str, *, forbidden: bool = False) -> None:
        """Delete a document. Of a `forbidden` one, deleted rows are wiped too."""
        self._flush()
        had_secrets = self._had_secrets(rel_path)
        with self.storage.documents.changing() as changes:
            gone = changes.delete(rel_path)
            if gone is not None and forbidden:
                self._note_forbidden()
        self._drop(gone)
        if gone is not None:
            self._report_change(DocumentChanged(rel_path, "removed"))
        if gone is not None and had_secrets and not forbidden:
            self._report_secrets(rel_path)

    def _had_secrets(self, rel_path: str) -> bool:
        """Whether credentials were found in the document before, and reported."""
        known = self.storage.documents.known_at(rel_path) if self.known is None else self.known.get(rel_path)
        return known is not None and bool(known.forbidden) and known.container is None

    def _report_secrets(self, rel_path: str, secrets: Iterable[ScannerFinding] = ()) -> None:
        host_path = f"{self.root_path}/{unescape_name(rel_path)}"
        self.progress.publish(FileScanned(_SECRET_SCANNER, host_path, tuple(secrets)))

    def _report_change(self, event: DocumentChanged) -> None:
        if self.known is None:
            self.progress.publish(event)

    def _drop(self, gone: Recorded | None) -> None:
        if gone is not None:
            self.index.drop(gone)
            self.progress.count(deleted=1, chunks_total=-len(gone.deleted), embedded_ok=-gone.deleted_embedded)

    def _note_forbidden(self) -> None:
        self._holds_forbidden = True
        self.storage.note_forbidden()

    def wipe_forbidden(self) -> None:
        """Remove from disk what policy excludes."""
        if self._holds_forbidden:
            self._holds_forbidden = False
            self.index.wipe()

    def close(self) -> None:
        """Record the rest and make all of it searchable."""
        self._flush()
        self.index.lexical.commit()
        self.wipe_forbidden()
        self.on_recorded()

    def _flush(self) -> None:
        outcomes, self._waiting, self._chars = self._waiting, [], 0
        self._since = time.monotonic()
        if not outcomes:
            return
        cleared = [
            outcome.rel_path
            for outcome in outcomes
            if isinstance(outcome, Vanished) or (isinstance(outcome, Prepared) and outcome.status == "ok")
            if self._had_secrets(outcome.rel_path)
        ]
        with self.storage.documents.changing() as changes:
            done = [(outcome, self._record(changes, outcome)) for outcome in outcomes]
        for rel_path in cleared:
            self._report_secrets(rel_path)
        for outcome, recorded in done:
            if isinstance(outcome, Prepared) and recorded is not None:
                self.index.put(outcome, recorded)
                self._report_change(DocumentChanged(outcome.rel_path, "indexed"))
                if outcome.secrets and not outcome.container:
                    self._report_secrets(outcome.rel_path, outcome.secrets)
        self._is_uncommitted = True
        self._commit_if_due()
        for archive in outcomes:
            if isinstance(archive, Prepared) and archive.doc_type == "archive" and not archive.container:
                still = self._members.pop(archive.rel_path, set())
                for former in sorted(set(self.storage.documents.paths_below(archive.rel_path)) - still):
                    self.delete(former)

    def _commit_if_due(self) -> None:
        if self._is_uncommitted and time.monotonic() - self._committed_at >= self._commit_every_s:
            self.index.lexical.commit()
            self._is_uncommitted = False
            self._committed_at = time.monotonic()
            self._commit_every_s = min(self._commit_every_s * 2, _SLOWEST_COMMIT_S)
            self.on_recorded()

    def _record(self, changes: Changes, outcome: Outcome) -> Recorded | None:
        match outcome:
            case Prepared():
                recorded = changes.record(outcome, known=self.known is None or outcome.rel_path in self.known)
                if recorded.deleted and (outcome.error or "").startswith(Forbidden.code):
                    self._note_forbidden()
                self._count(outcome, recorded)
                if outcome.container:
                    self._members.setdefault(outcome.container, set()).add(outcome.rel_path)
                return recorded
            case Unchanged():
                known = self.storage.documents.known_at(outcome.rel_path)
                if known is not None:
                    changes.touch(known.doc_id, outcome.size_bytes, outcome.mtime_ns)
                self.progress.count(skipped=1)
            case Vanished():
                self._drop(changes.delete(outcome.rel_path))
            case Refused(shown_path, code, reason):
                self.progress.publish(FileFailed(shown_path, code, reason))
            case Finished():
                pass
        return None

    def _count(self, prepared: Prepared, recorded: Recorded) -> None:
        # Prepared again, with the same text as before.
        same = bool(prepared.representations) and not recorded.representations
        self.progress.count(
            indexed=prepared.status == "ok" and not same,
            skipped=prepared.status == "skipped" or same,
            errors=prepared.status == "error",
            representations=recorded.representations,
            chunks_total=len(recorded.added) - len(recorded.deleted),
            embedded_ok=-recorded.deleted_embedded,
        )
        if prepared.error is not None:
            code, _, message = prepared.error.partition(": ")
            if (prepared.status == "error" or code in _REPORTED_CODES) and not self._was_reported(prepared):
                self.progress.publish(FileFailed(prepared.rel_path, code, message))

    def _was_reported(self, prepared: Prepared) -> bool:
        """Whether this is a file with credentials that was only read again and has not changed."""
        known = self.known.get(prepared.rel_path) if self.known else None
        return (
            known is not None
            and bool(known.forbidden)
            and (known.size_bytes, known.mtime_ns) == (prepared.size_bytes, prepared.mtime_ns)
        )
