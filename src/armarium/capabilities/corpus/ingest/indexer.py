"""The indexing thread: runs scans and refreshes, records new and changed files, deletes the others."""

from __future__ import annotations

import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from armarium.capabilities.corpus.errors import RootInaccessible, StoreCorrupt
from armarium.capabilities.corpus.events import FileFailed, IndexingFailed, Mode
from armarium.capabilities.corpus.files.discover import MEMBER_MARK, DiscoveryRules, FoundFile, discover, rediscover
from armarium.capabilities.corpus.index.search_index import SearchIndex
from armarium.capabilities.corpus.ingest.budgets import StateBudget
from armarium.capabilities.corpus.ingest.progress import Progress
from armarium.capabilities.corpus.ingest.recorder import Recorder
from armarium.capabilities.corpus.ingest.worker_pool import WorkerPool
from armarium.capabilities.corpus.storage.documents import KnownDocument
from armarium.capabilities.corpus.storage.errors import deleted_root_error, indexing_error
from armarium.capabilities.corpus.storage.prepared import PrepareRequest
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.concurrency.cancellation import Cancellation, Stopped
from armarium.foundation.errors import ArmariumError
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.ignore import GITIGNORE
from armarium.foundation.files.names import NotAnEscape, escape_name, unescape_name
from armarium.retrieval.errors import DamagedIndex

_log = logging.getLogger(__name__)

_PATHS_BEFORE_A_SCAN = 500
_PREPARED_AS = "prepared_as"


@dataclass(slots=True)
class Indexer:
    """One thread that runs one job after the other: whole scans, refreshes of changed paths, repairs. The callbacks are
    called in any thread."""

    root: ConfinedRoot
    rules: DiscoveryRules
    storage: Storage
    index: SearchIndex
    pool: WorkerPool
    progress: Progress
    budget: StateBudget
    """Once it is exhausted, no document is added."""
    prepared_as: str
    """Changes whenever the pool would prepare the same file differently."""
    report_secrets_again: bool
    """Whether the first scan reads files with known credentials again, for subscribers that missed the first report."""
    on_recorded: Callable[[], None]
    """There are new chunks."""
    on_change: Callable[[], None]
    """`busy` may have changed."""
    on_damage: Callable[[StoreCorrupt | DamagedIndex], None]
    """The storage cannot be read."""
    _jobs: queue.SimpleQueue[Callable[[], None] | None] = field(
        default_factory=queue.SimpleQueue[Callable[[], None] | None]
    )
    _cancellation: Cancellation = field(default_factory=Cancellation)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    _unfinished: int = 0
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._work, name="corpus-index", daemon=True)
        self._thread.start()

    def scan(self, mode: Mode = "incremental") -> None:
        """Queue a scan of the whole directory. Files that were prepared differently are prepared again."""
        self._take_on(partial(self._scan, mode))

    def refresh(self, rel_paths: Collection[str]) -> None:
        """Queue a refresh of files or directories that appeared, changed or vanished. Paths are file system names."""
        self._take_on(partial(self._refresh, rel_paths))

    def prepare_again(self, rel_path: str | None) -> None:
        """Queue files to be prepared again although they have not changed: a file, a directory, or all (None). The
        path is a file system name."""
        if rel_path is None:
            self._take_on(partial(self._scan, "full", again=True))
        else:
            self._take_on(partial(self._refresh, [rel_path], again=True))

    def repair(self, rel_paths: Collection[str]) -> None:
        """Queue the repair of documents whose stored rows are damaged."""
        self._take_on(partial(self._repair, rel_paths))

    def _take_on(self, job: Callable[[], None]) -> None:
        with self._counting:
            self._unfinished += 1
        self._jobs.put(job)
        self.progress.put(running=True)
        self.on_change()

    @property
    def busy(self) -> bool:
        return self._unfinished > 0

    def close(self) -> None:
        """Stop at the next file. What was recorded by then remains."""
        self._cancellation.cancel()
        self._jobs.put(None)
        self.pool.close()
        self._thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Stopped:
                return
            except (ArmariumError, sqlite3.Error, OSError) as error:
                self._give_up(error)
            except Exception as error:  # noqa: BLE001 the edge of the thread: nothing above it would log it
                _log.exception("indexing failed")
                self._give_up(error)
            # In this order: otherwise the index would look complete before the embedding task wakes up.
            self.on_recorded()
            with self._counting:
                self._unfinished -= 1
            self.on_change()

    def _give_up(self, error: Exception) -> None:
        reason = indexing_error(error, self.root.fd) or _reason(error)
        if isinstance(reason, StoreCorrupt) and isinstance(error, StoreCorrupt | sqlite3.Error | DamagedIndex):
            self.on_damage(error if isinstance(error, DamagedIndex) else reason)
            return
        _log.error("indexing stopped", extra={"code": reason.code, "reason": reason.message})
        self.progress.publish(IndexingFailed(reason.code, reason.message))

    def _scan(self, mode: Mode = "incremental", *, again: bool = False) -> None:
        self.progress.begin(mode)
        self._check_root()
        known = self.storage.documents.known()
        again = again or self.storage.notes.get(_PREPARED_AS) != self.prepared_as
        if again and not known:
            # Everything recorded from here on is prepared this way, even if this scan does not finish.
            self.storage.notes.put(_PREPARED_AS, self.prepared_as)
        recorder = self._recorder(known)
        if again:
            for rel_path in known:
                if self._is_excluded(rel_path):
                    recorder.delete(rel_path, forbidden=True)
            recorder.wipe_forbidden()
        seen: set[str] = set()
        found = discover(self.root, self.rules, self._cancellation, self._report_unnameable)
        self._prepare(self._changed(found, known, seen, again=again), recorder)
        self._cancellation.checkpoint(0)
        for rel_path, document in known.items():
            if (document.container or rel_path) not in seen:
                recorder.delete(rel_path, forbidden=self._is_hidden(rel_path, document.container))
        recorder.close()
        if again:
            if self.storage.dead_share() > 0:
                # The policy may have changed, and earlier versions of a file were checked against the old one.
                self.index.wipe()
            self.storage.notes.put(_PREPARED_AS, self.prepared_as)
        self.report_secrets_again = False
        self.progress.put(phase="embed", files_known=len(seen))

    def _changed(
        self, found: Iterator[FoundFile], known: dict[str, KnownDocument], seen: set[str], *, again: bool
    ) -> Iterator[PrepareRequest]:
        for each in found:
            seen.add(each.rel_path)
            before = known.get(each.rel_path)
            look_again = again or (before is not None and before.forbidden and self.report_secrets_again)
            if before and not look_again and (before.size_bytes, before.mtime_ns) == (each.size_bytes, each.mtime_ns):
                self.progress.count(scanned=1, skipped=1)
                continue
            self.progress.count(scanned=1)
            yield _wanted(each, None if again else before)

    def _prepare(self, wanted: Iterable[PrepareRequest], recorder: Recorder) -> None:
        for outcome in self.pool.prepare(self._affordable(wanted, recorder), recorder.catch_up):
            self._cancellation.checkpoint(0)
            recorder.take(outcome)

    def _affordable(self, wanted: Iterable[PrepareRequest], recorder: Recorder) -> Iterator[PrepareRequest]:
        """The files that fit the budget. The others are reported as errors, and tried again by the next scan."""
        reported = False
        for each in wanted:
            if not self.budget.is_exhausted:
                yield each
                continue
            recorder.refuse(each.rel_path)
            if not reported:
                error = self.budget.error
                message = "no more files are indexed: the state has reached its size limit"
                _log.error(message, extra={"code": error.code, "reason": error.message})
            reported = True

    def _recorder(self, known: Mapping[str, KnownDocument] | None = None) -> Recorder:
        root_path = self.root.real_path
        return Recorder(self.storage, self.index, self.progress, self.on_recorded, root_path, self.budget, known)

    def _report_unnameable(self, shown_path: str, reason: str) -> None:
        self.progress.count(scanned=1, skipped=1)
        self.progress.publish(FileFailed(shown_path, "INVALID_FIELD", reason))

    def _refresh(self, rel_paths: Collection[str], *, again: bool = False) -> None:
        is_too_much = len(rel_paths) > _PATHS_BEFORE_A_SCAN or self.rules.follow_symlinks
        if is_too_much or any(path.endswith(GITIGNORE) for path in rel_paths):
            self._scan(again=again)
            return
        self._check_root()
        recorder = self._recorder()
        wanted: dict[str, PrepareRequest] = {}
        for rel_path in sorted(rel_paths):
            there: set[str] = set()
            for each in rediscover(self.root, self.rules, rel_path, self._cancellation):
                there.add(each.rel_path)
                before = None if again else self.storage.documents.known_at(each.rel_path)
                if before is None or (before.size_bytes, before.mtime_ns) != (each.size_bytes, each.mtime_ns):
                    wanted[each.rel_path] = _wanted(each, before)
            shown = escape_name(rel_path)
            for gone in [shown, *self.storage.documents.paths_below(shown)]:
                if gone not in there and gone.partition(MEMBER_MARK)[0] not in there:
                    recorder.delete(gone, forbidden=self._is_hidden(gone))
        self._prepare(wanted.values(), recorder)
        recorder.close()

    def _repair(self, rel_paths: Collection[str]) -> None:
        recorder = self._recorder()
        for rel_path in sorted(rel_paths):
            known = self.storage.documents.known_at(rel_path)
            top = (known.container if known else None) or rel_path
            for each in [top, *self.storage.documents.paths_below(top)]:
                recorder.delete(each)
        recorder.close()
        # A document without a record is found and prepared like a new file.
        self._scan()

    def _check_root(self) -> None:
        """Raise if the directory is gone. Otherwise all its files would count as deleted."""
        trouble = deleted_root_error(self.root.fd)
        if trouble is not None:
            raise trouble

    def _is_excluded(self, rel_path: str) -> bool:
        member = rel_path.partition(MEMBER_MARK)[2]
        excludes = self.rules.exclusion.excludes_path
        return excludes(rel_path) or bool(member and excludes(member))

    def _is_hidden(self, rel_path: str, container: str | None = None) -> bool:
        """Whether policy hides a document that was not found: it is excluded, or its file still exists."""
        try:
            real_path = unescape_name(container or rel_path.partition(MEMBER_MARK)[0])
            os.stat(real_path, dir_fd=self.root.fd, follow_symlinks=False)
        except (OSError, NotAnEscape):
            return self._is_excluded(rel_path)
        return True


def _wanted(found: FoundFile, before: KnownDocument | None) -> PrepareRequest:
    return PrepareRequest(found.rel_path, before.content_hash if before else "", found.size_bytes, found.mtime_ns)


def _reason(error: Exception) -> ArmariumError:
    if isinstance(error, ArmariumError):
        return error
    if isinstance(error, OSError):
        return RootInaccessible(f"the directory cannot be read: {error.strerror or 'the operating system refused'}")
    return StoreCorrupt("the state directory cannot be written")
