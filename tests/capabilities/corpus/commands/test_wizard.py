"""The setup wizard: its questions, what it stores, and how it works without a terminal."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Generator
from contextlib import ExitStack
from pathlib import Path

import pexpect
import pytest
import yaml

from support.command_line import DEADLINE_S, CommandLine
from support.dir2mcp_command import TEMPLATE, Quick
from support.server import installed_command

KEY = "canary-key-typed-unseen"
Terminal = Callable[..., "pexpect.spawn[bytes]"]


@pytest.fixture
def terminal(project: Path, environ: dict[str, str]) -> Generator[Terminal]:
    """Starts `dir2mcp …` at a terminal."""
    with ExitStack() as started:

        def start(*arguments: str) -> pexpect.spawn[bytes]:
            command = installed_command("dir2mcp")
            spawned = pexpect.spawn(command, list(arguments), cwd=project, env=environ, timeout=DEADLINE_S)
            return started.enter_context(spawned)

        yield start


def answer(person: pexpect.spawn[bytes], *pairs: tuple[str, str]) -> bytes:
    """Answer each question; returns everything that was displayed."""
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
        ("store (file/env/session) [file]: ", ""),
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


KEEP_EVERYTHING = (
    ("embedding (local/mistral/openai) ", ""),
    ("answers (none/mistral/openai) ", ""),
    ("ocr (yes/no) ", ""),
    ("transcription (auto/off) ", ""),
    ("transcription by (mistral/elevenlabs) ", ""),
)


def test_comments_stay_wherever_they_are_in_the_file(terminal: Terminal, project: Path) -> None:
    file = project / ".dir2mcp.yaml"
    file.write_text(
        "# Mine.\nversion: 1\n\nembedding:\n  # who makes vectors\n  provider: auto\n\n"
        "chat: {provider: none}  # nobody\ningest:\n  # scans\n  pdf:\n    mode: ocr  # all of them\n"
        "stt: {}  # nothing yet\n# The end.\n"
    )
    comments = [line.partition("#")[2] for line in file.read_text().splitlines() if "#" in line]
    person = terminal("config", "init")
    answer(person, *KEEP_EVERYTHING)
    assert ended(person)[0] == 0
    text = file.read_text()
    assert [line.partition("#")[2] for line in text.splitlines() if "#" in line] == comments
    assert yaml.safe_load(text) == {
        "version": 1,
        "embedding": {"provider": "local"},
        "chat": {"provider": "none"},
        "ingest": {"pdf": {"mode": "ocr"}, "images": {"mode": "ocr_auto"}, "audio": {"mode": "auto"}},
        "stt": {"provider": "mistral"},
    }


def test_a_key_kept_in_the_keychain_is_found_there_by_the_next_command(
    terminal: Terminal, dir2mcp: CommandLine, template: Path, keychain: Path
) -> None:
    person = terminal("up", "--auth", "none")
    answer(person, ("MISTRAL_API_KEY (not shown): ", KEY), ("store (keychain/file/env/session) [keychain]: ", ""))
    person.expect_exact("MCP endpoint:")
    person.sendintr()
    assert ended(person)[0] == 0
    assert json.loads(keychain.read_text()) == {"dir2mcp/default:MISTRAL_API_KEY": KEY}
    printed = dir2mcp("config", "print", "--json")
    found = printed.json["secret_sources"]["mistral.api_key"]
    assert found == {"name": "MISTRAL_API_KEY", "source": "keychain", "place": "dir2mcp"}
    assert KEY not in printed.stdout + printed.stderr
    kept = [file for file in (template.parent / ".dir2mcp").rglob("*") if file.is_file()]
    assert not any(KEY.encode() in file.read_bytes() for file in kept)


def test_the_keychain_has_the_service_and_the_account_of_the_settings_and_is_the_only_place_if_they_say_so(
    dir2mcp: CommandLine, project: Path, keychain: Path
) -> None:
    secrets = "secrets:\n  provider: keychain\n  keychain:\n    service: notes\n    account: me\n"
    (project / ".dir2mcp.yaml").write_text(f"embedding:\n  provider: mistral\n{secrets}")
    secret_file = project / ".dir2mcp/secret.env"
    secret_file.parent.mkdir()
    secret_file.write_text("MISTRAL_API_KEY=elsewhere\n")
    secret_file.chmod(0o600)
    keychain.write_text(json.dumps({"dir2mcp/default:MISTRAL_API_KEY": "of another account"}))
    missing = dir2mcp("up", "--json", "--trust")
    assert (missing.code, missing.json["data"]["message"]) == (2, "Missing MISTRAL_API_KEY")
    keychain.write_text(json.dumps({"notes/me:MISTRAL_API_KEY": KEY}))
    found = dir2mcp("config", "print", "--json").json["secret_sources"]["mistral.api_key"]
    assert (found["source"], found["place"]) == ("keychain", "notes")


def use_provider(template: Path, provider: str) -> None:
    template.write_text(template.read_text().replace("provider: auto  ", f"provider: {provider}  "))


def files_with(key: str, directory: Path) -> list[str]:
    return [file.name for file in directory.rglob("*") if file.is_file() and key.encode() in file.read_bytes()]


@pytest.mark.parametrize(("provider", "kept"), [("keychain", ["keychain.json"]), ("file", ["secret.env"])])
def test_the_wizard_stores_a_key_where_the_settings_say_and_nowhere_else(
    terminal: Terminal, template: Path, keychain: Path, tmp_path: Path, provider: str, kept: list[str]
) -> None:
    use_provider(template, provider)
    person = terminal("config", "init", "--trust")
    answer(
        person,
        ("embedding (local/mistral/openai) ", "mistral"),
        *KEEP_EVERYTHING[1:],
        ("MISTRAL_API_KEY (not shown): ", KEY),
    )
    code, shown = ended(person)
    assert code == 0
    assert b"store (" not in shown, "the settings have decided already"
    assert files_with(KEY, tmp_path) == kept
    assert yaml.safe_load(template.read_text())["secrets"]["provider"] == provider


@pytest.mark.parametrize(
    ("provider", "said"),
    [("env", b"export MISTRAL_API_KEY=..."), ("session", b"asks for it at each start")],
)
def test_the_wizard_asks_for_no_key_that_the_settings_do_not_let_it_store(
    terminal: Terminal, template: Path, keychain: Path, provider: str, said: bytes
) -> None:
    use_provider(template, provider)
    person = terminal("config", "init", "--trust")
    answer(person, ("embedding (local/mistral/openai) ", "mistral"), *KEEP_EVERYTHING[1:])
    code, shown = ended(person)
    assert code == 0
    assert said in shown
    assert b"not shown" not in shown
    assert not keychain.exists()
    assert not (template.parent / ".dir2mcp/secret.env").exists()


def test_a_session_key_is_in_the_memory_of_up_only(
    terminal: Terminal, dir2mcp: CommandLine, template: Path, keychain: Path, tmp_path: Path
) -> None:
    use_provider(template, "session")
    person = terminal("up", "--trust", "--auth", "none")
    shown = answer(person, ("MISTRAL_API_KEY (not shown): ", KEY))
    person.expect_exact("MCP endpoint:")
    shown += person.before
    person.sendintr()
    code, last = ended(person)
    assert code == 0
    assert KEY.encode() not in shown + last
    assert files_with(KEY, tmp_path) == []
    snapshot = yaml.safe_load((template.parent / ".dir2mcp/.dir2mcp.yaml.snapshot").read_text())
    assert snapshot["secret_sources"]["mistral.api_key"]["source"] == "session"
    again = dir2mcp("up", "--json", "--trust")
    assert (again.code, again.json["data"]["message"]) == (2, "Missing MISTRAL_API_KEY")


def test_with_the_provider_env_up_asks_nothing_and_names_the_variable(terminal: Terminal, template: Path) -> None:
    use_provider(template, "env")
    code, shown = ended(terminal("up", "--trust"))
    assert code == 2
    assert b"Set env: MISTRAL_API_KEY=..." in shown
    assert b"not shown" not in shown


def test_a_keychain_that_is_configured_and_missing_is_an_error_and_no_reason_for_a_file(
    dir2mcp: CommandLine, template: Path
) -> None:
    use_provider(template, "keychain")
    dir2mcp.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
    secret_file = template.parent / ".dir2mcp/secret.env"
    secret_file.parent.mkdir(mode=0o700)
    secret_file.write_text(f"MISTRAL_API_KEY={KEY}\n")
    secret_file.chmod(0o600)
    outcome = dir2mcp("up", "--json", "--trust")
    assert outcome.code == 2
    assert outcome.json["data"]["message"] == "no usable keychain was found"
    assert "secrets.provider" in outcome.stderr
    assert KEY not in outcome.stdout + outcome.stderr


def test_up_asks_for_the_key_its_settings_name_and_starts_with_it(terminal: Terminal, template: Path) -> None:
    person = terminal("up", "--auth", "none")
    shown = answer(person, ("MISTRAL_API_KEY (not shown): ", KEY), ("store (file/env/session) [file]: ", "session"))
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


def test_a_user_without_the_key_learns_how_to_set_it(terminal: Terminal, template: Path) -> None:
    person = terminal("up")
    answer(person, ("MISTRAL_API_KEY (not shown): ", ""))
    code, last = ended(person)
    assert code == 2
    assert b"Set env: MISTRAL_API_KEY=..." in last


@pytest.mark.parametrize("command", ["up", "reindex"])
def test_without_a_terminal_a_missing_key_is_reported_in_three_lines(
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


def test_without_questions_a_default_file_is_written_once(here: Quick, project: Path) -> None:
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


def test_without_questions_an_invalid_file_is_reported_and_not_changed(here: Quick, project: Path) -> None:
    file = project / ".dir2mcp.yaml"
    file.write_text("servers: {}\n")
    outcome = here("config", "init")
    assert outcome.code == 2
    assert "did you mean `server`?" in outcome.stderr
    assert file.read_text() == "servers: {}\n"
