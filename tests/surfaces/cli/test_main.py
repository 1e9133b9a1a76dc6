"""Common to all commands: help, version, error reports, and what is imported at the start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from armarium import __version__
from armarium.command_line.output import printable, without_credentials
from support.command_line import CommandLine

COMMANDS = ("up", "serve", "stdio", "audit", "doctor", "config", "install", "version")


def test_armarium_without_arguments_prints_help(armarium: CommandLine) -> None:
    outcome = armarium()
    assert outcome.code == 0
    assert "armarium up ." in outcome.stdout
    for command in COMMANDS:
        assert f"\n  {command} " in outcome.stdout


def test_config_without_arguments_prints_help(armarium: CommandLine) -> None:
    outcome = armarium("config")
    assert outcome.code == 0
    assert "print" in outcome.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(armarium: CommandLine, command: str) -> None:
    outcome = armarium(command, "--help")
    assert outcome.code == 0
    assert f"Usage: armarium {command}" in outcome.stdout
    assert "\x1b" not in outcome.stdout


def test_version(armarium: CommandLine) -> None:
    assert armarium("version").stdout == f"armarium {__version__}\n"
    assert armarium("--version").stdout == f"armarium {__version__}\n"
    versions = armarium("version", "--json").json
    assert versions["armarium"] == __version__
    assert set(versions) == {"armarium", "mcp", "python"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("up", "--nonsense"),
        ("up", "--port", "many"),
        ("up", "a", "b"),
        ("install",),
        ("install", "emacs"),
    ],
)
def test_an_invalid_command_line_ends_with_2_and_a_hint(armarium: CommandLine, arguments: tuple[str, ...]) -> None:
    outcome = armarium(*arguments)
    assert outcome.code == 2
    assert outcome.stdout == ""
    message, hint = outcome.stderr.splitlines()
    assert message.startswith("armarium: ")
    assert hint.startswith("hint: armarium")
    error = armarium(*arguments, "--json").json["error"]
    assert error["code"] == "USAGE"
    assert f"armarium: {error['message']}" == message


def test_an_unreadable_settings_file_is_reported_without_a_traceback(armarium: CommandLine, project: Path) -> None:
    (project / "armarium.yaml").mkdir()
    outcome = armarium("config", "print", "--json")
    assert outcome.code == 2
    assert "cannot read" in outcome.json["error"]["message"]


def test_a_closed_pipe_causes_no_error_message(environ: dict[str, str], project: Path) -> None:
    command = [Path(sys.executable).with_name("armarium"), "config", "print"]
    with subprocess.Popen(command, cwd=project, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""


def loaded_modules(environ: dict[str, str], *modules: str) -> set[str]:
    """The modules in memory after importing these."""
    script = f"import json, sys, {', '.join(modules)}; print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], env=environ, check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_servers_start_without_importing_unneeded_modules(environ: dict[str, str]) -> None:
    loaded = loaded_modules(environ, "armarium.surfaces.cli.main", "armarium.surfaces.cli.start")
    ours = {"audit", "clients", "doctor", "install", "reference"}
    assert loaded.isdisjoint(f"armarium.surfaces.cli.{name}" for name in ours)
    assert "rich.table" not in loaded


def test_commands_without_a_server_do_not_import_one(environ: dict[str, str]) -> None:
    loaded = loaded_modules(environ, "armarium.surfaces.cli.main", "armarium.surfaces.cli.install")
    assert loaded.isdisjoint({"mcp", "pydantic", "uvicorn", "rich.table"})


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain text", "plain text"), ("é 漢", "é 漢"), ("a\tb\nc\rd", r"a\tb\nc\rd"), ("\x1b[2J\x00", r"\x1b[2J\x00")],
)
def test_untrusted_text_becomes_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_credentials_in_urls_are_masked() -> None:
    assert without_credentials("see https://user:pass@host/a@b") == "see https://***@host/a@b"
    assert without_credentials("https://host/path") == "https://host/path"
