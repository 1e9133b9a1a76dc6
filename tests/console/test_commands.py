"""The commands that the console names exist."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile
from pathlib import Path

import pytest

from armarium.capabilities.corpus.commands.app import run as run_dir2mcp
from armarium.surfaces.cli.host import Host
from armarium.surfaces.cli.main import run as run_armarium
from support.browser import REPOSITORY

_NAMED = re.compile(r"""["'`>]((?:armarium|dir2mcp) [^"`<]*)["`<]""")


def named_commands() -> set[str]:
    files: list[Path] = [*(REPOSITORY / "web/src").rglob("*.svelte"), *(REPOSITORY / "web/src").rglob("*.ts")]
    return {command for file in files if file.name != "api.d.ts" for command in _NAMED.findall(file.read_text())}


@pytest.mark.parametrize("command", sorted(named_commands()))
def test_a_command_that_the_console_names_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, *words = shlex.split(command)
    # Values and arguments are not checked.
    options = [word for word in words if word.startswith("--")]
    path = [*takewhile(lambda word: re.fullmatch(r"[a-z][a-z-]*", word), words), "--help"]
    assert (run_armarium(path) if program == "armarium" else run_dir2mcp(path, Host())) == 0
    printed = capsys.readouterr().out
    assert all(option in printed for option in options), printed
