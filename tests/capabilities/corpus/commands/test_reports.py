"""What programs and people are told by `dir2mcp`: events, how to connect, and how it ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.corpus.commands.client_config import Connection
from armarium.capabilities.corpus.commands.exit_codes import (
    IngestionFailed,
    cannot_index,
    error_lines,
    exit_code,
    known,
)
from armarium.capabilities.corpus.commands.progress.event_feed import Feed
from armarium.capabilities.corpus.commands.reports import JsonReport, QuietReport, tell_connection
from armarium.capabilities.corpus.commands.server_token import Access
from armarium.capabilities.corpus.news import EmbeddingPaused, FileFailed, IndexingFailed
from armarium.foundation.errors import ArmariumError, BindFailed, ConfigError
from armarium.foundation.events import Events
from support.indexing_news import LOADED, NOW

CONNECTION = Connection("http://127.0.0.1:1/mcp", Access("secret.token", "state/secret.token"))
FACTS = {"state_dir": "state"}


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
    feed = Feed(events, report, waits=True, on_failure=lambda: None)
    await events.publish(NOW)
    await events.publish(LOADED)
    await events.publish(FileFailed("a.pdf", "EXTRACT_FAILED", "damaged"))
    await events.publish(replace(NOW, running=False, phase="idle"))
    tell_connection(report, CONNECTION, FACTS)
    feed.open()
    report.close()
    told = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    connected = ["server_started", "connection"]
    assert told == [*connected, "index_loaded", "file_error", "scan_progress", "embed_progress"]
    assert feed.at_rest.is_set()


def test_quiet_leaves_how_to_connect_and_that_embedding_waits(capsys: pytest.CaptureFixture[str]) -> None:
    report = QuietReport()
    report.index_loaded(LOADED)
    tell_connection(report, CONNECTION, FACTS)
    report.progress(NOW)
    report.file_failed(FileFailed("a.pdf", "EXTRACT_FAILED", "damaged"))
    report.embedding_paused(EmbeddingPaused("MISTRAL_AUTH", "wrong key"))
    report.close()
    said = capsys.readouterr()
    assert said.out.splitlines() == list(CONNECTION.lines())
    assert said.err == "embedding waits: MISTRAL_AUTH: wrong key\n"


@pytest.mark.parametrize(
    ("code", "ends_with", "said", "hint"),
    [
        ("STORE_CORRUPT", 5, "so it is", "run: dir2mcp reindex"),
        ("INDEX_VERSION_MISMATCH", 5, "so it is", "run: dir2mcp reindex"),
        ("ROOT_INACCESSIBLE", 6, "indexing cannot go on: ROOT_INACCESSIBLE: so it is", "mend that and run: dir2mcp up"),
        ("INGESTION_FAILED", 6, "indexing cannot go on: so it is", "mend that and run: dir2mcp up"),
    ],
)
def test_indexing_that_cannot_go_on_ends_with_a_hint_that_helps(
    code: str, ends_with: int, said: str, hint: str
) -> None:
    ended = cannot_index(IndexingFailed(code, "so it is"))
    assert (exit_code(ended), ended.message, ended.hint) == (ends_with, said, hint)


@pytest.mark.parametrize(
    ("access", "source", "file", "words"),
    [
        (
            Access("secret.token", "/s/secret.token"),
            "secret.token",
            "/s/secret.token",
            "(source=secret.token, from /s/",
        ),
        (Access("file", "/run/t", by_flag=True), "file", "/run/t", "(source=file, from --auth file:/run/t)"),
        (Access("file", "/run/t"), "file", "/run/t", "(source=file, from security.auth.token_file: /run/t)"),
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


@pytest.mark.parametrize("address", ["http://127.0.0.1:80", "https://10.0.0.1:80"])
def test_a_server_on_one_address_has_that_one(address: str) -> None:
    connection = Connection.to(address, "/mcp", CONNECTION.access)
    assert (connection.url, connection.local_url) == (f"{address}/mcp", None)
    assert "local_url" not in connection.event()


def test_a_server_on_every_address_has_one_for_others_and_one_for_this_machine(tmp_path: Path) -> None:
    connection = Connection.to("https://0.0.0.0:80", "/mcp", CONNECTION.access)
    assert connection.local_url == "https://127.0.0.1:80/mcp"
    assert "127.0.0.1" not in connection.url
    connection.write(tmp_path)
    written = json.loads((tmp_path / "connection.json").read_text())
    for told in (connection.event(), written):
        assert (told["url"], told["local_url"]) == (connection.url, connection.local_url)
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
    ours = known(error)
    assert isinstance(ours, ArmariumError)
    assert exit_code(ours) == code


def test_an_error_that_says_nothing_about_storage_stays_what_it_is() -> None:
    for error in (OSError(2, "No such file or directory"), ValueError("x")):
        assert known(error) is error


def test_an_error_is_told_with_its_code_and_what_to_do() -> None:
    assert list(error_lines(IngestionFailed("no room", hint="make some"))) == [
        "ERROR: INGESTION_FAILED: no room",
        "hint: make some",
    ]
