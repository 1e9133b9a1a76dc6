"""The pool of worker processes that prepare files: a file that crashes or hangs a worker fails alone."""

from __future__ import annotations

import errno
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.ingest.budgets import TextBudget
from armarium.capabilities.corpus.ingest.checked_messages import ExpectedOutcomes
from armarium.capabilities.corpus.ingest.worker_process import (
    TimeLimits,
    WorkerLost,
    WorkerNotStarted,
    WorkerProcess,
    WorkerSetup,
)
from armarium.capabilities.corpus.storage.prepared import Finished, Outcome, Prepared, PrepareRequest, Vanished
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.errors import FileError
from armarium.foundation.files.names import NotAnEscape, unescape_name

_log = logging.getLogger(__name__)

_BATCH = 32
_BATCHES_AHEAD = 4
_MOST_FAILED_STARTS = 3
_IDLE_S = 30.0
_IDLE_POLL_S = 0.2
_SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_UNTAKEN_BYTES = 64 * 1024 * 1024
"""Outcomes that were not consumed yet. Above this size, workers wait."""


@dataclass(slots=True)
class _Run:
    """One call of `prepare` and its outcomes."""

    outcomes: queue.SimpleQueue[tuple[Outcome, int]] = field(default_factory=queue.SimpleQueue[tuple[Outcome, int]])
    """Each outcome with the size of its message."""
    untaken_bytes: int = 0
    is_over: bool = False


@dataclass(slots=True)
class _Job:
    """A file in the pool."""

    wanted: PrepareRequest
    run: _Run
    expected: ExpectedOutcomes | None = None
    given_back: bool = False
    """Whether the file was moved to another worker because this one is slow. Its outcomes are dropped here."""


@dataclass(eq=False)
class WorkerPool:
    """Worker processes that start when there is work and end after a while without."""

    root: ConfinedRoot
    setup: WorkerSetup
    _: KW_ONLY
    size: int
    """The largest number of workers."""
    at_once: int = 1
    """The largest number of busy workers, not counting those that are busy with a slow file."""
    time_limits: TimeLimits = field(default_factory=TimeLimits)
    idle_s: float = _IDLE_S
    """When a worker without work ends."""

    def __post_init__(self) -> None:
        self._jobs: deque[_Job] = deque()
        self._busy = 0
        self._lock = threading.Lock()
        """Protects the jobs, the number of busy workers, and the bytes not consumed."""
        self._work = threading.Condition(self._lock)
        self._ready = 0
        """The number of threads that wait for work and have a process. Threads without one wait for more work than
        those can do."""
        self._room = threading.Condition(self._lock)
        self._processes: set[WorkerProcess] = set()
        self._closed = threading.Event()
        self._failed_starts = 0
        """In a row. A broken installation must not be reported as an error of every file."""
        self._isolation_logged = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"corpus-prepare-{number}", daemon=True)
            for number in range(self.size)
        ]
        for thread in self._threads:
            thread.start()

    def prepare(
        self, wanted: Iterable[PrepareRequest], on_idle: Callable[[], None] = lambda: None
    ) -> Iterator[Outcome]:
        """The outcomes for each file as they come, `Finished` last. `on_idle` is called repeatedly while there is none:
        one file can take minutes."""
        run = _Run()
        coming = iter(wanted)
        under_way = 0
        exhausted = False
        try:
            while not self._closed.is_set():
                while not exhausted and under_way <= (self.at_once * _BATCHES_AHEAD - 1) * _BATCH:
                    batch = [_Job(each, run) for each in islice(coming, _BATCH)]
                    exhausted = not batch
                    under_way += len(batch)
                    self._add(batch)
                if not under_way:
                    return
                if self._failed_starts > _MOST_FAILED_STARTS:
                    raise ExtractFailed(
                        "no worker process can be started", hint="armarium doctor checks the installation"
                    )
                try:
                    outcome, size_bytes = run.outcomes.get(timeout=_IDLE_POLL_S)
                except queue.Empty:
                    on_idle()
                    continue
                yield outcome
                under_way -= isinstance(outcome, Finished)
                with self._lock:
                    run.untaken_bytes -= size_bytes
                    self._room.notify_all()
        finally:
            with self._lock:
                run.is_over = True
                self._jobs = deque(job for job in self._jobs if job.run is not run)
                self._room.notify_all()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._work.notify_all()
            self._room.notify_all()
        for process in list(self._processes):
            # Its thread notices that it ended, and cleans up.
            process.interrupt()
        for thread in self._threads:
            thread.join()

    # Shared by all threads

    def _add(self, jobs: list[_Job], *, first: bool = False) -> None:
        with self._lock:
            if first:
                self._jobs.extendleft(reversed(jobs))
            else:
                self._jobs.extend(jobs)
            self._work.notify_all()

    def _tell(self, job: _Job, outcome: Outcome, size_bytes: int = 0) -> None:
        """Queue an outcome once there is room."""
        if job.given_back:
            return
        run = job.run
        with self._lock:
            self._room.wait_for(lambda: run.untaken_bytes < _UNTAKEN_BYTES or run.is_over or self._closed.is_set())
            run.untaken_bytes += size_bytes
        run.outcomes.put((outcome, size_bytes))

    # One thread for each worker process

    def _serve(self) -> None:
        process: WorkerProcess | None = None
        is_busy = False
        while (batch := self._next_batch(was_busy=is_busy, has_process=process is not None)) is not None:
            if batch:
                process, is_busy = self._prepare(process, batch)
            else:
                self._end(process)
                process, is_busy = None, False
        self._end(process)

    def _next_batch(self, *, was_busy: bool, has_process: bool) -> deque[_Job] | None:
        """The next files to prepare; empty after a while without work, None when the pool is closed."""
        with self._lock:
            # Only now: otherwise another thread would start a process for work that this one can do.
            self._busy -= was_busy
            self._ready += has_process
            self._work.wait_for(
                lambda: self._closed.is_set() or self._has_work(0 if has_process else self._ready),
                self.idle_s if has_process else None,
            )
            self._ready -= has_process
            if self._closed.is_set():
                return None
            if not self._has_work():
                return deque()
            self._busy += 1
            batch = deque(self._jobs.popleft() for _ in range(min(_BATCH, len(self._jobs))))
            self._work.notify_all()
            return batch

    def _has_work(self, for_others: int = 0) -> bool:
        return bool(self._jobs) and self._busy + for_others < self.at_once

    def _prepare(self, process: WorkerProcess | None, waiting: deque[_Job]) -> tuple[WorkerProcess | None, bool]:
        """Prepare the files in order. Returns the process for the next batch, and whether it still counts as busy."""
        is_slow = False

        def release() -> None:
            # Other workers take the files behind a slow one, and one more of them may be busy.
            nonlocal is_slow
            rest = [job for job in islice(waiting, 1, None) if not job.given_back]
            for job in rest:
                job.given_back = True
            with self._lock:
                self._busy -= not is_slow
                is_slow = True
            self._add([_Job(job.wanted, job.run) for job in rest if not job.run.is_over], first=True)

        while waiting and not self._closed.is_set():
            try:
                process = self._with_files(process, waiting)
                while waiting:
                    job = waiting[0]
                    assert job.expected is not None
                    for outcome, size_bytes in process.outcomes(job.expected, self.time_limits, release):
                        self._tell(job, outcome, size_bytes)
                    waiting.popleft()
                self._failed_starts = 0
            except WorkerLost as lost:
                self._end(process)
                process = None
                not_started = isinstance(lost, WorkerNotStarted)
                self._failed_starts += not_started
                if not self._closed.is_set():
                    blamed = waiting.popleft()
                    self._tell(blamed, _failed(blamed.wanted, str(lost), again=not_started))
                    self._tell(blamed, Finished(blamed.wanted.rel_path))
                    waiting = deque(job for job in waiting if not job.given_back)
        return process, not is_slow

    def _with_files(self, process: WorkerProcess | None, waiting: deque[_Job]) -> WorkerProcess:
        """A worker with the files: the current one, or a new one if that died."""
        if process is not None:
            try:
                self._hand_over(process, waiting)
                return process
            except WorkerLost:
                self._end(process)
        process = WorkerProcess(self.setup)
        self._processes.add(process)
        if self.setup.isolation != "off" and not process.isolation.is_complete and not self._isolation_logged:
            self._isolation_logged = True
            _log.warning("parser workers are not fully isolated", extra={"missing": process.isolation.missing})
        try:
            if self._closed.is_set():
                raise WorkerNotStarted("there is no more work to do")
            self._hand_over(process, waiting)
        except WorkerLost:
            self._end(process)
            raise
        return process

    def _hand_over(self, process: WorkerProcess, waiting: deque[_Job]) -> None:
        """Open the files and send all of them at once: a worker that received one at a time would mostly wait."""
        for job in list(waiting):
            wanted = job.wanted
            try:
                with self.root.opened_regular(unescape_name(wanted.rel_path)) as (fd, status):
                    found = wanted._replace(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)
                    process.hand_over(found, fd)
            except (OSError, FileError, NotAnEscape) as error:
                waiting.remove(job)
                if isinstance(error, OSError) and error.errno in _SHORTAGES:
                    reason = "the server has no descriptor left to open it with"
                    self._tell(job, _failed(wanted, reason, again=True))
                else:
                    self._tell(job, Vanished(wanted.rel_path))
                self._tell(job, Finished(wanted.rel_path))
                continue
            instructions = self.setup.instructions
            budget = TextBudget(found.size_bytes, instructions.chunk_limits.max_chars)
            job.expected = ExpectedOutcomes(
                found.rel_path, found.size_bytes, found.mtime_ns, budget, most_lines=instructions.most_bytes + 1
            )

    def _end(self, process: WorkerProcess | None) -> None:
        if process is not None:
            self._processes.discard(process)
            process.kill()


def _failed(wanted: PrepareRequest, why: str, *, again: bool) -> Prepared:
    # With size and time, so that a file that kills the worker is not tried again before it changes.
    size_bytes, mtime_ns = (0, 0) if again else (wanted.size_bytes, wanted.mtime_ns)
    error = f"{ExtractFailed.code}: {why}"
    return Prepared(wanted.rel_path, "binary_ignored", size_bytes, mtime_ns, "", "error", error)
