"""Progress for a person at a terminal: a bar, counts, the pace, and how long it will take."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from armarium.capabilities.corpus.commands.progress.rates import Clock
from armarium.capabilities.corpus.commands.progress.reports import PlainReport, progress_line
from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexProgress
from armarium.command_line.output import printable

_BAR_WIDTH = 28


class _Screen:
    """Lines on the terminal, above what moves."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, text: str = "") -> None:
        # Text, not str: a path may look like markup.
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Everything was shown at once."""


class LiveReport(PlainReport):
    """The plain lines, with a moving display between the connection and the last line of progress."""

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self._console = console or Console()
        super().__init__(clock, _Screen(self._console))
        self._live: Live | None = None

    def progress(self, now: IndexProgress) -> None:
        if not now.running:
            self._stop()
            self._out.line(progress_line(now))
            return
        self._paces.mark(now)
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        self._live.update(self._display(now))

    def file_failed(self, news: FileFailed) -> None:
        self._note(f"not indexed: {news.rel_path}: {news.code}: {news.message}")

    def embedding_paused(self, news: EmbeddingPaused) -> None:
        self._note(f"embedding waits: {news.code}: {news.message}")

    def close(self) -> None:
        self._stop()
        super().close()

    def _note(self, text: str) -> None:
        self._console.print(Text(printable(text), "yellow"), soft_wrap=True)

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _display(self, now: IndexProgress) -> Group:
        """A bar with the pace, and below it the contract's line: one row of both would not fit most terminals."""
        done, total = self._paces.done_of(now)
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=total or None, completed=done, width=_BAR_WIDTH, pulse=not total)
        row.add_row("Embedding" if now.phase == "embed" else "Reading", bar, Text(self._paces.fields(now).strip()))
        return Group(row, Text(progress_line(now), "dim"))
