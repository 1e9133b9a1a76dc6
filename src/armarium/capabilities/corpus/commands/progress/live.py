"""Live progress at a terminal: a bar, counters, the rate and the remaining time."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from armarium.capabilities.corpus.commands.progress.rates import Clock
from armarium.capabilities.corpus.commands.progress.reports import PlainReport, progress_line
from armarium.capabilities.corpus.events import EmbeddingPaused, FileFailed, IndexProgress
from armarium.command_line.output import printable

_BAR_WIDTH = 28


class _ConsoleLines:
    """Writes lines to the terminal, above the live display."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def line(self, text: str = "") -> None:
        # `Text` instead of `str`, because a path may look like markup.
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines are not buffered."""


class LiveReport(PlainReport):
    """Prints the same lines as `PlainReport`, and a live display instead of repeated progress lines."""

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self._console = console or Console()
        super().__init__(clock, _ConsoleLines(self._console))
        self._live: Live | None = None

    def progress(self, now: IndexProgress) -> None:
        if not now.running:
            self._stop()
            self._out.line(progress_line(now))
            return
        self._rates.record(now)
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        self._live.update(self._display(now))

    def file_failed(self, event: FileFailed) -> None:
        self._note(f"not indexed: {event.rel_path}: {event.code}: {event.message}")

    def embedding_paused(self, event: EmbeddingPaused) -> None:
        self._note(f"embedding paused: {event.code}: {event.message}")

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
        """A bar with the rate, and the progress line of the contract below it, because one row would be too wide."""
        done, total = self._rates.done_and_total(now)
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=total or None, completed=done, width=_BAR_WIDTH, pulse=not total)
        row.add_row("Embedding" if now.phase == "embed" else "Reading", bar, Text(self._rates.fields(now).strip()))
        return Group(row, Text(progress_line(now), "dim"))
