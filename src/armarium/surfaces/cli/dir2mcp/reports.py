"""What `up` and `reindex` tell while they run: lines for people, NDJSON events for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexingFailed, IndexLoaded, IndexProgress
from armarium.foundation.errors import ArmariumError
from armarium.surfaces.cli.dir2mcp.connection import Connection
from armarium.surfaces.cli.dir2mcp.manner import Manner
from armarium.surfaces.cli.dir2mcp.outlet import Outlet
from armarium.surfaces.cli.output import printable, say

_INDEX_FILES = "meta.sqlite + vectors_text.hnsw + vectors_code.hnsw"
_PLAIN_PACE_S = 1.0

Clock = Callable[[], float]


def progress_line(now: IndexProgress) -> str:
    """The line of the contract."""
    return (
        f"Progress: scanned={now.scanned} indexed={now.indexed} skipped={now.skipped} deleted={now.deleted}"
        f" reps={now.representations} chunks={now.chunks_total} embedded={now.embedded_ok} errors={now.errors}"
    )


def event_line(event: str, data: dict[str, Any], *, level: Literal["info", "warn", "error"] = "info") -> str:
    """One NDJSON event."""
    ts = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"ts": ts, "level": level, "event": event, "data": data}, ensure_ascii=False)


def fatal_line(error: ArmariumError) -> str:
    """The event that says why the command ended."""
    data = {"code": error.code, "message": error.message, "retryable": error.retryable}
    return event_line("fatal", data | ({"hint": error.hint} if error.hint else {}), level="error")


class Lines(Protocol):
    """Where lines go."""

    def line(self, text: str = "") -> None: ...

    def close(self) -> None: ...


class Report(Protocol):
    """Takes the news, in the order of the contract: the index, the connection, then how indexing goes."""

    def index_loaded(self, news: IndexLoaded) -> None: ...

    def connected(self, connection: Connection, facts: dict[str, Any]) -> None: ...

    def progress(self, now: IndexProgress) -> None: ...

    def file_failed(self, news: FileFailed) -> None: ...

    def embedding_paused(self, news: EmbeddingPaused) -> None: ...

    def indexing_failed(self, news: IndexingFailed) -> None: ...

    def close(self) -> None: ...


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

    def indexing_failed(self, news: IndexingFailed) -> None:
        """The command that ends because of it says so."""

    def close(self) -> None:
        self._out.close()

    def _say(self, event: str, data: dict[str, Any], *, level: Literal["info", "warn"] = "info") -> None:
        if not self._quiet:
            self._out.line(event_line(event, data, level=level))


class PlainReport:
    """Lines on standard output, at most one of progress in a second, and always the last."""

    def __init__(self, clock: Clock = time.monotonic, out: Lines | None = None) -> None:
        self._out = out or Outlet()
        self._clock = clock
        self._told_at = float("-inf")
        self._introduced = False

    def index_loaded(self, news: IndexLoaded) -> None:
        self._introduce(news.state_dir, news.mode)

    def connected(self, connection: Connection, facts: dict[str, Any]) -> None:
        # A large index may take longer to load than the server to start, which waits for nothing.
        self._introduce(facts["state_dir"], "incremental  (server-first; indexing in background)")
        for line in ("", *connection.lines(), ""):
            self._out.line(line)

    def progress(self, now: IndexProgress) -> None:
        if not now.running or self._clock() - self._told_at >= _PLAIN_PACE_S:
            self._told_at = self._clock()
            self._out.line(progress_line(now))

    def file_failed(self, news: FileFailed) -> None:
        say(f"not indexed: {printable(news.rel_path)}: {news.code}: {printable(news.message)}")

    def embedding_paused(self, news: EmbeddingPaused) -> None:
        say(f"embedding waits: {news.code}: {printable(news.message)}")

    def indexing_failed(self, news: IndexingFailed) -> None:
        """The command that ends because of it says so."""

    def close(self) -> None:
        self._out.close()

    def _introduce(self, state_dir: str, mode: str) -> None:
        if not self._introduced:
            self._introduced = True
            self._out.line(f"Index: {state_dir}  ({_INDEX_FILES})")
            self._out.line(f"Mode: {mode}")


class QuietReport(PlainReport):
    """Only how to connect."""

    def index_loaded(self, news: IndexLoaded) -> None:
        return

    def connected(self, connection: Connection, facts: dict[str, Any]) -> None:
        for line in connection.lines():
            self._out.line(line)

    def progress(self, now: IndexProgress) -> None:
        return

    def file_failed(self, news: FileFailed) -> None:
        return


def choose_report(manner: Manner) -> Report:
    """Events for programs; for people lines, or on a terminal a moving display."""
    if manner.as_json:
        return JsonReport(quiet=manner.quiet)
    if manner.quiet:
        return QuietReport()
    if not sys.stdout.isatty():
        return PlainReport()
    from armarium.surfaces.cli.dir2mcp.live import LiveReport

    return LiveReport()
