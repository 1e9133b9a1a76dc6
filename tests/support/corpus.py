"""A directory served by `dir2mcp up --json` in its own process, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from support.server import installed_command

START_DEADLINE_S = 60.0
INDEX_DEADLINE_S = 100.0
STOP_DEADLINE_S = 20.0

Event = dict[str, Any]


class CorpusProcess:
    """One running `dir2mcp up`. Its events are read as they are written; leaving the block stops it."""

    def __init__(
        self, directory: Path, *flags: str, environ: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> None:
        """`within` is a command that runs the server, for example with limits."""
        self.directory = directory
        self.events: list[Event] = []
        self.log: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MISTRAL_", "DIR2MCP_"))}
        served = [installed_command("dir2mcp"), "up", "--dir", str(directory), "--json", "--non-interactive", "--trust"]
        self._process = subprocess.Popen(
            [*within, *served, *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **(environ or {})},
        )
        self._readers = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_log, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        try:
            connection = self.wait_for("connection", deadline_s=START_DEADLINE_S)["data"]
            self.url: str = connection["url"].removesuffix("/mcp")
            self.token = Path(connection["token_file"]).read_text().strip() if "token_file" in connection else None
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def state_dir(self) -> Path:
        return self.directory / ".dir2mcp"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self.stop() if failure is None else self.kill()

    def wait_for(
        self,
        event: str,
        fits: Callable[[dict[str, Any]], bool] = lambda data: True,
        *,
        deadline_s: float = INDEX_DEADLINE_S,
        since: int = 0,
    ) -> Event:
        """The first matching event, starting with the `since`-th. Fails when the process ends or the deadline
        passes."""
        end = time.monotonic() + deadline_s
        with self._changed:
            while True:
                for each in self.events[since:]:
                    if each["event"] == event and fits(each["data"]):
                        return each
                assert not self._ended, f"the server ended; it said {self.log[-5:]} and {self.events[-3:]}"
                assert self._changed.wait(end - time.monotonic()), f"no {event} in {deadline_s} s: {self.events[-3:]}"

    def wait_for_log(self, *texts: str, deadline_s: float = INDEX_DEADLINE_S) -> str:
        """The first log line that contains all texts. The log comes through a pipe, so it may arrive after a
        response."""
        end = time.monotonic() + deadline_s
        with self._changed:
            while True:
                for line in self.log:
                    if all(text in line for text in texts):
                        return line
                assert self._changed.wait(end - time.monotonic()), f"no log line with {texts}: {self.log[-5:]}"

    def wait_until_indexed(self, since: int = 0) -> dict[str, Any]:
        """The counters once everything is indexed and embedded."""
        return self.wait_for("scan_progress", lambda data: not data["running"], since=since)["data"]

    def stop(self) -> int:
        """Stop the server and wait until it has ended."""
        if self._process.poll() is None:
            os.kill(self.pid, signal.SIGTERM)
        try:
            code = self._process.wait(STOP_DEADLINE_S)
        finally:
            self.kill()
        assert code == 0, self.log[-5:]
        return code

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self._process.kill()
        self._process.wait(STOP_DEADLINE_S)
        for reader in self._readers:
            reader.join(STOP_DEADLINE_S)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            with self._changed:
                self.log.append(line)
                self._changed.notify_all()
