"""The output of `dir2mcp`: events, the connection, and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.corpus.commands.connection import ConnectionInfo, TokenSource
from armarium.capabilities.corpus.commands.exit_codes import as_known_error, error_lines, exit_code, indexing_error
from armarium.capabilities.corpus.commands.progress.reports import EventFeed, JsonReport, QuietReport
from armarium.capabilities.corpus.errors import IngestionFailed
from armarium.capabilities.corpus.events import EmbeddingPaused, FileFailed, IndexingFailed
from armarium.foundation.errors import ArmariumError, BindFailed, ConfigError
from armarium.foundation.events import Events
from support.indexing_events import LOADED, NOW

CONNECTION = ConnectionInfo("http://127.0.0.1:1/mcp", TokenSource("secret.token", "state/secret.token"))
DETAILS = {"state_dir": "state"}


@pytest.mark.parametrize(
    ("phase", "running", "events"),
    [
        ("scan", True, ["scan_progress"]),
        ("embed", True, ["embed_progress"]),
        ("idle", False, ["scan_progress", "embed_progress"]),
    ],
)
def test_json_reports_scanning_and_embedding_in_their_phases_and_both_at_the_end(
    phase: Any, running: bool, events: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    report = JsonReport()
    report.progress(replace(NOW, phase=phase, running=running))
    report.close()
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == events


def test_json_reports_paused_embedding_as_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    report = JsonReport()
    report.embedding_paused(EmbeddingPaused("MISTRAL_RATE_LIMIT", "too many requests"))
    report.close()
    reported = json.loads(capsys.readouterr().out)
    assert (reported["level"], reported["event"]) == ("warn", "embed_progress")
    assert reported["data"]["paused"]["code"] == "MISTRAL_RATE_LIMIT"


async def test_the_connection_is_reported_before_the_progress(capsys: pytest.CaptureFixture[str]) -> None:
    events = Events()
    report = JsonReport()
    feed = EventFeed(events, report, paused=True, on_failure=lambda: None)
    await events.publish(NOW)
    await events.publish(LOADED)
    await events.publish(FileFailed("a.pdf", "EXTRACT_FAILED", "damaged"))
    await events.publish(replace(NOW, running=False, phase="idle"))
    report.connected(CONNECTION, DETAILS)
    feed.begin()
    report.close()
    reported = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    connected = ["server_started", "connection"]
    assert reported == [*connected, "index_loaded", "file_error", "scan_progress", "embed_progress"]
    assert feed.idle.is_set()


def test_quiet_reports_only_the_connection_and_paused_embedding(capsys: pytest.CaptureFixture[str]) -> None:
    report = QuietReport()
    report.index_loaded(LOADED)
    report.connected(CONNECTION, DETAILS)
    report.progress(NOW)
    report.file_failed(FileFailed("a.pdf", "EXTRACT_FAILED", "damaged"))
    report.embedding_paused(EmbeddingPaused("MISTRAL_AUTH", "wrong key"))
    report.close()
    said = capsys.readouterr()
    assert said.out.splitlines() == list(CONNECTION.lines())
    assert said.err == "embedding paused: MISTRAL_AUTH: wrong key\n"


@pytest.mark.parametrize(
    ("code", "ends_with", "said", "hint"),
    [
        ("STORE_CORRUPT", 5, "so it is", "run: dir2mcp reindex"),
        ("INDEX_VERSION_MISMATCH", 5, "so it is", "run: dir2mcp reindex"),
        ("ROOT_INACCESSIBLE", 6, "indexing failed: ROOT_INACCESSIBLE: so it is", "fix the cause, then run: dir2mcp up"),
        ("INGESTION_FAILED", 6, "indexing failed: so it is", "fix the cause, then run: dir2mcp up"),
    ],
)
def test_failed_indexing_ends_with_a_useful_hint(code: str, ends_with: int, said: str, hint: str) -> None:
    ended = indexing_error(IndexingFailed(code, "so it is"))
    assert (exit_code(ended), ended.message, ended.hint) == (ends_with, said, hint)


@pytest.mark.parametrize(
    ("token_source", "source", "file", "words"),
    [
        (
            TokenSource("secret.token", "/s/secret.token"),
            "secret.token",
            "/s/secret.token",
            "(source=secret.token, from /s/",
        ),
        (TokenSource("file", "/run/t", by_flag=True), "file", "/run/t", "(source=file, from --auth file:/run/t)"),
        (TokenSource("file", "/run/t"), "file", "/run/t", "(source=file, from security.auth.token_file: /run/t)"),
        (TokenSource("env", "DIR2MCP_AUTH_TOKEN"), "env", None, "(source=env, from DIR2MCP_AUTH_TOKEN)"),
        (TokenSource("none", ""), "none", None, "none"),
    ],
)
def test_the_connection_names_where_the_token_is(
    token_source: TokenSource, source: str, file: str | None, words: str
) -> None:
    connection = ConnectionInfo("http://127.0.0.1:1/mcp", token_source)
    reported = connection.event()
    assert (reported["token_source"], reported.get("token_file")) == (source, file)
    assert words in "\n".join(connection.lines())
    assert ("Authorization" in reported["headers"]) == (source != "none")


@pytest.mark.parametrize("address", ["http://127.0.0.1:80", "https://10.0.0.1:80"])
def test_a_server_on_one_address_has_that_one(address: str) -> None:
    connection = ConnectionInfo.to(address, "/mcp", CONNECTION.token_source)
    assert (connection.url, connection.local_url) == (f"{address}/mcp", None)
    assert "local_url" not in connection.event()


def test_a_server_on_every_address_has_one_for_others_and_one_for_this_machine(tmp_path: Path) -> None:
    connection = ConnectionInfo.to("https://0.0.0.0:80", "/mcp", CONNECTION.token_source)
    assert connection.local_url == "https://127.0.0.1:80/mcp"
    assert "127.0.0.1" not in connection.url
    connection.write(tmp_path)
    written = json.loads((tmp_path / "connection.json").read_text())
    for reported in (connection.event(), written):
        assert (reported["url"], reported["local_url"]) == (connection.url, connection.local_url)
    assert list(connection.lines())[1:3] == [f"  URL:    {connection.url}", f"  Local:  {connection.local_url}"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArmariumError("x"), 1),
        (ConfigError("x"), 2),
        (BindFailed("x"), 4),
        (OSError(28, "No space left on device"), 6),
    ],
)
def test_the_exit_code_is_that_of_what_went_wrong(error: Exception, code: int) -> None:
    ours = as_known_error(error)
    assert isinstance(ours, ArmariumError)
    assert exit_code(ours) == code


def test_an_error_that_says_nothing_about_storage_stays_what_it_is() -> None:
    for error in (OSError(2, "No such file or directory"), ValueError("x")):
        assert as_known_error(error) is error


def test_an_error_is_reported_with_its_code_and_what_to_do() -> None:
    assert list(error_lines(IngestionFailed("no room", hint="make some"))) == [
        "ERROR: INGESTION_FAILED: no room",
        "hint: make some",
    ]
