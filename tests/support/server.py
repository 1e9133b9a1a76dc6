"""A server process: the installed command, as an operator runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from support.waiting import wait_until

START_DEADLINE_S = 60.0
STOP_DEADLINE_S = 30.0

LogLine = dict[str, Any]


@dataclass(slots=True)
class Growth:
    """Filled in when the block that measures it ends."""

    bytes: int = -1


def installed_command(name: str) -> str:
    """A command of ours, from the environment the tests run in."""
    return str(Path(sys.executable).with_name(name))


class ServerProcess:
    """One running server. Its log is read as it is written; leaving the block stops it and expects exit code 0."""

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str] | None = None) -> None:
        self.command = [*command]
        self.log: list[LogLine] = []
        self.other_output: list[str] = []
        """Lines on standard error that are not JSON."""
        self._log_changed = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        self._reader = threading.Thread(target=self._read_log, name="server-log", daemon=True)
        self._reader.start()
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    @classmethod
    def mcp_filesystem(cls, directory: Path, config: Mapping[str, Any], **options: Any) -> Self:
        """`mcp-filesystem` with this configuration, written into the directory, on a free port."""
        file = write_config(directory, config)
        return cls([installed_command("mcp-filesystem"), "--config", str(file), "--port", "0"], **options)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is None:
            self.stop()
        else:
            self.kill()

    def stop(self, *, expected_code: int | None = 0) -> int:
        """Ask the server to end and wait until it has; None accepts any exit code."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
        try:
            code = self._process.wait(STOP_DEADLINE_S)
        finally:
            self.kill()
        assert expected_code in (None, code), f"exit code {code}; said: {self.said()[-2000:]}"
        return code

    def kill(self) -> None:
        """End the process, if it still runs, and collect what is left of its output."""
        self._process.kill()
        self._process.wait(STOP_DEADLINE_S)
        self._reader.join(STOP_DEADLINE_S)
        if self._process.stderr is not None:
            self._process.stderr.close()

    def said(self) -> str:
        """Everything on standard error so far."""
        with self._log_changed:
            return "\n".join([*(json.dumps(line) for line in self.log), *self.other_output])

    def wait_for_log(self, wanted: Callable[[LogLine], bool], *, deadline_s: float = 60.0) -> LogLine:
        """The first log line that is wanted, now or as soon as it is written."""
        until = time.monotonic() + deadline_s
        seen = 0
        with self._log_changed:
            while True:
                for line in self.log[seen:]:
                    if wanted(line):
                        return line
                seen = len(self.log)
                left = until - time.monotonic()
                if left <= 0 or self._ended:
                    output = "\n".join(self.other_output)
                    raise AssertionError(f"no such log line; {seen} lines, other output: {output[-2000:]}")
                self._log_changed.wait(left)

    def _wait_until_ready(self) -> None:
        address: str = self.wait_for_log(_is_listening, deadline_s=START_DEADLINE_S)["address"]
        self.url = address.replace("//0.0.0.0:", "//127.0.0.1:")
        assert httpx.get(f"{self.url}/health", timeout=START_DEADLINE_S).status_code == 200

    @contextmanager
    def peak_memory(self) -> Generator[Growth]:
        """Measure the peak of the server's memory inside the block, above its value at the start."""
        # Writing 5 resets the peak.
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        before = self._memory("VmRSS")
        growth = Growth()
        yield growth
        growth.bytes = max(0, self._memory("VmHWM") - before)

    def memory(self) -> int:
        """The resident memory of the server."""
        return self._memory("VmRSS")

    def wait_for_memory(self, most_bytes: float, *, deadline_s: float) -> None:
        """Wait until the resident memory of the server is at most this."""
        wait_until(lambda: self.memory() <= most_bytes, what=f"at most {most_bytes:.0f} bytes", deadline_s=deadline_s)

    def _memory(self, field: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"the kernel does not report {field}")

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for text in self._process.stderr:
            with self._log_changed:
                try:
                    self.log.append(json.loads(text))
                except json.JSONDecodeError:
                    self.other_output.append(text.rstrip("\n"))
                self._log_changed.notify_all()
        with self._log_changed:
            self._ended = True
            self._log_changed.notify_all()


def write_config(directory: Path, config: Mapping[str, Any] | str) -> Path:
    """A configuration file with these settings, or with this very text."""
    file = directory / "config.yaml"
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(dict(config)))
    return file


def failed_start(directory: Path, config: Mapping[str, Any] | str, *options: str) -> subprocess.CompletedProcess[str]:
    """Start `mcp-filesystem` with a configuration that it must reject; it must exit by itself."""
    file = write_config(directory, config)
    command = [installed_command("mcp-filesystem"), "--config", str(file), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=START_DEADLINE_S, check=False)


def _is_listening(line: LogLine) -> bool:
    return "address" in line and line.get("msg") == "listening"
