"""How indexing goes, on standard error: for commands whose standard output is for other things."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from armarium.capabilities.corpus.commands.progress.event_feed import Feed
from armarium.capabilities.corpus.commands.progress.reports import PlainReport, Report
from armarium.command_line.output import say
from armarium.foundation.events import Events


@dataclass(frozen=True, slots=True)
class Watching:
    """Progress that is heard from the start and shown once the person knows how to connect."""

    feed: Feed
    report: Report

    def begin(self) -> None:
        """Show it from now on."""
        self.feed.open()

    def end(self) -> None:
        """Leave the terminal as it was."""
        self.report.close()


class _Talk:
    """Lines on standard error."""

    def line(self, text: str = "") -> None:
        say(text)

    def close(self) -> None:
        """Everything was said at once."""


def progress_on_stderr(events: Events) -> Watching:
    """Hear the news of the corpus. That indexing stops does not stop the server: the other tools still work."""
    report = report_on_stderr()
    feed = Feed(events, report, waits=True, on_failure=lambda: say("indexing stopped; what is indexed can be asked"))
    return Watching(feed, report)


def report_on_stderr() -> Report:
    """A moving display at a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        return PlainReport(out=_Talk())
    # Only a terminal needs them, and they take a while to import.
    from rich.console import Console

    from armarium.capabilities.corpus.commands.progress.live import LiveReport

    return LiveReport(Console(stderr=True))
