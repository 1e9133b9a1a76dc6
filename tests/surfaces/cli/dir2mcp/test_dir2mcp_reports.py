"""What is told while indexing goes on: how often, in which order, and how fast it goes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexingFailed, IndexLoaded, IndexProgress
from armarium.foundation.errors import ArmariumError, BindFailed, ConfigError
from armarium.foundation.events import Events
from armarium.surfaces.cli.dir2mcp.access import Access
from armarium.surfaces.cli.dir2mcp.connection import Connection, reachable
from armarium.surfaces.cli.dir2mcp.ending import IngestionFailed, cause, error_lines, exit_code
from armarium.surfaces.cli.dir2mcp.feed import Feed
from armarium.surfaces.cli.dir2mcp.live import LiveReport, Pace
from armarium.surfaces.cli.dir2mcp.reports import JsonReport, PlainReport, progress_line

NOW = IndexProgress(
    job_id="job_1", running=True, mode="incremental", scanned=412, indexed=55, skipped=340, deleted=2,
    representations=88, chunks_total=1480, embedded_ok=920, errors=1, phase="scan", files_known=500,
)  # fmt: skip
LOADED = IndexLoaded("state", "incremental", 1, 2, 3)
CONNECTION = Connection("http://127.0.0.1:1/mcp", Access("secret.token", "state/secret.token"))
FACTS = {"state_dir": "state"}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


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
    told = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert told == ["scanned=1", "scanned=4", "scanned=5"]


@pytest.mark.parametrize(
    ("phase", "running", "events"),
    [
        ("scan", True, ["scan_progress"]),
        ("embed", True, ["embed_progress"]),
        ("idle", False, ["scan_progress", "embed_progress"]),
    ],
)
def test_programs_hear_of_scanning_and_of_embedding_each_in_its_phase_and_of_both_at_the_end(
    phase: Any, running: bool, events: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    report = JsonReport()
    report.progress(replace(NOW, phase=phase, running=running))
    report.close()
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == events


def test_programs_hear_that_the_provider_refuses_as_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    report = JsonReport()
    report.embedding_paused(EmbeddingPaused("MISTRAL_RATE_LIMIT", "too many requests"))
    report.close()
    told = json.loads(capsys.readouterr().out)
    assert (told["level"], told["event"]) == ("warn", "embed_progress")
    assert told["data"]["paused"]["code"] == "MISTRAL_RATE_LIMIT"


async def test_how_to_connect_is_told_before_how_indexing_goes(capsys: pytest.CaptureFixture[str]) -> None:
    events = Events()
    report = JsonReport()
    feed = Feed(events, report, connects=True)
    await events.publish(NOW)
    await events.publish(LOADED)
    await events.publish(FileFailed("a.pdf", "EXTRACT_FAILED", "damaged"))
    await events.publish(replace(NOW, running=False, phase="idle"))
    feed.connected(CONNECTION, FACTS)
    report.close()
    told = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    connected = ["server_started", "connection"]
    assert told == [*connected, "index_loaded", "file_error", "scan_progress", "embed_progress"]
    assert feed.at_rest.is_set()


async def test_indexing_that_cannot_go_on_ends_the_server_once_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    events, asked_to_end = Events(), list[bool]()
    report = PlainReport()
    feed = Feed(events, report, connects=True, on_failure=lambda: asked_to_end.append(True))
    await events.publish(IndexingFailed("STORE_CORRUPT", "the disk is full"))
    assert asked_to_end == []
    feed.connected(CONNECTION, FACTS)
    report.close()
    assert asked_to_end == [True]
    assert feed.failure is not None
    assert exit_code(feed.failure) == 6


def test_a_failed_file_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report = PlainReport()
    report.file_failed(FileFailed("evil\x1b[2J\n.md", "EXTRACT_FAILED", "bad\rthing"))
    report.close()
    assert capsys.readouterr().err == "not indexed: evil\\x1b[2J\\n.md: EXTRACT_FAILED: bad\\rthing\n"


def test_the_pace_is_that_of_the_last_seconds_and_begins_anew_with_a_new_job() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.remaining_s(100) is None
    for done in (0, 1000, 1010, 1020, 1030):
        pace.mark(done)
        clock.now += 10
    assert pace.per_second == pytest.approx(1.0)
    assert pace.remaining_s(60) == pytest.approx(60.0)
    pace.mark(3)
    assert pace.per_second == 0.0


def test_a_terminal_shows_counts_the_pace_and_the_time_left() -> None:
    clock, screen = Clock(), io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160, color_system=None)
    report = LiveReport(console, clock)
    report.connected(CONNECTION, FACTS)
    for embedded in (920, 1020):
        report.progress(replace(NOW, phase="embed", embedded_ok=embedded))
        clock.now += 10
    report.file_failed(FileFailed("[red]a.md", "EXTRACT_FAILED", "damaged"))
    report.progress(replace(NOW, running=False, phase="idle"))
    report.close()
    shown = screen.getvalue()
    assert "not indexed: [red]a.md: EXTRACT_FAILED: damaged" in shown
    assert "1020/1480 passages" in shown
    assert "10 passages/s" in shown
    assert "46 s left" in shown
    assert shown.startswith("Index: state  (")
    assert shown.splitlines()[-1].endswith(progress_line(NOW))


@pytest.mark.parametrize(
    ("access", "source", "file", "words"),
    [
        (
            Access("secret.token", "/s/secret.token"),
            "secret.token",
            "/s/secret.token",
            "(source=secret.token, from /s/",
        ),
        (Access("file", "/run/t"), "file", "/run/t", "(source=file, from --auth file:/run/t)"),
        (Access("env", "DIR2MCP_AUTH_TOKEN"), "env", None, "(source=env, from DIR2MCP_AUTH_TOKEN)"),
        (Access("none", ""), "none", None, "none"),
    ],
)
def test_the_connection_names_where_the_token_is(access: Access, source: str, file: str | None, words: str) -> None:
    connection = Connection("http://127.0.0.1:1/mcp", access)
    told = connection.event()
    assert (told["token_source"], told.get("token_file")) == (source, file)
    assert words in "\n".join(connection.lines())
    assert ("Authorization" in told["headers"]) == (source != "none")


def test_a_server_on_every_address_is_reached_on_this_one() -> None:
    assert reachable("http://0.0.0.0:80") == "http://127.0.0.1:80"
    assert reachable("https://[::]:80") == "https://[::1]:80"
    assert reachable("http://10.0.0.1:80") == "http://10.0.0.1:80"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArmariumError("x"), 1),
        (ConfigError("x"), 2),
        (BindFailed("x"), 4),
        (OSError(28, "No space left on device"), 6),
        (ExceptionGroup("several", [ValueError("x"), ExceptionGroup("inner", [BindFailed("x")])]), 4),
    ],
)
def test_the_exit_code_is_that_of_what_went_wrong(error: Exception, code: int) -> None:
    known = cause(error)
    assert isinstance(known, ArmariumError)
    assert exit_code(known) == code


def test_an_error_is_told_with_its_code_and_what_to_do() -> None:
    assert list(error_lines(IngestionFailed("no room", hint="make some"))) == [
        "ERROR: INGESTION_FAILED: no room",
        "make some",
    ]
