"""How indexing goes, in lines for people: which index it is, how far it is, and what could not be indexed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from armarium.capabilities.corpus.commands.progress.output_thread import Outlet
from armarium.capabilities.corpus.commands.progress.rates import Clock, Paces
from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexLoaded, IndexProgress
from armarium.command_line.output import printable, say

_INDEX_FILES = "meta.sqlite + vectors_text.hnsw + vectors_code.hnsw"
_PLAIN_PACE_S = 1.0


def progress_line(now: IndexProgress) -> str:
    """The line of the contract."""
    return (
        f"Progress: scanned={now.scanned} indexed={now.indexed} skipped={now.skipped} deleted={now.deleted}"
        f" reps={now.representations} chunks={now.chunks_total} embedded={now.embedded_ok} errors={now.errors}"
    )


class Lines(Protocol):
    """Where lines go."""

    def line(self, text: str = "") -> None: ...

    def close(self) -> None: ...


class Report(Protocol):
    """Takes the news, in the order it comes."""

    def index_loaded(self, news: IndexLoaded) -> None: ...

    def progress(self, now: IndexProgress) -> None: ...

    def file_failed(self, news: FileFailed) -> None: ...

    def embedding_paused(self, news: EmbeddingPaused) -> None: ...

    def close(self) -> None: ...


class PlainReport:
    """Lines on standard output, at most one of progress in a second, and always the last."""

    def __init__(self, clock: Clock = time.monotonic, out: Lines | None = None) -> None:
        self._out = out or Outlet()
        self._clock = clock
        self._paces = Paces(clock)
        self._told_at = float("-inf")
        self._introduced = False

    def index_loaded(self, news: IndexLoaded) -> None:
        self.introduce(news.state_dir, news.mode)

    def introduce(self, state_dir: str, mode: str) -> None:
        """Say once which index this is about."""
        if not self._introduced:
            self._introduced = True
            self._out.line(f"Index: {state_dir}  ({_INDEX_FILES})")
            self._out.line(f"Mode: {mode}")

    def tell(self, lines: Iterable[str]) -> None:
        """Say something else, between an empty line and another."""
        for line in ("", *lines, ""):
            self._out.line(line)

    def progress(self, now: IndexProgress) -> None:
        self._paces.mark(now)
        if not now.running or self._clock() - self._told_at >= _PLAIN_PACE_S:
            self._told_at = self._clock()
            self._out.line(progress_line(now) + self._paces.fields(now))

    def file_failed(self, news: FileFailed) -> None:
        say(f"not indexed: {printable(news.rel_path)}: {news.code}: {printable(news.message)}")

    def embedding_paused(self, news: EmbeddingPaused) -> None:
        say(f"embedding waits: {news.code}: {printable(news.message)}")

    def close(self) -> None:
        self._out.close()
