"""One worker process: started with a clean environment, given open files, read with deadlines."""

from __future__ import annotations

import os
import select
import site
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from armarium.capabilities.corpus.ingest.checked_messages import ExpectedOutcomes
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.messages import InvalidMessage, decode_frame, encode_frame, read_frame
from armarium.capabilities.corpus.storage.prepared import Finished, Outcome, PrepareRequest
from armarium.foundation.processes.isolation import Isolation
from armarium.foundation.processes.memory import machine_memory_bytes

WORKER_MODULE = "armarium.capabilities.corpus.ingest.worker"
_READ_BYTES = 1 << 18
_START_DEADLINE_S = 60.0
_LONGEST_GREETING = 1000
_GLANCE_S = 0.2
_MEGABYTE = 1_000_000
_LEAST_MEMORY_BYTES = 512 * 1024**2
_BASE_MEMORY_BYTES = 768 * 1024**2
_MEMORY_PER_FILE_BYTE = 16
"""Measured: 10 for text, and 11 for each byte of XML that a zipped document unpacks to."""
IsolationMode = Literal["auto", "required", "off"]
_KEPT_VARIABLES = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONNOUSERSITE")
_KEPT_PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""Search paths of Python and its libraries. Relative entries are dropped: they depend on the current directory."""


class WorkerLost(Exception):
    """The worker process ended, or is no longer trusted."""


class WorkerNotStarted(WorkerLost):
    """No worker process could be started, so the file is not at fault."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long a worker may take for a file. CPU time is the main limit, because on a busy machine every file takes
    long; elapsed time limits workers that wait forever."""

    cpu_s: float = 30.0
    cpu_s_per_megabyte: float = 5.0
    """The slowest legitimate files measured, long PDFs and workbooks, take 3 to 6 seconds per megabyte."""
    wall_factor: float = 4.0
    slow_cpu_s: float = 0.5
    slow_wall_s: float = 5.0
    """After this time, the files behind this one go to other workers."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """How every worker of a pool starts."""

    instructions: Instructions
    memory_bytes: int
    isolation: IsolationMode = "auto"
    """`required`: a worker that is not completely isolated must not receive any file."""


def worker_memory_bytes(most_file_bytes: int, workers: int) -> int:
    """The address space of one worker: enough for the largest file, at most half of the memory for all."""
    wanted = _BASE_MEMORY_BYTES + _MEMORY_PER_FILE_BYTE * most_file_bytes
    return max(_LEAST_MEMORY_BYTES, min(wanted, machine_memory_bytes() // 2 // workers))


def worker_environment() -> dict[str, str]:
    """The environment of a worker: only where Python is."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    for name in _KEPT_PATHS:
        entries = [entry for entry in os.environ.get(name, "").split(os.pathsep) if os.path.isabs(entry)]
        if entries:
            kept[name] = os.pathsep.join(entries)
    # Python would derive it from HOME.
    return {**kept, "PYTHONUSERBASE": site.getuserbase(), "LC_ALL": "C.UTF-8"}


class WorkerProcess:
    """One worker process, with the socket for files and the pipe for outcomes."""

    def __init__(self, setup: WorkerSetup) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._input = ours
            self._input.settimeout(_START_DEADLINE_S)
            self._received = bytearray()
            try:
                self._process = subprocess.Popen(  # noqa: S603 the interpreter that runs this
                    # -P: no modules from the current directory.
                    [sys.executable, "-P", "-m", WORKER_MODULE],
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    # Libraries print warnings about broken files there, which may contain their content.
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=worker_environment(),
                    # Ctrl-C in a terminal is meant for the server, which then ends its workers.
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise WorkerNotStarted("the extractor could not be started") from error
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        # The CPU clock of another process, computed as in clock_getcpuclockid(3).
        self._cpu_clock = (~self._process.pid << 3) | 2
        try:
            self.isolation = self._greet(setup)
        except (WorkerLost, InvalidMessage, TypeError) as error:
            self.kill()
            raise WorkerNotStarted("the extractor could not be started") from error
        if setup.isolation == "required" and not self.isolation.is_complete:
            self.kill()
            raise WorkerNotStarted(f"the extractor could not be isolated; missing: {self.isolation.missing}")

    def _greet(self, setup: WorkerSetup) -> Isolation:
        instructions = setup.instructions.as_json()
        isolated = setup.isolation != "off"
        self._send({"instructions": instructions, "memory_bytes": setup.memory_bytes, "isolated": isolated})
        until = time.monotonic() + _START_DEADLINE_S

        def check() -> None:
            if time.monotonic() > until:
                raise WorkerLost("the extractor did not start in time")

        return Isolation(**decode_frame(read_frame(lambda size: self._read(size, check), _LONGEST_GREETING)))

    def hand_over(self, wanted: PrepareRequest, fd: int) -> None:
        """Send an open file to the worker's queue. Raises `WorkerLost` if the process is gone."""
        self._send(list(wanted), fd)

    def outcomes(
        self, expected: ExpectedOutcomes, time_limits: TimeLimits, on_slow: Callable[[], None]
    ) -> Iterator[tuple[Outcome, int]]:
        """The outcomes for the oldest file in the queue, each with the size of its message; `Finished` is the last.
        Raises `WorkerLost` when the process ends, a deadline passes, or a message is invalid."""
        most_cpu_s = time_limits.cpu_s + time_limits.cpu_s_per_megabyte * expected.size_bytes / _MEGABYTE
        watch = _Watch(self._cpu_s, time_limits, most_cpu_s, on_slow)
        while True:
            try:
                body = read_frame(lambda size: self._read(size, watch.check), expected.max_frame_bytes)
                outcome = expected.outcome(body)
            except InvalidMessage as error:
                raise WorkerLost("the extractor sent an invalid message") from error
            paused_at = time.monotonic()
            yield outcome, len(body)
            # Time that the server itself spent does not count.
            watch.began_at += time.monotonic() - paused_at
            if isinstance(outcome, Finished):
                return

    def answer(
        self, request: dict[str, Any], fd: int, time_limits: TimeLimits, size_bytes: int, max_answer_bytes: int
    ) -> Any:
        """The answer to a request about an open file, not validated. Nothing else may be in the queue. Raises
        `WorkerLost` when the process ends, a deadline passes, or the answer is not JSON."""
        self._send(request, fd)
        most_cpu_s = time_limits.cpu_s + time_limits.cpu_s_per_megabyte * size_bytes / _MEGABYTE
        watch = _Watch(self._cpu_s, time_limits, most_cpu_s, None)
        try:
            return decode_frame(read_frame(lambda size: self._read(size, watch.check), max_answer_bytes))
        except InvalidMessage as error:
            raise WorkerLost("the extractor sent an invalid message") from error

    def interrupt(self) -> None:
        """Kill the process from a thread other than the one that reads from it."""
        self._process.kill()

    def kill(self) -> None:
        """Kill the process. It holds nothing that could be lost."""
        self._process.kill()
        self._process.wait()
        self._input.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, message: Any, fd: int | None = None) -> None:
        data = encode_frame(message)
        try:
            sent = socket.send_fds(self._input, [data], [] if fd is None else [fd])
            self._input.sendall(data[sent:])
        except OSError as error:
            raise WorkerLost("the extractor ended") from error

    def _cpu_s(self) -> float:
        with suppress(OSError):
            return time.clock_gettime(self._cpu_clock)
        return 0.0

    def _read(self, size: int, check: Callable[[], None]) -> bytes:
        while len(self._received) < size:
            try:
                ready, _, _ = select.select([self._output], [], [], _GLANCE_S)
                # Also when there is data: a worker must not gain time by sending a few bytes again and again.
                check()
                if not ready:
                    continue
                part = os.read(self._output, _READ_BYTES)
            except (OSError, ValueError) as error:
                raise WorkerLost("the extractor ended") from error
            if not part:
                raise WorkerLost("the extractor crashed on this file")
            self._received += part
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


@dataclass(slots=True)
class _Watch:
    """Measures the time that one file takes."""

    cpu_s: Callable[[], float]
    limits: TimeLimits
    most_cpu_s: float
    on_slow: Callable[[], None] | None
    began_at: float = field(default_factory=time.monotonic)
    began_cpu_s: float = field(init=False)
    next_look_s: float = _GLANCE_S / 2

    def __post_init__(self) -> None:
        self.began_cpu_s = self.cpu_s()

    def check(self) -> None:
        """Call `on_slow` once if the file is slow. Raises `WorkerLost` when a limit is exceeded."""
        wall_s = time.monotonic() - self.began_at
        if wall_s < self.next_look_s:
            return
        self.next_look_s = wall_s + _GLANCE_S / 2
        cpu_s = self.cpu_s() - self.began_cpu_s
        if self.on_slow and (cpu_s >= self.limits.slow_cpu_s or wall_s >= self.limits.slow_wall_s):
            self.on_slow()
            self.on_slow = None
        most_wall_s = self.most_cpu_s * self.limits.wall_factor
        for taken, most, of in ((cpu_s, self.most_cpu_s, " of CPU time"), (wall_s, most_wall_s, "")):
            if taken > most:
                raise WorkerLost(f"extracting took longer than {most:.3g} seconds{of}")
