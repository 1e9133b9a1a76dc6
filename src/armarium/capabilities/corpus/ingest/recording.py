"""Makes what was prepared true, in transactions of a fair size: storage first, then words, then who listens."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from armarium.capabilities.corpus.errors import ExtractFailed, FileTooLarge, Forbidden
from armarium.capabilities.corpus.files.exclusion import SecretMatch
from armarium.capabilities.corpus.index import CorpusIndex
from armarium.capabilities.corpus.ingest.prepared import Finished, Outcome, Prepared, Refused, Unchanged, Vanished
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.ingest.state_budget import StateBudget
from armarium.capabilities.corpus.storage.changes import Changes, Recorded
from armarium.capabilities.corpus.storage.documents import Known
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
_TOLD_OF = frozenset({Forbidden.code, FileTooLarge.code, ExtractFailed.code})
"""What somebody who misses a document wants to hear of, even though it is only skipped."""


@dataclass(slots=True)
class Recording:
    """Takes outcomes as they come; all of it can be found once it is closed, most of it before."""

    storage: Storage
    index: CorpusIndex
    progress: Progress
    on_recorded: Callable[[], None]
    root_path: str
    known: Mapping[str, Known] | None = None
    """The documents there were when this began, where somebody looked."""
    budget: StateBudget | None = None
    _waiting: list[Outcome] = field(default_factory=list[Outcome])
    _chars: int = 0
    _since: float = field(default_factory=time.monotonic)
    _committed_at: float = field(default_factory=time.monotonic)
    _commit_every_s: float = _FIRST_COMMIT_S
    _is_uncommitted: bool = False
    _members: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    _holds_forbidden: bool = False

    def take(self, outcome: Outcome) -> None:
        """Record it, now or with the ones that follow."""
        if isinstance(outcome, Prepared) and outcome.representations and self.budget and self.budget.is_exhausted:
            outcome = _left_out_of(self.budget, outcome)
        self._waiting.append(outcome)
        if isinstance(outcome, Prepared):
            self._chars += sum(len(piece.text) for rep in outcome.representations for piece in rep.chunks)
        if (
            len(self._waiting) >= _DOCUMENTS_PER_TRANSACTION
            or self._chars >= _CHARS_PER_TRANSACTION
            or time.monotonic() - self._since >= _TRANSACTION_S
        ):
            self._flush()

    def catch_up(self) -> None:
        """Record what waits, because nothing follows for now; what is due to be found is found."""
        self._flush()
        self._commit_if_due()

    def refuse(self, rel_path: str, budget: StateBudget) -> None:
        """A file is not even read, because nothing more may be added."""
        doc_type = classify(rel_path, b"").doc_type
        self.take(_left_out_of(budget, Prepared(rel_path, doc_type, 0, 0, "", "error")))

    def bury(self, rel_path: str, *, forbidden: bool = False) -> None:
        """A document is gone; nothing of a `forbidden` one stays, not even as what is deleted."""
        self._flush()
        had_secrets = self._had_secrets(rel_path)
        with self.storage.documents.changing() as changes:
            gone = changes.bury(rel_path)
            if gone is not None and forbidden:
                self._note_forbidden()
        self._drop(gone)
        if gone is not None and had_secrets and not forbidden:
            self._tell_secrets(rel_path)

    def _had_secrets(self, rel_path: str) -> bool:
        """Whether a document is known for its credentials, which was told when they were found."""
        known = self.storage.documents.known_at(rel_path) if self.known is None else self.known.get(rel_path)
        return known is not None and bool(known.forbidden) and known.container is None

    def _tell_secrets(self, rel_path: str, secrets: Collection[SecretMatch] = ()) -> None:
        findings = tuple(ScannerFinding(secret.rule, secret.line, secret.digest) for secret in secrets)
        self.progress.tell(FileScanned(_SECRET_SCANNER, f"{self.root_path}/{unescape_name(rel_path)}", findings))

    def _drop(self, gone: Recorded | None) -> None:
        if gone is not None:
            self.index.drop(gone)
            self.progress.count(deleted=1, chunks_total=-len(gone.buried), embedded_ok=-gone.buried_embedded)

    def _note_forbidden(self) -> None:
        self._holds_forbidden = True
        self.storage.note_forbidden()

    def wipe_forbidden(self) -> None:
        """Leave nothing on disk of what policy excludes."""
        if self._holds_forbidden:
            self._holds_forbidden = False
            self.index.wipe()

    def close(self) -> None:
        """Record the rest, and let all of it be found."""
        self._flush()
        self.index.commit_words()
        self.wipe_forbidden()
        self.on_recorded()

    def _flush(self) -> None:
        outcomes, self._waiting, self._chars = self._waiting, [], 0
        self._since = time.monotonic()
        if not outcomes:
            return
        looked_clean = [outcome.rel_path for outcome in outcomes if _is_without_secrets(outcome)]
        cleared = [rel_path for rel_path in looked_clean if self._had_secrets(rel_path)]
        with self.storage.documents.changing() as changes:
            done = [(outcome, self._record(changes, outcome)) for outcome in outcomes]
        for rel_path in cleared:
            self._tell_secrets(rel_path)
        for outcome, recorded in done:
            if isinstance(outcome, Prepared) and recorded is not None:
                self.index.put(outcome, recorded)
            if isinstance(outcome, Prepared) and outcome.secrets and not outcome.container:
                self._tell_secrets(outcome.rel_path, outcome.secrets)
        self._is_uncommitted = True
        self._commit_if_due()
        for gone in self._left_out(outcomes):
            self.bury(gone)

    def _commit_if_due(self) -> None:
        if self._is_uncommitted and time.monotonic() - self._committed_at >= self._commit_every_s:
            self.index.commit_words()
            self._is_uncommitted = False
            self._committed_at = time.monotonic()
            self._commit_every_s = min(self._commit_every_s * 2, _SLOWEST_COMMIT_S)
            self.on_recorded()

    def _record(self, changes: Changes, outcome: Outcome) -> Recorded | None:
        match outcome:
            case Prepared():
                recorded = changes.record(outcome, known=self.known is None or outcome.rel_path in self.known)
                if recorded.buried and (outcome.error or "").startswith(Forbidden.code):
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
                self._drop(changes.bury(outcome.rel_path))
            case Refused(shown_path, code, reason):
                self.progress.file_failed(shown_path, code, reason)
            case Finished():
                pass
        return None

    def _count(self, prepared: Prepared, recorded: Recorded) -> None:
        # Prepared again, and every text of it is as it was.
        same = bool(prepared.representations) and not recorded.representations
        self.progress.count(
            indexed=prepared.status == "ok" and not same,
            skipped=prepared.status == "skipped" or same,
            errors=prepared.status == "error",
            representations=recorded.representations,
            chunks_total=len(recorded.added) - len(recorded.buried),
            embedded_ok=-recorded.buried_embedded,
        )
        if prepared.error is not None:
            code, _, message = prepared.error.partition(": ")
            if (prepared.status == "error" or code in _TOLD_OF) and not self._was_told(prepared):
                self.progress.file_failed(prepared.rel_path, code, message)

    def _was_told(self, prepared: Prepared) -> bool:
        """Whether this is a file with credentials that was only looked at once more, and is as it was."""
        known = self.known.get(prepared.rel_path) if self.known else None
        return (
            known is not None
            and bool(known.forbidden)
            and (known.size_bytes, known.mtime_ns) == (prepared.size_bytes, prepared.mtime_ns)
        )

    def _left_out(self, outcomes: Collection[Outcome]) -> list[str]:
        """Members that an archive had before and has no more."""
        gone: list[str] = []
        for outcome in outcomes:
            if isinstance(outcome, Prepared) and outcome.doc_type == "archive" and not outcome.container:
                still = self._members.pop(outcome.rel_path, set())
                gone += [path for path in self.storage.documents.paths_below(outcome.rel_path) if path not in still]
        return gone


def _left_out_of(budget: StateBudget, prepared: Prepared) -> Prepared:
    # Without size and time: the next scan finds it changed, and tries again.
    error = budget.error
    return replace(
        prepared,
        size_bytes=0,
        mtime_ns=0,
        content_hash="",
        status="error",
        error=f"{error.code}: {error.message}",
        representations=(),
    )


def _is_without_secrets(outcome: Outcome) -> TypeGuard[Prepared | Vanished]:
    """Whether the scanner looked and found nothing, or there is no file to look at any more."""
    return isinstance(outcome, Vanished) or (isinstance(outcome, Prepared) and outcome.status == "ok")
