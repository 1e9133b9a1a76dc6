"""The progress of indexing: how often it is printed, in which order, and with which rates."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from armarium.capabilities.corpus.commands.progress.live import LiveReport
from armarium.capabilities.corpus.commands.progress.reports import (
    EventFeed,
    PlainReport,
    progress_line,
    progress_on_stderr,
)
from armarium.capabilities.corpus.events import FileFailed, IndexingFailed
from armarium.capabilities.corpus.ingest.rates import Rate, duration
from armarium.foundation.events import Events
from support.indexing_events import LOADED, NOW, Clock


def test_the_progress_line_is_the_contracts() -> None:
    expected = "Progress: scanned=412 indexed=55 skipped=340 deleted=2 reps=88 chunks=1480 embedded=920 errors=1"
    assert progress_line(NOW) == expected


def test_plain_progress_comes_at_most_once_a_second_and_always_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    report = PlainReport(clock)
    for scanned, seconds in ((1, 0.0), (2, 0.5), (3, 0.4), (4, 0.2), (5, 0.1)):
        clock.now += seconds
        report.progress(replace(NOW, scanned=scanned, running=scanned != 5))
    report.close()
    printed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["scanned=1", "scanned=4", "scanned=5"]


def test_plain_progress_has_the_rate_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    report = PlainReport(clock)
    for scanned in (100, 200):
        report.progress(replace(NOW, phase="scan", indexed=scanned, skipped=0, files_known=1000))
        clock.now += 10
    for embedded in (0, 5):
        report.progress(replace(NOW, phase="embed", embedded_ok=embedded, chunks_total=1000))
        clock.now += 10
    report.progress(replace(NOW, running=False, phase="idle"))
    report.close()
    printed = [line.partition(" errors=1")[2] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["", " files_per_s=10.0 left=1min20s", "", " chunks_per_s=0.5 left=33min10s", ""]


def test_files_that_failed_are_done(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    report = PlainReport(clock)
    for indexed, failed in ((0, 0), (60, 40)):
        report.progress(replace(NOW, phase="scan", indexed=indexed, skipped=0, errors=failed, files_known=1000))
        clock.now += 10
    report.close()
    assert capsys.readouterr().out.splitlines()[-1].endswith(" errors=40 files_per_s=10.0 left=1min30s")


@pytest.mark.parametrize(("seconds", "printed"), [(0.2, "0s"), (46, "46s"), (200, "3min20s"), (3900, "1h05min")])
def test_a_time_is_short_to_read(seconds: float, printed: str) -> None:
    assert duration(seconds) == printed


def test_a_failed_file_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report = PlainReport()
    report.file_failed(FileFailed("evil\x1b[2J\n.md", "EXTRACT_FAILED", "bad\rthing"))
    report.close()
    assert capsys.readouterr().err == "not indexed: evil\\x1b[2J\\n.md: EXTRACT_FAILED: bad\\rthing\n"


def test_the_rate_is_that_of_the_last_seconds_and_restarts_with_a_new_job() -> None:
    clock = Clock()
    rate = Rate(clock)
    assert rate.per_second == 0.0
    for done in (0, 1000, 1010, 1020, 1030):
        rate.record(done)
        clock.now += 10
    assert rate.per_second == pytest.approx(1.0)
    rate.record(3)
    assert rate.per_second == 0.0


def test_a_terminal_shows_counts_the_rate_and_the_time_left() -> None:
    clock, screen = Clock(), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160, color_system=None)
    report = LiveReport(console, clock)
    report.print_header("state", "incremental")
    report.print_block(["[bold]connect here"])
    for embedded in (920, 1020):
        report.progress(replace(NOW, phase="embed", embedded_ok=embedded))
        clock.now += 10
    report.file_failed(FileFailed("[red]a.md", "EXTRACT_FAILED", "damaged"))
    report.progress(replace(NOW, running=False, phase="idle"))
    report.close()
    shown = screen.getvalue()
    assert "not indexed: [red]a.md: EXTRACT_FAILED: damaged" in shown
    assert progress_line(replace(NOW, embedded_ok=1020)) in shown
    assert "chunks_per_s=10.0 left=46s" in shown
    assert shown.startswith("Index: state  (")
    assert "[bold]connect here" in shown
    assert shown.splitlines()[-1].endswith(progress_line(NOW))


async def test_events_received_too_early_are_reported_in_order_once_the_feed_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    events = Events()
    progress = progress_on_stderr(events)
    await events.publish(NOW)
    await events.publish(LOADED)
    await events.publish(FileFailed("a.pdf", "EXTRACT_FAILED", "damaged"))
    await events.publish(replace(NOW, running=False))
    assert capsys.readouterr().err == ""
    progress.begin()
    progress.end()
    index, mode, failed, last = capsys.readouterr().err.splitlines()
    assert index.startswith("Index: state  (")
    assert (mode, last) == ("Mode: incremental", progress_line(NOW))
    assert failed == "not indexed: a.pdf: EXTRACT_FAILED: damaged"


async def test_failed_indexing_is_noted_immediately_and_acted_on_once_the_feed_begins() -> None:
    events, acted = Events(), list[bool]()
    report = PlainReport()
    feed = EventFeed(events, report, paused=True, on_failure=lambda: acted.append(True))
    failure = IndexingFailed("STORE_CORRUPT", "the disk is full")
    await events.publish(failure)
    assert (feed.failure, acted) == (failure, [])
    feed.begin()
    report.close()
    assert acted == [True]
