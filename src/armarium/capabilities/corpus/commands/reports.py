"""What `up` and `reindex` tell while they run: lines for people, NDJSON events for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal

from armarium.capabilities.corpus.commands.client_config import Connection
from armarium.capabilities.corpus.commands.output_mode import Manner
from armarium.capabilities.corpus.commands.progress.output_thread import Outlet
from armarium.capabilities.corpus.commands.progress.reports import PlainReport
from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexLoaded, IndexProgress
from armarium.foundation.errors import ArmariumError

_SERVED_MODE = "incremental  (server-first; indexing in background)"


def event_line(event: str, data: dict[str, Any], *, level: Literal["info", "warn", "error"] = "info") -> str:
    """One NDJSON event."""
    ts = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"ts": ts, "level": level, "event": event, "data": data}, ensure_ascii=False)


def fatal_line(error: ArmariumError) -> str:
    """The event that says why the command ended."""
    data = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return event_line("fatal", data | ({"hint": error.hint} if error.hint else {}), level="error")


class JsonReport:
    """NDJSON on standard output; `quiet` leaves the connection and what is fatal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._out = Outlet()
        self._quiet = quiet

    def index_loaded(self, news: IndexLoaded) -> None:
        self._say("index_loaded", asdict(news))

    def connected(self, connection: Connection, facts: dict[str, Any]) -> None:
        self._say("server_started", {"url": connection.url} | facts)
        self._out.line(event_line("connection", connection.event()))

    def progress(self, now: IndexProgress) -> None:
        counts = asdict(now)
        if now.phase != "embed":
            self._say("scan_progress", counts)
        if now.phase != "scan":
            chosen = ("job_id", "running", "chunks_total", "embedded_ok", "errors")
            self._say("embed_progress", {name: counts[name] for name in chosen})

    def file_failed(self, news: FileFailed) -> None:
        self._say("file_error", asdict(news), level="warn")

    def embedding_paused(self, news: EmbeddingPaused) -> None:
        self._say("embed_progress", {"paused": asdict(news)}, level="warn")

    def close(self) -> None:
        self._out.close()

    def _say(self, event: str, data: dict[str, Any], *, level: Literal["info", "warn"] = "info") -> None:
        if not self._quiet:
            self._out.line(event_line(event, data, level=level))


class QuietReport(PlainReport):
    """Nothing about indexing but that it cannot go on for now."""

    def introduce(self, state_dir: str, mode: str) -> None:
        return

    def tell(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._out.line(line)

    def progress(self, now: IndexProgress) -> None:
        return

    def file_failed(self, news: FileFailed) -> None:
        return


def tell_connection(report: JsonReport | PlainReport, connection: Connection, facts: dict[str, Any]) -> None:
    """The server answers: say how to reach it."""
    if isinstance(report, JsonReport):
        report.connected(connection, facts)
        return
    # A large index may take longer to load than the server to start, which waits for nothing.
    report.introduce(facts["state_dir"], _SERVED_MODE)
    report.tell(connection.lines())


def choose_report(manner: Manner) -> JsonReport | PlainReport:
    """Events for programs; for people lines, or on a terminal a moving display."""
    if manner.as_json:
        return JsonReport(quiet=manner.quiet)
    if manner.quiet:
        return QuietReport()
    if not sys.stdout.isatty():
        return PlainReport()
    from armarium.capabilities.corpus.commands.progress.live import LiveReport

    return LiveReport()
