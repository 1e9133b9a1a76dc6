"""One worker process: how it is started with nothing of the server's, handed open files, and listened to."""

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
from dataclasses import dataclass
from typing import Any

from armarium.capabilities.corpus.ingest.checked_answers import Asked, Untrustworthy
from armarium.capabilities.corpus.ingest.frames import UnusableFrame, framed, parsed, read_frame
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.ingest.prepared import Finished, Outcome, Wanted
from armarium.foundation.processes.isolation import Isolation
from armarium.foundation.processes.memory import machine_memory_bytes

_MODULE = "armarium.capabilities.corpus.ingest.prepare_worker"
_READ_BYTES = 1 << 18
_START_DEADLINE_S = 60.0
_LONGEST_GREETING = 1000
_GLANCE_S = 0.2
_MEGABYTE = 1_000_000
_LEAST_MEMORY_BYTES = 512 * 1024**2
_BASE_MEMORY_BYTES = 768 * 1024**2
_MEMORY_PER_FILE_BYTE = 16
"""Measured: 10 for text, and 11 for each byte of XML that a zipped document unpacks to."""
_KEPT_VARIABLES = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONNOUSERSITE")
_KEPT_PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH")
"""Where Python and its libraries are found. Relative entries would depend on a directory that anybody may write to."""


class Lost(Exception):
    """The worker process is gone, or is not to be listened to any more."""


class NotStarted(Lost):
    """There is no worker process, whatever the file is."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a worker may take over a file.

    CPU time is what counts, because a busy machine makes every file slow. The clock on the wall is for workers that
    wait for something that never comes.
    """

    cpu_s: float = 30.0
    cpu_s_per_megabyte: float = 5.0
    """The slowest honest files that were measured, long PDFs and workbooks, take 3 to 6 seconds for a megabyte."""
    wall_factor: float = 4.0
    slow_cpu_s: float = 0.5
    slow_wall_s: float = 5.0
    """From here on, files waiting behind this one go to other workers."""

    def limits(self, size_bytes: int) -> tuple[float, float]:
        """Most seconds of CPU and on the wall."""
        cpu_s = self.cpu_s + self.cpu_s_per_megabyte * size_bytes / _MEGABYTE
        return cpu_s, self.wall_factor * cpu_s


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """What every worker of a pool starts with."""

    instructions: Instructions
    memory_bytes: int
    isolated: bool = True
    required: bool = False
    """Whether a worker that is not cut off completely may not be handed any file."""


def worker_memory_bytes(most_file_bytes: int, workers: int) -> int:
    """Most address space of one worker: enough for the largest file, and no more than half the machine for all."""
    wanted = _BASE_MEMORY_BYTES + _MEMORY_PER_FILE_BYTE * most_file_bytes
    return max(_LEAST_MEMORY_BYTES, min(wanted, machine_memory_bytes() // 2 // workers))


def worker_environment() -> dict[str, str]:
    """All that a worker knows of the server's environment: where Python is, and no more."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    for name in _KEPT_PATHS:
        entries = [entry for entry in os.environ.get(name, "").split(os.pathsep) if os.path.isabs(entry)]
        if entries:
            kept[name] = os.pathsep.join(entries)
    # Python would look for it by HOME.
    return {**kept, "PYTHONUSERBASE": site.getuserbase(), "LC_ALL": "C.UTF-8"}


class WorkerProcess:
    """One worker process, the socket that files go through and the pipe that answers come through."""

    def __init__(self, setup: WorkerSetup) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._input = ours
            self._input.settimeout(_START_DEADLINE_S)
            self._received = bytearray()
            try:
                self._process = subprocess.Popen(  # noqa: S603 the interpreter that runs this
                    # -P: no module comes from the current directory.
                    [sys.executable, "-P", "-m", _MODULE],
                    stdin=theirs.fileno(),
                    stdout=subprocess.PIPE,
                    # Libraries complain there about broken files, in words that may hold what is in them.
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=worker_environment(),
                    # A terminal's Ctrl-C is for the server, which then ends its workers itself.
                    start_new_session=True,
                )
            except OSError as error:
                ours.close()
                raise NotStarted("the extractor could not be started") from error
        assert self._process.stdout is not None
        self._output = self._process.stdout.fileno()
        # The clock of another process, as clock_getcpuclockid(3) computes it.
        self._cpu_clock = (~self._process.pid << 3) | 2
        try:
            self.isolation = self._greet(setup)
        except (Lost, UnusableFrame, TypeError) as error:
            self.kill()
            raise NotStarted("the extractor could not be started") from error
        if setup.required and not self.isolation.is_complete:
            self.kill()
            raise NotStarted(f"the extractor could not be isolated; missing: {self.isolation.missing}")

    def _greet(self, setup: WorkerSetup) -> Isolation:
        self._send(
            {
                "instructions": setup.instructions.as_json(),
                "memory_bytes": setup.memory_bytes,
                "isolated": setup.isolated,
            }
        )
        until = time.monotonic() + _START_DEADLINE_S

        def check() -> None:
            if time.monotonic() > until:
                raise Lost("the extractor did not start in time")

        return Isolation(**parsed(read_frame(lambda size: self._read(size, check), _LONGEST_GREETING)))

    def hand_over(self, wanted: Wanted, fd: int) -> None:
        """Have an open file prepared after those handed over before; raises `Lost` when the process is gone."""
        self._send(list(wanted), fd)

    def outcomes(self, asked: Asked, patience: Patience, on_slow: Callable[[], None]) -> Iterator[tuple[Outcome, int]]:
        """What becomes of the oldest file handed over, each with the bytes it came in; `Finished` is the last.

        Raises `Lost` when the process ends, the time is up, or an answer cannot be one.
        """
        watch = _Watch(self._cpu_s, patience, asked.size_bytes, on_slow)
        while True:
            try:
                body = read_frame(lambda size: self._read(size, watch.check), asked.max_frame_bytes)
                outcome = asked.outcome(body)
            except (UnusableFrame, Untrustworthy) as error:
                raise Lost("the extractor gave an answer that cannot be right") from error
            paused_at = time.monotonic()
            yield outcome, len(body)
            watch.forgive(time.monotonic() - paused_at)
            if isinstance(outcome, Finished):
                return

    def interrupt(self) -> None:
        """End the process from another thread than the one that listens to it."""
        self._process.kill()

    def kill(self) -> None:
        """End the process at once; it holds nothing that could be lost."""
        self._process.kill()
        self._process.wait()
        self._input.close()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _send(self, message: Any, fd: int | None = None) -> None:
        data = framed(message)
        try:
            sent = socket.send_fds(self._input, [data], [] if fd is None else [fd])
            self._input.sendall(data[sent:])
        except OSError as error:
            raise Lost("the extractor ended") from error

    def _cpu_s(self) -> float:
        with suppress(OSError):
            return time.clock_gettime(self._cpu_clock)
        return 0.0

    def _read(self, size: int, check: Callable[[], None]) -> bytes:
        while len(self._received) < size:
            try:
                ready, _, _ = select.select([self._output], [], [], _GLANCE_S)
                # Also when there is something: a worker must not gain time by sending a little of it again and again.
                check()
                if not ready:
                    continue
                part = os.read(self._output, _READ_BYTES)
            except (OSError, ValueError) as error:
                raise Lost("the extractor ended") from error
            if not part:
                raise Lost("the extractor crashed on this file")
            self._received += part
        data = bytes(self._received[:size])
        del self._received[:size]
        return data


class _Watch:
    """The time one file takes."""

    def __init__(
        self, cpu_s: Callable[[], float], patience: Patience, size_bytes: int, on_slow: Callable[[], None]
    ) -> None:
        self._cpu_s = cpu_s
        self._patience = patience
        self._most_cpu_s, self._most_wall_s = patience.limits(size_bytes)
        self._on_slow: Callable[[], None] | None = on_slow
        self._began_at = time.monotonic()
        self._began_cpu_s = cpu_s()
        self._next_look_s = _GLANCE_S / 2

    def forgive(self, seconds: float) -> None:
        """Time that the server took for itself."""
        self._began_at += seconds

    def check(self) -> None:
        """Say once that the file is slow; raise `Lost` when its time is up."""
        wall_s = time.monotonic() - self._began_at
        if wall_s < self._next_look_s:
            return
        self._next_look_s = wall_s + _GLANCE_S / 2
        cpu_s = self._cpu_s() - self._began_cpu_s
        if self._on_slow and (cpu_s >= self._patience.slow_cpu_s or wall_s >= self._patience.slow_wall_s):
            self._on_slow()
            self._on_slow = None
        for taken, most, of in ((cpu_s, self._most_cpu_s, " of CPU time"), (wall_s, self._most_wall_s, "")):
            if taken > most:
                raise Lost(f"extracting took longer than {most:.3g} seconds{of}")
