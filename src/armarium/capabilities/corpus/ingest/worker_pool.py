"""The pool of worker processes that read, extract and cut files: a file that crashes or hangs one costs that file."""

from __future__ import annotations

import errno
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.ingest.budgets import TextBudget
from armarium.capabilities.corpus.ingest.checked_messages import Asked
from armarium.capabilities.corpus.ingest.worker_process import (
    TimeLimits,
    WorkerLost,
    WorkerNotStarted,
    WorkerProcess,
    WorkerSetup,
)
from armarium.capabilities.corpus.prepared import Finished, Outcome, Prepared, PrepareRequest, Vanished
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
"""Answers that nobody took yet. Above this, workers wait until they are recorded."""


@dataclass(slots=True)
class _Run:
    """One call of `prepare`: who waits for the outcomes."""

    outcomes: queue.SimpleQueue[tuple[Outcome, int]] = field(default_factory=queue.SimpleQueue[tuple[Outcome, int]])
    """Each with the bytes it came in."""
    untaken_bytes: int = 0
    is_over: bool = False


@dataclass(slots=True)
class _Job:
    """A file on its way through the pool."""

    wanted: PrepareRequest
    run: _Run
    asked: Asked | None = None
    given_back: bool = False
    """Whether another worker has it now, because the one before it was slow. What this one answers is dropped."""


class WorkerPool:
    """Worker processes, started when there is work and ended when there has been none for a while."""

    def __init__(
        self,
        root: ConfinedRoot,
        setup: WorkerSetup,
        *,
        size: int,
        at_once: int = 1,
        time_limits: TimeLimits | None = None,
    ) -> None:
        """At most `at_once` workers are busy, not counting those that a slow file holds; there are never more than
        `size`."""
        self._root = root
        self._setup = setup
        self._at_once = at_once
        self._time_limits = time_limits or TimeLimits()
        self._jobs: deque[_Job] = deque()
        self._busy = 0
        self._lock = threading.Lock()
        """Guards the jobs, how many workers are busy, and the bytes that are not taken."""
        self._work = threading.Condition(self._lock)
        """Waited for by threads that have a process. The others wait for more work than those can do."""
        self._ready = 0
        """How many wait for it."""
        self._more_work = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._processes: set[WorkerProcess] = set()
        self._closed = threading.Event()
        self._failed_starts = 0
        """In a row. A set-up that is broken must not be told as a fault of ten thousand files."""
        self._isolation_logged = False
        self._threads = [
            threading.Thread(target=self._serve, name=f"corpus-prepare-{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def prepare(
        self, wanted: Iterable[PrepareRequest], on_idle: Callable[[], None] = lambda: None
    ) -> Iterator[Outcome]:
        """What becomes of each file, as the workers get to it. Each file ends with `Finished`.

        `on_idle` is called, again and again, while there is nothing to hand on: one file can take minutes.
        """
        run = _Run()
        coming = iter(wanted)
        under_way = 0
        exhausted = False
        try:
            while not self._closed.is_set():
                while not exhausted and under_way <= (self._at_once * _BATCHES_AHEAD - 1) * _BATCH:
                    batch = [_Job(each, run) for each in islice(coming, _BATCH)]
                    exhausted = not batch
                    under_way += len(batch)
                    self._add(batch)
                if not under_way:
                    return
                if self._failed_starts > _MOST_FAILED_STARTS:
                    raise ExtractFailed("no worker process can be started", hint="armarium doctor looks at the set-up")
                try:
                    outcome, size_bytes = run.outcomes.get(timeout=_IDLE_POLL_S)
                except queue.Empty:
                    on_idle()
                    continue
                yield outcome
                if isinstance(outcome, Finished):
                    under_way -= 1
                else:
                    self._take(run, size_bytes)
        finally:
            self._abandon(run)

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        self._closed.set()
        with self._lock:
            for condition in (self._work, self._more_work, self._room):
                condition.notify_all()
        for process in list(self._processes):
            # Its thread sees it end, and clears up after it.
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
            self._wake()

    def _wake(self) -> None:
        """Have as many idle threads look for work as may be busy, first those whose process is there already."""
        wanted = self._at_once - self._busy if self._jobs else 0
        self._work.notify(min(wanted, self._ready))
        self._more_work.notify(max(0, wanted - self._ready))

    def _take(self, run: _Run, size_bytes: int) -> None:
        with self._lock:
            was_full = run.untaken_bytes >= _UNTAKEN_BYTES
            run.untaken_bytes -= size_bytes
            if was_full and run.untaken_bytes < _UNTAKEN_BYTES:
                self._room.notify_all()

    def _abandon(self, run: _Run) -> None:
        with self._lock:
            run.is_over = True
            self._jobs = deque(job for job in self._jobs if job.run is not run)
            self._room.notify_all()

    def _tell(self, job: _Job, outcome: Outcome, size_bytes: int = 0) -> None:
        """Hand an outcome on, once there is room for it."""
        if job.given_back:
            return
        run = job.run
        if not isinstance(outcome, Finished):
            with self._lock:
                while run.untaken_bytes >= _UNTAKEN_BYTES and not run.is_over and not self._closed.is_set():
                    self._room.wait()
                run.untaken_bytes += size_bytes
        run.outcomes.put((outcome, size_bytes))

    # One thread for each worker process

    def _serve(self) -> None:
        process: WorkerProcess | None = None
        is_busy = False
        while True:
            batch = self._next_batch(was_busy=is_busy, has_process=process is not None)
            if batch is None:
                self._end(process)
                return
            is_busy = False
            if batch:
                process, is_busy = self._prepare(process, batch)
            else:
                process = self._end(process)

    def _next_batch(self, *, was_busy: bool, has_process: bool) -> deque[_Job] | None:
        """Files to prepare; none when there were none for a while, None when there will be no more."""
        with self._lock:
            # Not before now: another thread would start a process for what this one's can do.
            self._busy -= was_busy
            if has_process:
                self._ready += 1
                try:
                    self._work.wait_for(lambda: self._closed.is_set() or self._has_work(), _IDLE_S)
                finally:
                    self._ready -= 1
            else:
                self._more_work.wait_for(lambda: self._closed.is_set() or self._has_work(self._ready))
            if self._closed.is_set():
                return None
            if not self._has_work():
                return deque()
            self._busy += 1
            batch = deque(self._jobs.popleft() for _ in range(min(_BATCH, len(self._jobs))))
            self._wake()
            return batch

    def _has_work(self, for_others: int = 0) -> bool:
        return bool(self._jobs) and self._busy + for_others < self._at_once

    def _prepare(self, process: WorkerProcess | None, waiting: deque[_Job]) -> tuple[WorkerProcess | None, bool]:
        """Let a worker prepare the files, in order; returns the one for the next batch, and whether it counts as busy
        still."""
        is_slow = False

        def release() -> None:
            # Other workers take what waits behind a slow file, and one more of them may be busy.
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
                    assert job.asked is not None
                    for outcome, size_bytes in process.outcomes(job.asked, self._time_limits, release):
                        self._tell(job, outcome, size_bytes)
                    waiting.popleft()
                self._failed_starts = 0
            except WorkerLost as lost:
                self._end(process)
                process = None
                self._failed_starts += isinstance(lost, WorkerNotStarted)
                if not self._closed.is_set():
                    self._blame(waiting.popleft(), lost)
                    waiting = deque(job for job in waiting if not job.given_back)
        return process, not is_slow

    def _blame(self, job: _Job, lost: WorkerLost) -> None:
        wanted = job.wanted
        self._tell(job, _failed(wanted, str(lost), again=isinstance(lost, WorkerNotStarted)))
        self._tell(job, Finished(wanted.rel_path))

    def _with_files(self, process: WorkerProcess | None, waiting: deque[_Job]) -> WorkerProcess:
        """A worker that was handed the files: the one there is, or a new one if that died since its last file."""
        if process is not None:
            try:
                self._hand_over(process, waiting)
            except WorkerLost:
                self._end(process)
            else:
                return process
        process = WorkerProcess(self._setup)
        self._processes.add(process)
        self._log_isolation(process)
        try:
            if self._closed.is_set():
                raise WorkerNotStarted("there is no more work to do")
            self._hand_over(process, waiting)
        except WorkerLost:
            self._end(process)
            raise
        return process

    def _hand_over(self, process: WorkerProcess, waiting: deque[_Job]) -> None:
        """Open the files for the worker, all at once: one that waited for each file would wait most of the time."""
        for job in list(waiting):
            wanted = job.wanted
            try:
                with self._root.opened_regular(unescape_name(wanted.rel_path)) as (fd, status):
                    found = wanted._replace(size_bytes=status.st_size, mtime_ns=status.st_mtime_ns)
                    process.hand_over(found, fd)
            except (OSError, FileError, NotAnEscape) as error:
                waiting.remove(job)
                self._tell(job, _unopened(wanted, error))
                self._tell(job, Finished(wanted.rel_path))
                continue
            instructions = self._setup.instructions
            budget = TextBudget(found.size_bytes, instructions.chunk_limits.max_chars)
            job.asked = Asked(
                found.rel_path, found.size_bytes, found.mtime_ns, budget, most_lines=instructions.most_bytes + 1
            )

    def _log_isolation(self, process: WorkerProcess) -> None:
        if self._setup.isolated and not process.isolation.is_complete and not self._isolation_logged:
            self._isolation_logged = True
            _log.warning("parser workers are not fully isolated", extra={"missing": process.isolation.missing})

    def _end(self, process: WorkerProcess | None) -> None:
        if process is not None:
            self._processes.discard(process)
            process.kill()


def _failed(wanted: PrepareRequest, why: str, *, again: bool) -> Prepared:
    # With size and time: a file that kills the extractor is not tried again before it changes.
    size_bytes, mtime_ns = (0, 0) if again else (wanted.size_bytes, wanted.mtime_ns)
    error = f"{ExtractFailed.code}: {why}"
    return Prepared(wanted.rel_path, "binary_ignored", size_bytes, mtime_ns, "", "error", error)


def _unopened(wanted: PrepareRequest, error: OSError | FileError | NotAnEscape) -> Prepared | Vanished:
    if isinstance(error, OSError) and error.errno in _SHORTAGES:
        return _failed(wanted, "the server has no descriptor left to open it with", again=True)
    return Vanished(wanted.rel_path)
