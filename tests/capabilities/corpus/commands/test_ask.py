"""`dir2mcp ask` always answers and reports what is missing, whatever the models and the index do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import pexpect
import pytest
import yaml

from armarium.capabilities.corpus.commands.ask import IndexWait
from armarium.capabilities.corpus.commands.progress.reports import progress_line
from armarium.capabilities.corpus.errors import IndexNotReady
from armarium.capabilities.corpus.events import IndexProgress
from armarium.command_line.output import readable, show_json
from armarium.foundation.events import Events
from emulators import Fault, Malformed, MistralEmulator, Refused, ServerError, Silent, Stalled, Unusable
from support.command_line import DEADLINE_S, CommandLine
from support.dir2mcp_command import Quick, Start
from support.indexing_events import NOW
from support.server import installed_command

KEY = "canary-77aa10-key"
QUESTION = "how is the service deployed?"
MANY = 500
"""More faults than requests of one command, so that the vendor never recovers."""


@pytest.fixture(autouse=True)
def deploy_page(project: Path) -> None:
    (project / "deploy.md").write_text("# Deploying\n\nThe service is deployed with `make ship` from main.\n")


@pytest.fixture
def vendor() -> Generator[MistralEmulator]:
    with MistralEmulator(KEY) as emulator:
        yield emulator


@pytest.fixture
def ask_vendor(dir2mcp: CommandLine, project: Path, vendor: MistralEmulator) -> Callable[..., Any]:
    """Runs `ask` with the vendor's models. Keyword arguments are sections of the settings."""

    def ask(*arguments: str, **sections: Any) -> Any:
        mistral = {"base_url": vendor.url, "api_key": "${MISTRAL_API_KEY}"}
        settings = {"version": 1, "mistral": mistral, "chat": {"provider": "none"}, **sections}
        (project / ".dir2mcp.yaml").write_text(yaml.safe_dump(settings))
        return dir2mcp("ask", QUESTION, "--trust", *arguments, MISTRAL_API_KEY=KEY)

    return ask


@pytest.mark.parametrize(
    "fault",
    [
        ServerError(on="embeddings", status=500),
        ServerError(on="embeddings", status=503, retry_after=0),
        Silent(on="embeddings"),
        Malformed(on="embeddings"),
        Unusable(on="embeddings", change=lambda answer: {**answer, "data": []}),
        Refused(on="embeddings", status=401),
    ],
    ids=lambda fault: f"{type(fault).__name__}{getattr(fault, 'status', '')}",
)
def test_an_embedder_that_never_works_leaves_an_answer_by_lexical_search(
    ask_vendor: Callable[..., Any], vendor: MistralEmulator, fault: Fault
) -> None:
    vendor.faults.extend([fault] * MANY)
    asked = ask_vendor("--wait", "1")
    assert asked.code == 0
    assert "make ship" in asked.stdout
    assert "note: 0 of 2 chunks are embedded so far" in asked.stderr
    assert KEY not in asked.stdout + asked.stderr


def test_an_embedder_that_fails_after_indexing_is_reported_and_lexical_search_answers(
    ask_vendor: Callable[..., Any], vendor: MistralEmulator
) -> None:
    assert "(The question could not be embedded" not in ask_vendor("--wait", "60").stdout
    vendor.faults.extend([ServerError(on="embeddings", retry_after=0)] * MANY)
    asked = ask_vendor()
    assert asked.code == 0
    assert "make ship" in asked.stdout
    assert "(The question could not be embedded, so the search was lexical only: MISTRAL_FAILED" in asked.stdout
    found = ask_vendor("--mode", "search_only")
    assert "deploy.md" in found.stdout
    assert "note: the question could not be embedded" in found.stderr


def _no_text(event: dict[str, Any]) -> dict[str, Any]:
    choices = [{**choice, "delta": {"role": "assistant", "content": ""}} for choice in event["choices"]]
    return {**event, "choices": choices}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (ServerError(on="completions", retry_after=0), "The chat model failed (MISTRAL_FAILED"),
        (Refused(on="completions", status=401), "The chat model failed (MISTRAL_AUTH"),
        (Silent(on="completions"), "The chat model took longer than 1 seconds"),
        (Unusable(on="completions", change=_no_text), "The chat model gave an empty answer"),
    ],
    ids=["fails", "refuses", "hangs", "says nothing"],
)
def test_a_chat_model_that_does_not_answer_is_reported_and_sentences_are_quoted_instead(
    ask_vendor: Callable[..., Any], vendor: MistralEmulator, fault: Fault, why: str
) -> None:
    vendor.faults.extend([fault] * MANY)
    asked = ask_vendor(chat={"provider": "mistral", "timeout_s": 1})
    assert asked.code == 0
    assert why in asked.stdout
    assert "so these are the sentences found that fit best:" in asked.stdout
    assert "make ship" in asked.stdout
    assert KEY not in asked.stdout + asked.stderr


def test_a_chat_model_that_stops_in_the_middle_is_followed_by_sentences(
    ask_vendor: Callable[..., Any], vendor: MistralEmulator
) -> None:
    vendor.faults.extend([Stalled(on="completions", after_events=2)] * MANY)
    asked = ask_vendor(chat={"provider": "mistral", "timeout_s": 2})
    assert asked.code == 0
    assert asked.stdout.index("It says") < asked.stdout.index("The chat model took longer")
    assert "make ship" in asked.stdout


def test_progress_of_the_first_indexing_is_on_standard_error_and_the_answer_alone_on_standard_output(
    dir2mcp: CommandLine,
) -> None:
    asked = dir2mcp("ask", QUESTION, "--json", "--wait", "60")
    assert asked.json["hits"][0]["rel_path"] == "deploy.md"
    assert asked.json["indexing_complete"] is True
    assert "not indexed yet" in asked.stderr
    assert "Progress: scanned=2 indexed=2 skipped=0 deleted=0 reps=2 chunks=2 embedded=2 errors=0" in asked.stderr
    quiet = dir2mcp("ask", QUESTION, "--quiet")
    assert quiet.stderr == ""


def test_lexical_search_answers_before_embedding_ends_and_the_next_question_continues_it(
    ask_vendor: Callable[..., Any], vendor: MistralEmulator
) -> None:
    vendor.faults.extend([Silent(on="embeddings")] * MANY)
    first = ask_vendor("--json", "--wait", "0")
    assert (first.code, first.json["hits"][0]["rel_path"]) == (0, "deploy.md")
    assert first.json["indexing_complete"] is False
    assert "0 of 2 chunks are embedded so far" in first.stderr
    vendor.faults.clear()
    second = ask_vendor("--json", "--wait", "60")
    assert second.json["indexing_complete"] is True
    assert "so far" not in second.stderr
    third = ask_vendor("--json")
    (only_line,) = third.stderr.splitlines()
    assert only_line.startswith("Text is sent to http://127.0.0.1:"), "a finished index is only read"


def test_a_terminal_shows_the_contracts_fields_while_the_first_index_is_made(
    environ: dict[str, str], project: Path
) -> None:
    for number in range(40):
        (project / f"note{number}.md").write_text(f"# Note {number}\n\nSomething about subject {number}.\n")
    command = installed_command("dir2mcp")
    with pexpect.spawn(
        command, ["ask", QUESTION, "--wait", "60"], cwd=project, env=environ, timeout=DEADLINE_S, dimensions=(40, 160)
    ) as terminal:
        terminal.expect(
            r"Progress: scanned=\d+ indexed=\d+ skipped=0 deleted=0 reps=\d+ chunks=\d+ embedded=\d+ errors=0"
        )
        terminal.expect_exact("make ship")
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.exitstatus == 0


def test_ctrl_c_ends_a_wait_at_once_and_the_next_question_is_answered(
    dir2mcp: CommandLine, serve: Start, project: Path, vendor: MistralEmulator
) -> None:
    mistral = {"base_url": vendor.url, "api_key": KEY}
    settings = {"version": 1, "mistral": mistral, "chat": {"provider": "none"}}
    (project / ".dir2mcp.yaml").write_text(yaml.safe_dump(settings))
    vendor.faults.extend([Silent(on="embeddings")] * MANY)
    command = serve("ask", QUESTION, "--trust", "--wait", "3600")
    command.stderr.until("embedded=0")
    assert vendor.silent.wait(DEADLINE_S)
    assert command.interrupt() == 130
    assert "make ship" in dir2mcp("ask", QUESTION, "--wait", "0").stdout


def test_what_a_document_says_cannot_steer_the_terminal(dir2mcp: CommandLine, project: Path) -> None:
    (project / "evil.md").write_text(
        "# Evil\n\nThe service is deployed\x1b[2J by \x1b]0;owned\x07 nobody\u202e at \x9b31m all.\n"
    )
    for arguments in ([], ["--mode", "search_only"]):
        asked = dir2mcp("ask", QUESTION, "--wait", "60", *arguments)
        assert "evil.md" in asked.stdout
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(asked.stdout + asked.stderr)
    whole = dir2mcp("ask", QUESTION, "--json")
    assert "\x1b[2J" in json.dumps(whole.json, ensure_ascii=False).encode().decode("unicode_escape")


def test_readable_text_keeps_its_lines_and_letters() -> None:
    text = "naïve\u00a0words\n\tand 👩‍🚀 日本"
    assert readable(text) == text
    assert readable("a\x1b[0m\r\x00\u2028b") == "a\\x1b[0m\\r\\x00\\u2028b"


def test_json_at_a_terminal_has_escapes_for_what_would_steer_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    value = {"text": "a\x1b[2J\x9b31m\u202eb\n"}
    show_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)


def test_a_question_that_is_too_long_is_refused_with_a_hint(here: Quick) -> None:
    asked = here("ask", "x" * 30_000)
    assert asked.code == 1
    assert "ERROR: INVALID_FIELD: query has 30000 characters" in asked.stderr
    assert "hint: " in asked.stderr


class _Unindexed:
    async def until_indexed(self) -> None:
        await anyio.sleep_forever()


class _RecordedReport:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def progress(self, now: IndexProgress) -> None:
        self.lines.append(progress_line(now))


async def test_a_wait_repeats_the_progress_and_ends_when_indexing_stalls() -> None:
    events, report = Events(), _RecordedReport()
    index_wait = IndexWait(events, report, interval_s=0.01, stalled_s=0.2)  # type: ignore[arg-type]
    await events.publish(NOW)
    with pytest.raises(BaseExceptionGroup) as ended, anyio.fail_after(DEADLINE_S):
        await index_wait.until_answerable(_Unindexed(), 0)  # type: ignore[arg-type]
    assert ended.group_contains(IndexNotReady)
    assert len(report.lines) > 2
