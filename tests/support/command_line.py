"""Runs a command to its end, or starts it and reads its output while it runs."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

import pytest

from support.server import installed_command

DEADLINE_S = 60.0
Run = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.stdout)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.stdout.splitlines()]


class Command:
    """A running command. The lines of both outputs can be read as they are written."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout
        assert process.stderr
        self.stdout = _Lines(process.stdout)
        self.stderr = _Lines(process.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_S)
        for lines in (self.stdout, self.stderr):
            lines.close()
        if self.process.stdin:
            self.process.stdin.close()

    def interrupt(self, *, deadline_s: float = DEADLINE_S) -> int:
        """Send SIGINT, as Ctrl-C does, and wait for the end."""
        os.kill(self.process.pid, signal.SIGINT)
        return self.process.wait(deadline_s)

    def say(self, message: dict[str, Any]) -> None:
        """Write one line of JSON to standard input."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


class _Lines:
    """One output, read in a thread so that waiting for a line has a timeout."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._seen: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def next(self) -> str:
        """The next line; fails if the output ends first."""
        line = self._lines.get(timeout=DEADLINE_S)
        assert line is not None, f"the output ended after {self._seen}"
        self._seen.append(line)
        return line

    def until(self, part: str) -> list[str]:
        """The lines up to and including the first that contains the text."""
        lines = [self.next()]
        while part not in lines[-1]:
            lines.append(self.next())
        return lines

    def close(self) -> None:
        self._reader.join(DEADLINE_S)
        self._stream.close()


@contextmanager
def _restored_logging() -> Generator[None]:
    """Restore the root logger: commands may let it write to the captured stream of one test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class InThisProcess:
    """Runs command lines in this process, which is faster; pytest captures the streams."""

    def __init__(self, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._run = run
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str | Path, **environ: str) -> Outcome:
        with self._monkeypatch.context() as patched, _restored_logging():
            for name, value in environ.items():
                patched.setenv(name, value)
            code = self._run([str(argument) for argument in arguments])
        captured = self._capsys.readouterr()
        assert "Traceback" not in captured.err
        return Outcome(code, captured.out, captured.err)


class CommandLine:
    """A command with its working directory and environment."""

    def __init__(self, name: str, cwd: Path, environ: dict[str, str]) -> None:
        self._command = installed_command(name)
        self.cwd = cwd
        self.environ = environ

    def __call__(self, *arguments: str | Path, input: str = "", **environ: str) -> Outcome:
        """Run the command to its end."""
        done = subprocess.run(
            [self._command, *map(str, arguments)],
            cwd=self.cwd,
            env=self.environ | environ,
            input=input,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return Outcome(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str | Path) -> Command:
        """Start the command and return while it runs."""
        return Command(
            subprocess.Popen(
                [self._command, *map(str, arguments)],
                cwd=self.cwd,
                env=self.environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
