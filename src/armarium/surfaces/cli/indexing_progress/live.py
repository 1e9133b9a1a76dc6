"""Progress for a person at a terminal: a bar, counts, the pace, and how long it will take."""

from __future__ import annotations

import time
from collections import deque

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexProgress
from armarium.surfaces.cli.indexing_progress.reports import Clock, PlainReport, progress_line
from armarium.surfaces.cli.output import printable

_WINDOW_S = 15.0
_BAR_WIDTH = 28


class Pace:
    """How fast something gets done, over the last seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._marks: deque[tuple[float, int]] = deque()

    def mark(self, done: int) -> None:
        """So much is done by now; less than before means that something new began."""
        now = self._clock()
        if self._marks and done < self._marks[-1][1]:
            self._marks.clear()
        self._marks.append((now, done))
        while len(self._marks) > 2 and now - self._marks[0][0] > _WINDOW_S:
            self._marks.popleft()

    @property
    def per_second(self) -> float:
        """Things a second; 0 while nothing is known."""
        if len(self._marks) < 2:
            return 0.0
        (began, first), (ended, last) = self._marks[0], self._marks[-1]
        return (last - first) / (ended - began) if ended > began else 0.0

    def remaining_s(self, left: int) -> float | None:
        """How long what is left will take."""
        return left / self.per_second if self.per_second > 0 else None


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
        self._files, self._passages = Pace(clock), Pace(clock)

    def progress(self, now: IndexProgress) -> None:
        if not now.running:
            self._stop()
            self._out.line(progress_line(now))
            return
        self._files.mark(now.indexed + now.skipped)
        self._passages.mark(now.embedded_ok)
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

    def _display(self, now: IndexProgress) -> Table:
        embedding = now.phase == "embed"
        done, total = (now.embedded_ok, now.chunks_total) if embedding else (now.indexed + now.skipped, now.files_known)
        pace, unit = (self._passages, "passages/s") if embedding else (self._files, "files/s")
        facts = [f"{now.indexed} indexed", f"{now.skipped} unchanged", f"{now.embedded_ok}/{now.chunks_total} passages"]
        if now.errors:
            facts.append(f"{now.errors} failed")
        if pace.per_second > 0:
            facts.append(f"{pace.per_second:.0f} {unit}")
        remaining_s = pace.remaining_s(max(0, (total or 0) - done))
        if total and remaining_s is not None:
            facts.append(f"{_spoken(remaining_s)} left")
        table = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=total or None, completed=done, width=_BAR_WIDTH, pulse=not total)
        table.add_row("Embedding" if embedding else "Reading", bar, Text("  ".join(facts), "dim"))
        return table


def _spoken(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
