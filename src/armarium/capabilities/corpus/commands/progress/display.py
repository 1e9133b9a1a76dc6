"""The progress of indexing on standard error, for commands that use standard output otherwise."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from armarium.capabilities.corpus.commands.progress.event_feed import EventFeed
from armarium.capabilities.corpus.commands.progress.reports import PlainReport, Report
from armarium.command_line.output import say
from armarium.foundation.events import Events


@dataclass(frozen=True, slots=True)
class ProgressOutput:
    """Receives progress from the start, and displays it from `begin` on."""

    feed: EventFeed
    report: Report

    def begin(self) -> None:
        """Display the progress received so far, and what follows."""
        self.feed.resume()

    def end(self) -> None:
        """Restore the terminal."""
        self.report.close()


class _StderrLines:
    """Writes lines to standard error."""

    def line(self, text: str = "") -> None:
        say(text)

    def close(self) -> None:
        """Do nothing: lines are not buffered."""


def progress_on_stderr(events: Events) -> ProgressOutput:
    """Subscribe to the progress of indexing. If indexing fails, the server continues, because its other tools work."""
    report = report_on_stderr()
    feed = EventFeed(
        events, report, paused=True, on_failure=lambda: say("indexing stopped; what is indexed stays searchable")
    )
    return ProgressOutput(feed, report)


def report_on_stderr() -> Report:
    """A live display at a terminal, lines otherwise."""
    if not sys.stderr.isatty():
        return PlainReport(out=_StderrLines())
    # Slow to import, and only needed at a terminal.
    from rich.console import Console

    from armarium.capabilities.corpus.commands.progress.live import LiveReport

    return LiveReport(Console(stderr=True))
