"""`armarium audit` prints the audit log, as a table or as JSON."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
from collections.abc import Callable, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from armarium.foundation.audit import AuditLog, CallRecord
from armarium.foundation.telemetry import timestamp
from support.client import connected
from support.command_line import DEADLINE_S, Command, CommandLine, InThisProcess
from support.server import installed_command
from support.trusted import trust

Start = Callable[..., Command]


def record(minutes_ago: float = 0, **values: Any) -> CallRecord:
    """A record of a call, as a server writes it."""
    known: dict[str, Any] = {
        "at": timestamp(datetime.now(UTC) - timedelta(minutes=minutes_ago)),
        "call_id": "0" * 32,
        "surface": "http",
        "capability": "sandbox",
        "tool": "read_file",
        "principal": "owner",
        "apikey_hash": "0" * 64,
        "session": None,
        "root": "workspace",
        "path": "src/main.py",
        "resolved_path": None,
        "outcome": "success",
        "code": None,
        "duration_ms": 1.5,
        "request_bytes": 10,
        "response_bytes": 20,
        "arguments": '{"root":"workspace"}',
    }
    return CallRecord(**known | values)


@pytest.fixture
def audit_file(home: Path) -> Path:
    return home / "state" / "armarium" / "audit.sqlite"


@pytest.fixture
def audit_log(audit_file: Path) -> Generator[AuditLog]:
    """The audit log in the default state directory, open for writing."""
    log = AuditLog(audit_file)
    yield log
    log.close()


@pytest.fixture
def filled(audit_file: Path) -> Path:
    """An audit log with four different calls."""
    log = AuditLog(audit_file)
    log.append(record(180, path="old.txt"))
    log.append(record(30, tool="write_file", principal="alice", path="src/a.py"))
    log.append(record(10, tool="grep", root="docs", path="."))
    log.append(record(1, outcome="error", code="NOT_FOUND", path="src/[b].py"))
    log.close()
    return audit_file


def paths(armarium: CommandLine | InThisProcess, *options: str) -> list[str]:
    outcome = armarium("audit", "--json", *options)
    assert outcome.code == 0, outcome.stderr
    return [line["path"] for line in outcome.json_lines]


async def test_calls_of_a_real_server_are_listed(start: Start, armarium: CommandLine) -> None:
    server = start("up", "--auth", "none", "--port", "0", "--json")
    url = json.loads(server.stdout.next())["url"].removesuffix("/mcp")
    async with connected(url) as client:
        await client.call("read_file", root="workspace", path="hello.txt")
        await client.fails("read_file", root="workspace", path="../outside")
    server.interrupt()
    read, denied = armarium("audit", "--json", "--tool", "read_file").json_lines
    assert (read["path"], read["outcome"], read["principal"]) == ("hello.txt", "success", "anonymous")
    assert (denied["outcome"], denied["code"]) == ("error", "PATH_ESCAPES_ROOT")
    assert denied["arguments"] == {"root": "workspace", "path": "../outside"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["old.txt", "src/a.py", ".", "src/[b].py"]),
        (("--last", "2"), [".", "src/[b].py"]),
        (("--last", "0"), []),
        (("--tool", "grep"), ["."]),
        (("--capability", "store"), []),
        (("--principal", "alice"), ["src/a.py"]),
        (("--root", "docs"), ["."]),
        (("--path", "src/"), ["src/a.py", "src/[b].py"]),
        (("--path", "src/[b]"), ["src/[b].py"]),
        (("--outcome", "error"), ["src/[b].py"]),
        (("--code", "NOT_FOUND"), ["src/[b].py"]),
        (("--since", "15m"), [".", "src/[b].py"]),
        (("--since", "1h", "--until", "20m"), ["src/a.py"]),
        (("--until", "2h"), ["old.txt"]),
        (("--since", "2000-01-01", "--tool", "grep", "--outcome", "error"), []),
    ],
)
def test_filters_select_calls(
    quick: InThisProcess, filled: Path, options: tuple[str, ...], expected: list[str]
) -> None:
    assert paths(quick, *options) == expected


def test_times_are_accepted_with_and_without_a_zone(quick: InThisProcess, filled: Path) -> None:
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    assert paths(quick, "--until", an_hour_ago.isoformat()) == ["old.txt"]
    local = an_hour_ago.astimezone().replace(tzinfo=None).isoformat()
    assert paths(quick, "--until", local) == ["old.txt"]


@pytest.mark.parametrize("when", ["yesterday", "15 minutes", "99999999999d", ""])
def test_an_invalid_time_is_refused(quick: InThisProcess, filled: Path, when: str) -> None:
    outcome = quick("audit", "--since", when)
    assert outcome.code == 2
    assert "--since" in outcome.stderr
    assert "hint:" in outcome.stderr


def test_a_pipe_gets_plain_columns(armarium: CommandLine, filled: Path) -> None:
    heading, *lines = armarium("audit").stdout.splitlines()
    assert heading.split() == ["TIME", "OUTCOME", "TOOL", "PRINCIPAL", "MS", "SUBJECT"]
    assert [line.split()[1:] for line in lines] == [
        ["success", "read_file", "owner", "1.500", "workspace:old.txt"],
        ["success", "write_file", "alice", "1.500", "workspace:src/a.py"],
        ["success", "grep", "owner", "1.500", "docs:."],
        ["NOT_FOUND", "read_file", "owner", "1.500", "workspace:src/[b].py"],
    ]


def test_control_characters_in_a_path_are_escaped(armarium: CommandLine, audit_log: AuditLog) -> None:
    audit_log.append(record(path="a\n2026 success\x1b[2J\u202e"))
    audit_log.close()
    outcome = armarium("audit")
    assert len(outcome.stdout.splitlines()) == 2
    assert r"a\n2026 success\x1b[2J\u202e" in outcome.stdout


def test_the_table_at_a_terminal_contains_complete_paths(
    environ: dict[str, str], project: Path, audit_log: AuditLog
) -> None:
    audit_log.append(record(path="[red]" + "x" * 200))
    audit_log.close()
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [installed_command("armarium"), "audit"], cwd=project, env=environ | {"COLUMNS": "110"}, stdout=theirs
    )
    os.close(theirs)
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # How the end of a terminal is told.
        pass
    finally:
        watchdog.cancel()
        os.close(ours)
    assert process.wait(DEADLINE_S) == 0
    text = said.decode()
    assert "PRINCIPAL" in text
    assert "[red]" in text
    assert text.count("x") == 200


def test_follow_prints_existing_calls_and_then_each_new_one(start: Start, audit_log: AuditLog, filled: Path) -> None:
    following = start("audit", "--follow", "--json", "--last", "1", "--tool", "read_file")
    assert json.loads(following.stdout.next())["path"] == "src/[b].py"
    audit_log.append(record(path="other", tool="grep"))
    audit_log.append(record(path="new.txt"))
    assert json.loads(following.stdout.next())["path"] == "new.txt"
    assert following.interrupt(deadline_s=5) == 0


def test_follow_prints_only_as_many_existing_calls_as_requested(
    start: Start, audit_log: AuditLog, filled: Path
) -> None:
    following = start("audit", "--follow", "--last", "0")
    assert following.stdout.next().startswith("TIME")
    audit_log.append(record(path="new.txt"))
    assert following.stdout.next().endswith("workspace:new.txt")


def test_the_audit_log_in_the_settings_is_read(
    quick: InThisProcess, project: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    elsewhere = tmp_path / "elsewhere.sqlite"
    log = AuditLog(elsewhere)
    log.append(record(path="elsewhere.txt"))
    log.close()
    (project / "armarium.yaml").write_text(f"audit: {{file: {elsewhere}}}\n")
    trust(project, environ)
    assert paths(quick) == ["elsewhere.txt"]
    (project / "armarium.yaml").unlink()
    assert paths(quick, "--file", str(elsewhere)) == ["elsewhere.txt"]


def test_a_missing_audit_log_is_reported_with_its_path(armarium: CommandLine, audit_file: Path) -> None:
    outcome = armarium("audit")
    assert outcome.code == 2
    assert str(audit_file) in outcome.stderr
    assert "hint:" in outcome.stderr


def test_a_file_that_is_not_an_audit_log_is_reported(armarium: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    other.write_text("this is not a database, and it is long enough to be looked at twice")
    outcome = armarium("audit", "--file", other, "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["code"] == "AUDIT_UNREADABLE"
