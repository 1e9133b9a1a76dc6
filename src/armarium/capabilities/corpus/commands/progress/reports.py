"""The progress of indexing as lines of text or as NDJSON events, fed by the events of the corpus."""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio

from armarium.capabilities.corpus.events import EmbeddingPaused, FileFailed, IndexingFailed, IndexLoaded, IndexProgress
from armarium.capabilities.corpus.ingest.rates import Clock, Part, ProgressReporter, duration
from armarium.command_line.output import leave_closed_pipe, printable, say
from armarium.foundation.errors import ArmariumError
from armarium.foundation.events import Events

if TYPE_CHECKING:
    from armarium.capabilities.corpus.commands.connection import ConnectionInfo

_INDEX_FILES = "meta.sqlite + vectors_text.hnsw + vectors_code.hnsw"
_SERVED_MODE = "incremental  (server-first; indexing in background)"
_MIN_INTERVAL_S = 1.0
_MAX_QUEUED_LINES = 10_000
_CLOSE_TIMEOUT_S = 2.0


def progress_line(now: IndexProgress) -> str:
    return (
        f"Progress: scanned={now.scanned} indexed={now.indexed} skipped={now.skipped} deleted={now.deleted}"
        f" reps={now.representations} chunks={now.chunks_total} embedded={now.embedded_ok} errors={now.errors}"
    )


def event_line(event: str, data: dict[str, Any], *, level: Literal["info", "warn", "error"] = "info") -> str:
    ts = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"ts": ts, "level": level, "event": event, "data": data}, ensure_ascii=False)


def fatal_line(error: ArmariumError) -> str:
    """The `fatal` event with the error that ended the command."""
    data = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return event_line("fatal", data | ({"hint": error.hint} if error.hint else {}), level="error")


class StdoutWriter:
    """Writes lines in a thread, so that a slow reader does not block the server. It drops lines if it must."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(_MAX_QUEUED_LINES)
        self._writer = threading.Thread(target=self._write, name="stdout", daemon=True)
        self._writer.start()

    def line(self, text: str) -> None:
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            return

    def close(self) -> None:
        """Write the queued lines, within a time limit."""
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._writer.join(_CLOSE_TIMEOUT_S)

    def _write(self) -> None:
        while (text := self._lines.get()) is not None:
            try:
                print(text, flush=self._lines.empty())
            except (BrokenPipeError, ValueError):
                leave_closed_pipe()
                return


class PlainReport:
    """Prints lines: at most one progress line per second, and always the last one."""

    def __init__(self, clock: Clock = time.monotonic, line: Callable[[str], None] | None = None) -> None:
        """`line` prints a line. By default, lines go to standard output."""
        self._writer = None
        if line is None:
            self._writer = StdoutWriter()
            line = self._writer.line
        self._line = line
        self._clock = clock
        self._reporter = ProgressReporter(clock)
        self._printed_at = float("-inf")
        self._header_printed = False

    def index_loaded(self, event: IndexLoaded) -> None:
        self.print_header(event.state_dir, event.mode)

    def connected(self, connection: ConnectionInfo, details: dict[str, Any]) -> None:
        """Print how to connect to the server, which now accepts connections."""
        # The header must come first, and a large index may load later than the server starts.
        self.print_header(details["state_dir"], _SERVED_MODE)
        self.print_block(connection.lines())

    def print_header(self, state_dir: str, mode: str) -> None:
        """Print the location and the mode of the index, once."""
        if not self._header_printed:
            self._header_printed = True
            self._line(f"Index: {state_dir}  ({_INDEX_FILES})")
            self._line(f"Mode: {mode}")

    def print_block(self, lines: Iterable[str]) -> None:
        for line in ("", *lines, ""):
            self._line(line)

    def progress(self, now: IndexProgress) -> None:
        self._reporter.record(now)
        if not now.running or self._clock() - self._printed_at >= _MIN_INTERVAL_S:
            self._printed_at = self._clock()
            self._line(progress_line(now) + self._rate(now))

    def _part(self, now: IndexProgress) -> Part:
        """What the current phase works on."""
        return self._reporter.report(now)["vectors" if now.phase == "embed" else "lexical"]

    def _rate(self, now: IndexProgress) -> str:
        """The rate and the remaining time as fields of a progress line; empty while unknown."""
        part = self._part(now)
        if not part["per_second"]:
            return ""
        left = f" left={duration(part['seconds_left'])}" if "seconds_left" in part else ""
        return f" {'chunks' if now.phase == 'embed' else 'files'}_per_s={part['per_second']:.1f}{left}"

    def file_failed(self, event: FileFailed) -> None:
        self._note(f"not indexed: {printable(event.rel_path)}: {event.code}: {printable(event.message)}")

    def embedding_paused(self, event: EmbeddingPaused) -> None:
        self._note(f"embedding paused: {event.code}: {printable(event.message)}")

    def _note(self, text: str) -> None:
        say(text)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class QuietReport(PlainReport):
    """Prints the connection, and paused embedding; nothing else about indexing."""

    def print_header(self, state_dir: str, mode: str) -> None:
        return

    def print_block(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(line)

    def progress(self, now: IndexProgress) -> None:
        return

    def file_failed(self, event: FileFailed) -> None:
        return


class JsonReport:
    """Writes NDJSON to standard output. `quiet` suppresses all events except `connection` and `fatal`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._out = StdoutWriter()
        self._quiet = quiet
        self.close = self._out.close

    def index_loaded(self, event: IndexLoaded) -> None:
        self._emit("index_loaded", asdict(event))

    def connected(self, connection: ConnectionInfo, details: dict[str, Any]) -> None:
        self._emit("server_started", {"url": connection.url} | details)
        self._out.line(event_line("connection", connection.event()))

    def progress(self, now: IndexProgress) -> None:
        counts = asdict(now)
        if now.phase != "embed":
            self._emit("scan_progress", counts)
        if now.phase != "scan":
            chosen = ("job_id", "running", "chunks_total", "embedded_ok", "errors")
            self._emit("embed_progress", {name: counts[name] for name in chosen})

    def file_failed(self, event: FileFailed) -> None:
        self._emit("file_error", asdict(event), level="warn")

    def embedding_paused(self, event: EmbeddingPaused) -> None:
        self._emit("embed_progress", {"paused": asdict(event)}, level="warn")

    def _emit(self, event: str, data: dict[str, Any], *, level: Literal["info", "warn"] = "info") -> None:
        if not self._quiet:
            self._out.line(event_line(event, data, level=level))


Report = JsonReport | PlainReport


def choose_report(*, as_json: bool, quiet: bool) -> Report:
    """The report on standard output: events, lines, or a live display at a terminal."""
    if as_json:
        return JsonReport(quiet=quiet)
    if quiet:
        return QuietReport()
    if not sys.stdout.isatty():
        return PlainReport()
    from armarium.capabilities.corpus.commands.progress.live import LiveReport

    return LiveReport()


def report_on_stderr() -> Report:
    """The report on standard error: a live display at a terminal, lines otherwise."""
    if not sys.stderr.isatty():
        return PlainReport(line=say)
    # Slow to import, and only needed at a terminal.
    from rich.console import Console

    from armarium.capabilities.corpus.commands.progress.live import LiveReport

    return LiveReport(Console(stderr=True))


class EventFeed:
    """Passes events to a report: immediately, or if it starts `paused`, after `begin`."""

    def __init__(self, events: Events, report: Report, *, paused: bool, on_failure: Callable[[], None]) -> None:
        self._buffer: list[Callable[[], None]] | None = [] if paused else None
        self._loaded = False
        self.failure: IndexingFailed | None = None
        """The event of failed indexing, if it failed."""
        self.idle = anyio.Event()
        """Set once the end of an indexing job was reported."""
        self.end = report.close
        self._handlers: dict[type, Callable[[Any], None]] = {
            IndexLoaded: report.index_loaded,
            IndexProgress: report.progress,
            FileFailed: report.file_failed,
            EmbeddingPaused: report.embedding_paused,
            IndexingFailed: lambda failure: on_failure(),
        }
        for kind in self._handlers:
            events.subscribe(kind, self._receive)

    def begin(self) -> None:
        """Report the buffered events, and all further events immediately."""
        buffered, self._buffer = self._buffer or [], None
        for report in buffered:
            report()

    async def _receive(self, event: object) -> None:
        match event:
            case IndexLoaded():
                self._loaded = True
            case IndexProgress() if not self._loaded:
                return  # progress follows the header, which needs the loaded index
            case IndexProgress(running=False):
                self.idle.set()
            case IndexingFailed():
                self.failure = event
            case _:
                pass
        report = partial(self._handlers[type(event)], event)
        if self._buffer is None:
            report()
        else:
            self._buffer.append(report)


def progress_on_stderr(events: Events) -> EventFeed:
    """Subscribe to the progress of indexing. If indexing fails, the server continues, because its other tools work."""
    stopped = partial(say, "indexing stopped; what is indexed stays searchable")
    return EventFeed(events, report_on_stderr(), paused=True, on_failure=stopped)
