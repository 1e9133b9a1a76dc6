"""Questions at a terminal, what they leave behind, and how it goes where nobody can be asked."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pexpect
import pytest
import yaml
from command_line import DEADLINE_S, CommandLine
from dir2mcp_command import TEMPLATE, Quick

from support.server import installed_command

KEY = "canary-key-typed-unseen"
Terminal = Callable[..., "pexpect.spawn[bytes]"]


@pytest.fixture
def terminal(project: Path, environ: dict[str, str]) -> Generator[Terminal]:
    """Starts `dir2mcp …` with a person in front of it."""
    with ExitStack() as started:

        def start(*arguments: str) -> pexpect.spawn[bytes]:
            command = installed_command("dir2mcp")
            spawned = pexpect.spawn(command, list(arguments), cwd=project, env=environ, timeout=DEADLINE_S)
            return started.enter_context(spawned)

        yield start


def answer(person: pexpect.spawn[bytes], *pairs: tuple[str, str]) -> bytes:
    """Wait for each question and type; everything that was shown."""
    shown = b""
    for question, typed in pairs:
        person.expect_exact(question)
        shown += person.before + person.after
        if typed == KEY:
            person.waitnoecho(DEADLINE_S)
        person.sendline(typed)
    return shown


def ended(person: pexpect.spawn[bytes]) -> tuple[int | None, bytes]:
    person.expect(pexpect.EOF)
    shown = person.before
    person.close()
    return person.exitstatus, shown


def test_the_wizard_asks_writes_the_settings_and_keeps_the_key_out_of_them(terminal: Terminal, project: Path) -> None:
    person = terminal("config", "init")
    shown = answer(
        person,
        ("embedding (local/mistral/openai) [local]: ", "mistral"),
        ("answers (none/mistral/openai) [none]: ", "mis"),
        ("ocr (yes/no) [yes]: ", "no"),
        ("transcription (auto/off) [auto]: ", "off"),
        ("MISTRAL_API_KEY (not shown): ", KEY),
        ("keep (file/env/session) [file]: ", ""),
    )
    code, last = ended(person)
    assert code == 0
    assert KEY.encode() not in shown + last
    written = (project / ".dir2mcp.yaml").read_text()
    assert KEY not in written
    values = yaml.safe_load(written)
    assert values["mistral"]["api_key"] == "${MISTRAL_API_KEY}"
    assert values["embedding"]["provider"] == values["chat"]["provider"] == "mistral"
    assert values["ingest"] == {"pdf": {"mode": "auto"}, "images": {"mode": "off"}, "audio": {"mode": "off"}}
    secret_file = project / ".dir2mcp/secret.env"
    assert secret_file.read_text() == f"MISTRAL_API_KEY={KEY}\n"
    assert stat.S_IMODE(secret_file.stat().st_mode) == 0o600


def test_the_wizard_changes_an_existing_file_and_leaves_the_rest_as_it_is(terminal: Terminal, template: Path) -> None:
    person = terminal("config", "init")
    answer(
        person,
        ("embedding (local/mistral/openai) [local]: ", "wrong"),
        ("Please answer one of: local, mistral, openai", ""),
        ("answers (none/mistral/openai) [none]: ", ""),
        ("ocr (yes/no) [yes]: ", ""),
        ("transcription (auto/off) [auto]: ", ""),
        ("transcription by (mistral/elevenlabs) [mistral]: ", ""),
    )
    assert ended(person)[0] == 0
    text = template.read_text()
    added = "\nembedding:\n  provider: local\n\nchat:\n  provider: none\n"
    assert text == TEMPLATE.read_text() + added


def test_up_asks_for_the_key_its_settings_name_and_starts_with_it(terminal: Terminal, template: Path) -> None:
    person = terminal("up", "--auth", "none")
    shown = answer(person, ("MISTRAL_API_KEY (not shown): ", KEY), ("keep (file/env/session) [file]: ", "session"))
    person.expect_exact("MCP endpoint:")
    shown += person.before
    person.sendintr()
    code, last = ended(person)
    assert code == 0
    assert KEY.encode() not in shown + last
    snapshot = (template.parent / ".dir2mcp/.dir2mcp.yaml.snapshot").read_text()
    assert KEY not in snapshot
    assert yaml.safe_load(snapshot)["secret_sources"]["mistral.api_key"]["source"] == "session"
    assert template.read_text() == TEMPLATE.read_text()
    assert not (template.parent / ".dir2mcp/secret.env").exists()


def test_a_person_without_the_key_is_told_how_to_give_it(terminal: Terminal, template: Path) -> None:
    person = terminal("up")
    answer(person, ("MISTRAL_API_KEY (not shown): ", ""))
    code, last = ended(person)
    assert code == 2
    assert b"Set env: MISTRAL_API_KEY=..." in last


@pytest.mark.parametrize("command", ["up", "reindex"])
def test_where_nobody_can_be_asked_a_missing_key_is_told_in_three_lines(
    dir2mcp: CommandLine, template: Path, command: str
) -> None:
    outcome = dir2mcp(command, "--json")
    assert outcome.code == 2
    assert outcome.stderr == (
        "ERROR: CONFIG_INVALID: Missing MISTRAL_API_KEY\nSet env: MISTRAL_API_KEY=...\nOr run: dir2mcp config init\n"
    )
    fatal = outcome.json
    assert (fatal["event"], fatal["data"]["code"]) == ("fatal", "CONFIG_INVALID")
    assert not (template.parent / ".dir2mcp/secret.token").exists(), "nothing is begun before everything is there"


def test_at_a_terminal_non_interactive_asks_nothing_either(terminal: Terminal, template: Path) -> None:
    code, shown = ended(terminal("up", "--non-interactive"))
    assert code == 2
    assert shown.replace(b"\r\n", b"\n").startswith(b"ERROR: CONFIG_INVALID: Missing MISTRAL_API_KEY\nSet env: ")


def test_without_questions_a_file_to_begin_with_is_written_once(here: Quick, project: Path) -> None:
    file = project / ".dir2mcp.yaml"
    first = here("config", "init", "--non-interactive", "--json")
    assert first.json == {"config_file": str(file.relative_to(project)), "changed": True}
    assert yaml.safe_load(file.read_text()) == {"version": 1}
    assert here("config", "print").code == 0
    file.write_text(file.read_text() + "rag:\n  k_default: 3\n")
    kept = file.read_text()
    second = here("config", "init", "--non-interactive", "--json")
    assert (second.code, json.loads(second.stdout)["changed"]) == (0, False)
    assert file.read_text() == kept


def test_without_questions_a_key_in_the_environment_is_named_and_not_copied(here: Quick, project: Path) -> None:
    assert here("config", "init", MISTRAL_API_KEY=KEY).code == 0
    text = (project / ".dir2mcp.yaml").read_text()
    assert yaml.safe_load(text)["mistral"] == {"api_key": "${MISTRAL_API_KEY}"}
    assert KEY not in text


def test_without_questions_a_wrong_file_is_told_and_not_touched(here: Quick, project: Path) -> None:
    file = project / ".dir2mcp.yaml"
    file.write_text("servers: {}\n")
    outcome = here("config", "init")
    assert outcome.code == 2
    assert "did you mean `server`?" in outcome.stderr
    assert file.read_text() == "servers: {}\n"
