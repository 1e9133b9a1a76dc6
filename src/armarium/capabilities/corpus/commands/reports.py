"""The output of `up` and `reindex` while they run, as text or as NDJSON events."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from armarium.capabilities.corpus.commands.client_config import ConnectionInfo
from armarium.capabilities.corpus.commands.output_mode import OutputMode
from armarium.capabilities.corpus.commands.progress.output_thread import StdoutWriter
from armarium.capabilities.corpus.commands.progress.reports import PlainReport
from armarium.capabilities.corpus.events import EmbeddingPaused, FileFailed, IndexLoaded, IndexProgress
from armarium.foundation.errors import ArmariumError

_SERVED_MODE = "incremental  (server-first; indexing in background)"


def event_line(event: str, data: dict[str, Any], *, level: Literal["info", "warn", "error"] = "info") -> str:
    """An event as a line of NDJSON."""
    ts = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"ts": ts, "level": level, "event": event, "data": data}, ensure_ascii=False)


def fatal_line(error: ArmariumError) -> str:
    """The `fatal` event with the error that ended the command."""
    data = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return event_line("fatal", data | ({"hint": error.hint} if error.hint else {}), level="error")


class JsonReport:
    """Writes NDJSON to standard output. `quiet` suppresses all events except `connection` and `fatal`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._out = StdoutWriter()
        self._quiet = quiet

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

    def close(self) -> None:
        self._out.close()

    def _emit(self, event: str, data: dict[str, Any], *, level: Literal["info", "warn"] = "info") -> None:
        if not self._quiet:
            self._out.line(event_line(event, data, level=level))


class QuietReport(PlainReport):
    """Prints the connection, and paused embedding; nothing else about indexing."""

    def print_header(self, state_dir: str, mode: str) -> None:
        return

    def print_block(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._out.line(line)

    def progress(self, now: IndexProgress) -> None:
        return

    def file_failed(self, event: FileFailed) -> None:
        return


def report_connection(report: JsonReport | PlainReport, connection: ConnectionInfo, details: dict[str, Any]) -> None:
    """Report how to connect to the server, which now accepts connections."""
    if isinstance(report, JsonReport):
        report.connected(connection, details)
        return
    # The header must come first, and a large index may load later than the server starts.
    report.print_header(details["state_dir"], _SERVED_MODE)
    report.print_block(connection.lines())


def choose_report(output: OutputMode) -> JsonReport | PlainReport:
    """The report for the output mode: events, lines, or a live display at a terminal."""
    if output.as_json:
        return JsonReport(quiet=output.quiet)
    if output.quiet:
        return QuietReport()
    if not sys.stdout.isatty():
        return PlainReport()
    from armarium.capabilities.corpus.commands.progress.live import LiveReport

    return LiveReport()
