"""The progress of indexing as lines of text."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from armarium.capabilities.corpus.commands.progress.output_thread import StdoutWriter
from armarium.capabilities.corpus.commands.progress.rates import Clock, ProgressRates
from armarium.capabilities.corpus.events import EmbeddingPaused, FileFailed, IndexLoaded, IndexProgress
from armarium.command_line.output import printable, say

_INDEX_FILES = "meta.sqlite + vectors_text.hnsw + vectors_code.hnsw"
_MIN_INTERVAL_S = 1.0


def progress_line(now: IndexProgress) -> str:
    """The progress line of the contract."""
    return (
        f"Progress: scanned={now.scanned} indexed={now.indexed} skipped={now.skipped} deleted={now.deleted}"
        f" reps={now.representations} chunks={now.chunks_total} embedded={now.embedded_ok} errors={now.errors}"
    )


class LineOutput(Protocol):
    """Writes lines of text."""

    def line(self, text: str = "") -> None: ...

    def close(self) -> None: ...


class Report(Protocol):
    """Receives the events of the corpus in order."""

    def index_loaded(self, event: IndexLoaded) -> None: ...

    def progress(self, now: IndexProgress) -> None: ...

    def file_failed(self, event: FileFailed) -> None: ...

    def embedding_paused(self, event: EmbeddingPaused) -> None: ...

    def close(self) -> None: ...


class PlainReport:
    """Prints lines: at most one progress line per second, and always the last one."""

    def __init__(self, clock: Clock = time.monotonic, out: LineOutput | None = None) -> None:
        self._out = out or StdoutWriter()
        self._clock = clock
        self._rates = ProgressRates(clock)
        self._printed_at = float("-inf")
        self._header_printed = False

    def index_loaded(self, event: IndexLoaded) -> None:
        self.print_header(event.state_dir, event.mode)

    def print_header(self, state_dir: str, mode: str) -> None:
        """Print the location and the mode of the index, once."""
        if not self._header_printed:
            self._header_printed = True
            self._out.line(f"Index: {state_dir}  ({_INDEX_FILES})")
            self._out.line(f"Mode: {mode}")

    def print_block(self, lines: Iterable[str]) -> None:
        """Print lines between empty lines."""
        for line in ("", *lines, ""):
            self._out.line(line)

    def progress(self, now: IndexProgress) -> None:
        self._rates.record(now)
        if not now.running or self._clock() - self._printed_at >= _MIN_INTERVAL_S:
            self._printed_at = self._clock()
            self._out.line(progress_line(now) + self._rates.fields(now))

    def file_failed(self, event: FileFailed) -> None:
        say(f"not indexed: {printable(event.rel_path)}: {event.code}: {printable(event.message)}")

    def embedding_paused(self, event: EmbeddingPaused) -> None:
        say(f"embedding paused: {event.code}: {printable(event.message)}")

    def close(self) -> None:
        self._out.close()
