"""Live progress at a terminal: a bar, counters, the rate and the remaining time."""

from __future__ import annotations

import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from armarium.capabilities.corpus.commands.progress.reports import PlainReport, progress_line
from armarium.capabilities.corpus.events import IndexProgress
from armarium.capabilities.corpus.ingest.rates import Clock

_BAR_WIDTH = 28


class LiveReport(PlainReport):
    """Prints the same lines as `PlainReport`, and a live display instead of repeated progress lines."""

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self._console = console or Console()
        super().__init__(clock, self._print)
        self._live: Live | None = None

    def progress(self, now: IndexProgress) -> None:
        if not now.running:
            self.close()
            self._print(progress_line(now))
            return
        self._reporter.record(now)
        if self._live is None:
            self._live = Live(console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        self._live.update(self._display(now))

    def _print(self, text: str, style: str = "") -> None:
        # `Text` instead of `str`, because a path may look like markup.
        self._console.print(Text(text, style), soft_wrap=True)

    def _note(self, text: str) -> None:
        self._print(text, "yellow")

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _display(self, now: IndexProgress) -> Group:
        """A bar with the rate, and the progress line of the contract below it, because one row would be too wide."""
        part = self._part(now)
        total = part.get("total")
        row = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=total or None, completed=part["done"], width=_BAR_WIDTH, pulse=not total)
        row.add_row("Embedding" if now.phase == "embed" else "Reading", bar, Text(self._rate(now).strip()))
        return Group(row, Text(progress_line(now), "dim"))
