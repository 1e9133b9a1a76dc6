"""The worker processes that read, extract and cut files: a file that crashes or hangs one costs that file, no more."""

from __future__ import annotations

import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from armarium.capabilities.corpus.errors import ExtractFailed
from armarium.capabilities.corpus.ingest.frames import framed, unframed
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.prepared import Finished, Outcome, Prepared, Wanted

_BATCH = 32
_BATCHES_AHEAD = 4
_READ_BYTES = 1 << 18
_START_DEADLINE_S = 60.0
_MOST_FAILED_STARTS = 3
_IDLE_S = 30.0


class _Lost(Exception):
    """The worker process is gone, or does not answer any more."""


class _NotStarted(_Lost):
    """There is no worker process, whatever the file is."""


class Preparers:
    """A pool of worker processes, started when there is work and ended when there has been none for a while."""

    def __init__(self, instructions: Instructions, *, size: int, deadline_s: float) -> None:
        self._instructions = instructions
        self._deadline_s = deadline_s
        self._jobs: queue.SimpleQueue[tuple[list[Wanted], queue.SimpleQueue[Outcome | None]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = [
            threading.Thread(target=self._serve, name=f"corpus-prepare-{number}", daemon=True) for number in range(size)
        ]
        self._processes: set[_Process] = set()
        self._closed = threading.Event()
        self._failed_starts = 0
        """In a row. A set-up that is broken must not be told as a fault of ten thousand files."""
        for thread in self._threads:
            thread.start()

    def prepare(self, wanted: Iterable[Wanted]) -> Iterator[Outcome]:
        """What becomes of each file, as the workers get to it. Each file ends with `Finished`."""
        outcomes: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        coming = iter(wanted)
        under_way = 0
        exhausted = False
        while not self._closed.is_set():
            while not exhausted and under_way < len(self._threads) * _BATCHES_AHEAD:
                batch = list(islice(coming, _BATCH))
                if not batch:
                    exhausted = True
                    break
                self._jobs.put((batch, outcomes))
                under_way += 1
            if not under_way:
                return
            with suppress(queue.Empty):
                if self._failed_starts > _MOST_FAILED_STARTS:
                    raise ExtractFailed("no worker process can be started", hint="armarium doctor looks at the set-up")
                outcome = outcomes.get(timeout=0.2)
                if outcome is None:
                    under_way -= 1
                else:
                    yield outcome

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        self._closed.set()
        for process in list(self._processes):
            # Its thread sees it end, and clears up after it.
            process.interrupt()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        process: _Process | None = None
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S if process else None)
            except queue.Empty:
                job = None
                if process is not None:
                    process = self._end(process)
                    continue
            if job is None or self._closed.is_set():
                self._end(process)
                return
            batch, outcomes = job
            process = self._prepare(process, deque(batch), outcomes)
            outcomes.put(None)

    def _prepare(
        self, process: _Process | None, waiting: deque[Wanted], outcomes: queue.SimpleQueue[Outcome | None]
    ) -> _Process | None:
        """Let a worker prepare the files, in order; returns the one for the next batch."""
        while waiting and not self._closed.is_set():
            try:
                # All at once: a worker that had to wait for each file to be taken would wait most of the time.
                process = self._with_files(process, waiting)
                while waiting:
                    for outcome in process.outcomes(self._deadline_s):
                        outcomes.put(outcome)
                    waiting.popleft()
                self._failed_starts = 0
            except _Lost as lost:
                self._end(process)
                process = None
                self._failed_starts += isinstance(lost, _NotStarted)
                if not self._closed.is_set():
                    fatal = waiting.popleft()
                    outcomes.put(_unreadable(fatal, str(lost), again=isinstance(lost, _NotStarted)))
                    outcomes.put(Finished(fatal.rel_path))
        return process

    def _with_files(self, process: _Process | None, waiting: Iterable[Wanted]) -> _Process:
        """A worker that was handed the files: the one there is, or a new one if that died since its last file."""
        if process is not None:
            try:
                process.send(*waiting)
            except _Lost:
                self._end(process)
            else:
                return process
        process = _Process(self._instructions)
        self._processes.add(process)
        try:
            if self._closed.is_set():
                raise _NotStarted("there is no more work to do")
            process.send(*waiting)
        except _Lost:
            self._end(process)
            raise
        return process

    def _end(self, process: _Process | None) -> None:
        if process is not None:
            self._processes.discard(process)
            process.kill()


def _unreadable(wanted: Wanted, why: str, *, again: bool) -> Prepared:
    # With size and time: a file that kills the extractor is not tried again before it changes.
    size_bytes, mtime_ns = (0, 0) if again else (wanted.size_bytes, wanted.mtime_ns)
    error = f"{ExtractFailed.code}: {why}"
    return Prepared(wanted.rel_path, "binary_ignored", size_bytes, mtime_ns, "", "error", error)


class _Process:
    """One worker process and the pipe to it."""

    def __init__(self, instructions: Instructions) -> None:
        try:
            self._process = subprocess.Popen(
                # -P: the current directory may be the one that is indexed, and nothing in it is ours to run.
                [sys.executable, "-P", "-m", "armarium.capabilities.corpus.ingest.prepare_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Libraries complain there about broken files, in words that may hold what is in them.
                stderr=subprocess.DEVNULL,
                # A terminal's Ctrl-C is for the server, which then ends its workers itself.
                start_new_session=True,
            )
        except OSError as error:
            raise _NotStarted("the extractor could not be started") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout.fileno()
        self._received = bytearray()
        try:
            self.send(instructions)
            self._receive(time.monotonic() + _START_DEADLINE_S, _START_DEADLINE_S)
        except _Lost as lost:
            self.kill()
            raise _NotStarted("the extractor could not be started") from lost

    def outcomes(self, deadline_s: float) -> Iterator[Outcome]:
        """What becomes of the file that was sent; raises `_Lost` when the process ends or the time is up."""
        end = time.monotonic() + deadline_s
        while True:
            outcome = self._receive(end, deadline_s)
            yield outcome
            if isinstance(outcome, Finished):
                return

    def interrupt(self) -> None:
        """End the process from another thread than the one that listens to it."""
        self._process.kill()

    def kill(self) -> None:
        """End the process at once; it holds nothing that could be lost."""
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            self._input.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def send(self, *messages: Any) -> None:
        """Hand something to the process; raises `_Lost` when it is gone."""
        try:
            self._input.write(b"".join(map(framed, messages)))
            self._input.flush()
        except (OSError, ValueError) as error:
            raise _Lost("the extractor ended") from error

    def _receive(self, end: float, deadline_s: float) -> Outcome:
        return unframed(lambda size: self._read(size, end, deadline_s))

    def _read(self, size: int, end: float, deadline_s: float) -> bytes:
        while len(self._received) < size:
            try:
                ready, _, _ = select.select([self._output], [], [], max(0.0, end - time.monotonic()))
                if not ready:
                    raise _Lost(f"extracting took longer than {deadline_s:g} seconds")
                part = os.read(self._output, _READ_BYTES)
            except (OSError, ValueError) as error:
                raise _Lost("the extractor ended") from error
            if not part:
                raise _Lost("the extractor crashed on this file")
            self._received += part
        data = bytes(self._received[:size])
        del self._received[:size]
        return data
