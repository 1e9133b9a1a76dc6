"""Calls of commands pass through the dispatcher, which records them in the audit log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.command_line import InThisProcess


def recorded(quick: InThisProcess) -> list[dict[str, Any]]:
    outcome = quick("audit", "--json")
    assert outcome.code == 0, outcome.stderr
    return outcome.json_lines


def test_the_call_of_a_command_is_recorded_with_the_local_owner_as_its_caller(quick: InThisProcess) -> None:
    assert quick("registry", "register", "hello.txt").code == 0
    (call,) = recorded(quick)
    assert (call["capability"], call["tool"], call["principal"]) == ("registry", "register_file", "local")
    assert (call["outcome"], call["code"], call["surface"]) == ("success", None, "cli")
    assert call["path"] == "hello.txt"


def test_a_call_that_fails_is_recorded_with_its_error_code(quick: InThisProcess) -> None:
    failed = quick("registry", "register", "../outside.txt", "--json")
    assert (failed.code, failed.json["code"]) == (1, "invalid_path")
    (call,) = recorded(quick)
    assert (call["tool"], call["outcome"], call["code"]) == ("register_file", "error", "invalid_path")


def test_invalid_arguments_are_refused_by_the_dispatcher_and_recorded(quick: InThisProcess) -> None:
    quick("registry", "register", "hello.txt")
    failed = quick("registry", "files", "--limit", "0", "--json")
    assert (failed.code, failed.json["code"]) == (1, "validation_error")
    call = recorded(quick)[-1]
    assert (call["tool"], call["outcome"], call["code"]) == ("list_files", "error", "validation_error")


def test_a_disabled_audit_log_is_not_created(quick: InThisProcess, home: Path) -> None:
    assert quick("registry", "register", "hello.txt", ARMARIUM_AUDIT__ENABLED="false").code == 0
    assert not list(home.rglob("audit*"))


@pytest.fixture
def unwritable_state_directory(home: Path) -> Path:
    """A file in place of the state directory: not even root can create a file below it."""
    state = home / "state"
    state.write_text("not a directory")
    return state


@pytest.mark.usefixtures("unwritable_state_directory")
def test_a_command_works_without_a_writable_audit_log_and_prints_a_note(
    quick: InThisProcess, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    blocked = str(tmp_path / "elsewhere" / "file")
    Path(blocked).write_text("not a directory")
    own_state = str(tmp_path / "own")
    outcome = quick(
        "registry", "register", "hello.txt", "--json", XDG_STATE_HOME=own_state, ARMARIUM_STATE_DIR=f"{blocked}/state"
    )
    assert (outcome.code, outcome.json["path"]) == (0, "hello.txt")
    assert outcome.stderr.startswith("note: the audit log cannot be written")
    assert (project / ".armarium" / "registry.sqlite").is_file()


@pytest.mark.usefixtures("unwritable_state_directory")
def test_a_new_registry_needs_a_place_for_the_key_that_marks_it(quick: InThisProcess, project: Path) -> None:
    outcome = quick("registry", "register", "hello.txt", "--json")
    assert outcome.code != 0
    assert "XDG_STATE_HOME" in outcome.stderr
    assert "Traceback" not in outcome.stderr
