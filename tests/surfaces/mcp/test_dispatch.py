"""One call: validated arguments, deadlines, mapped errors, no leaks, a record."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, read_records
from armarium.foundation.errors import UnknownTool
from armarium.foundation.telemetry import JsonLines
from armarium.surfaces.dispatch import Caller
from support.mcp_messages import calling, gauge, open_session
from support.mcp_test_server import ALICE, ALICE_KEY, CRASH_PATH, CRASH_SECRET, Rig, build
from support.waiting import eventually

CALLER = Caller(ALICE, "http", "session-7", ALICE_KEY)


async def called(rig: Rig, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a call, once it is written down."""
    result = (await rig.dispatcher.outcome(CALLER, tool, arguments)).result
    await anyio.lowlevel.checkpoint()  # the record follows the answer
    return result


async def failed(rig: Rig, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The error in the result of a call that must fail."""
    result = await called(rig, tool, arguments)
    assert result["isError"] is True
    error = result["structuredContent"]["error"]
    (content,) = result["content"]
    hint = f"\nhint: {error['hint']}" if "hint" in error else ""
    assert content == {"type": "text", "text": error["message"] + hint}
    return error


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncGenerator[tuple[Rig, Path]]:
    """A server that writes an audit log, and the file."""
    file = tmp_path / "state" / "audit.sqlite"
    audit = AuditLog(file)
    yield build(audit=audit), file
    audit.close()


async def recorded(file: Path, count: int = 1) -> list[CallRecord]:
    """The trail, as soon as it has so many records."""
    await eventually(lambda: len(read_records(file, AuditFilter(), last=100)) >= count)
    records = [record for _, record in read_records(file, AuditFilter(), last=100)]
    assert len(records) == count
    return records


@pytest.mark.parametrize(
    ("tool", "arguments", "message", "field"),
    [
        ("echo", {}, "`text` is required", None),
        ("echo", {"text": None}, "`text` is required", None),
        ("echo", {"text": 7}, "`text` must be a string, not a number", "text"),
        ("echo", {"text": ["a"]}, "`text` must be a string, not a list", "text"),
        ("echo", {"text": "a", "times": "3"}, "`times` must be an integer, not a string", "times"),
        ("echo", {"text": "a", "times": True}, "`times` must be an integer, not true or false", "times"),
        ("echo", {"text": "a", "times": 1.5}, "`times` must be an integer, not a number", "times"),
        ("echo", {"text": "a", "tims": 3}, "unknown argument `tims`; did you mean `times`?", None),
        ("echo", {"text": "a", "zzz": 3}, "unknown argument `zzz`", None),
        ("whoami", {"anything": 1}, "unknown argument `anything`", None),
    ],
)
async def test_wrong_arguments_are_told_with_the_name_of_the_field(
    rig: Rig, tool: str, arguments: dict[str, Any], message: str, field: str | None
) -> None:
    error = await failed(rig, tool, arguments)
    assert (error["code"], error["message"], error["retryable"]) == ("INVALID_ARGUMENT", message, False)
    assert error.get("details", {}).get("field") == field


async def test_an_optional_argument_may_be_null(rig: Rig) -> None:
    result = await called(rig, "echo", {"text": "a", "times": None})
    assert result["structuredContent"] == {"text": "a"}


async def test_the_name_of_an_unknown_argument_is_not_echoed_at_length(rig: Rig) -> None:
    error = await failed(rig, "echo", {"text": "a", "x" * 100_000: 1})
    assert len(error["message"]) < 200


async def test_a_call_that_takes_too_long_is_stopped_at_its_own_deadline(rig: Rig) -> None:
    error = await failed(rig, "wait_for", {"moment": "never", "deadline_s": 0.02})
    assert error["code"] == "DEADLINE_EXCEEDED"
    assert error["retryable"] is False
    assert "0.02 seconds" in error["message"]
    assert rig.stage["never abandoned"].is_set()


async def test_a_tool_without_a_deadline_of_its_own_has_the_servers() -> None:
    rig = build(default_deadline_s=0.03)
    error = await failed(rig, "wait_for", {"moment": "never"})
    assert "0.03 seconds" in error["message"]


async def test_a_deadline_also_ends_what_a_thread_does_for_the_call(rig: Rig) -> None:
    error = await failed(rig, "work_until", {"moment": "never", "deadline_s": 0.05})
    assert error["code"] == "DEADLINE_EXCEEDED"
    await rig.stage.happens("never stopped")


@pytest.mark.parametrize("deadline_s", [None, 30])
async def test_a_timeout_within_a_tool_is_not_taken_for_the_deadline(deadline_s: float | None) -> None:
    error = await failed(build(default_deadline_s=deadline_s), "time_out", {})
    assert error["code"] == "INTERNAL"


async def test_a_crash_reaches_the_caller_as_an_incident_and_nothing_else(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    result = await called(rig, "crash", {})
    error = result["structuredContent"]["error"]
    assert (error["code"], error["retryable"]) == ("INTERNAL", False)
    incident = error["details"]["incident"]
    assert incident in error["message"]
    said = json.dumps(result)
    for secret in (CRASH_SECRET, CRASH_PATH, "RuntimeError", "Traceback", ".py"):
        assert secret not in said
    (record,) = [record for record in caplog.records if getattr(record, "incident", None) == incident]
    line = json.loads(JsonLines().format(record))
    assert (line["level"], line["tool"]) == ("ERROR", "crash")
    assert CRASH_SECRET in line["exception"], "the operator finds the reason under the incident's id"


async def test_an_answer_against_its_own_schema_is_a_fault_of_ours(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    error = await failed(rig, "lie", {})
    assert error["code"] == "INTERNAL"
    assert "answered against its schema: `size` must be an integer" in caplog.text


async def test_a_tool_nobody_has_raises_and_is_on_record(audited: tuple[Rig, Path]) -> None:
    rig, file = audited
    with pytest.raises(UnknownTool):
        await rig.dispatcher.outcome(CALLER, "n" * 500, {"path": "a", "secret": "s3cret"})
    (record,) = await recorded(file)
    assert (record.tool, record.outcome, record.code) == ("n" * 80, "error", "UNKNOWN_TOOL")
    assert json.loads(record.arguments) == {"[unknown]": 2}, "nobody knows which of its arguments are secret"


async def test_a_tool_of_another_endpoint_is_refused_and_on_record(audited: tuple[Rig, Path]) -> None:
    rig, file = audited
    with pytest.raises(UnknownTool):
        await rig.dispatcher.outcome(CALLER, "echo", {"text": "hi"}, served={"answer"})
    (record,) = await recorded(file)
    assert (record.tool, record.code) == ("echo", "UNKNOWN_TOOL")


async def test_every_call_leaves_one_audit_record(audited: tuple[Rig, Path]) -> None:
    rig, file = audited
    content = "ünïcode " * 100
    await called(rig, "keep", {"root": "workspace", "path": "notes/a.txt", "content": content})
    (record,) = await recorded(file)
    assert (record.surface, record.capability, record.tool) == ("http", "stage", "keep")
    assert (record.principal, record.apikey_hash, record.session) == ("alice", ALICE.apikey_hash, "session-7")
    assert (record.root, record.path, record.resolved_path) == ("workspace", "notes/a.txt", None)
    assert (record.outcome, record.code) == ("success", None)
    assert record.duration_ms > 0
    assert record.request_bytes == len("workspace") + len("notes/a.txt") + len(content.encode())
    assert record.response_bytes == len('{"size":800}')
    assert record.at.endswith("Z")
    arguments = json.loads(record.arguments)
    assert arguments["path"] == "notes/a.txt"
    kept = arguments["content"]
    assert set(kept) == {"length", "sha256"}
    assert kept["length"] == len(content.encode())
    assert kept["sha256"] == hashlib.sha256(content.encode()).hexdigest()


async def test_every_call_leaves_one_log_line_with_the_same_facts(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "armarium.calls")
    secret = "first line\n" + "x" * 5000
    await called(rig, "keep", {"path": "a.txt", "content": secret})
    (record,) = caplog.records
    line = json.loads(JsonLines().format(record))
    assert (line["msg"], line["level"], line["outcome"]) == ("call", "INFO", "success")
    facts = {"tool": "keep", "capability": "stage", "principal": "alice", "path": "a.txt", "surface": "http"}
    assert line.items() >= facts.items()
    assert {"time", "duration_ms", "request_bytes", "response_bytes", "call_id", "root"} <= set(line)
    assert line["arguments"]["content"]["length"] == len(secret)
    assert secret[:300] not in record.getMessage() + JsonLines().format(record).encode().decode("unicode_escape")


async def test_a_denial_is_logged_as_a_warning_with_both_paths_and_told_without_the_host_path(
    audited: tuple[Rig, Path], caplog: pytest.LogCaptureFixture
) -> None:
    rig, file = audited
    error = await failed(rig, "deny", {"root": "workspace", "path": "../etc/passwd", "content": ""})
    assert error["code"] == "PATH_ESCAPES_ROOT"
    assert (error["hint"], error["details"]) == ("stay inside", {"asked": "../etc/passwd"})
    assert CRASH_PATH not in json.dumps(error)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    line = json.loads(JsonLines().format(record))
    assert (line["msg"], line["code"]) == ("denied", "PATH_ESCAPES_ROOT")
    resolved = f"{CRASH_PATH}\\udce9"
    assert (line["attempted_path"], line["resolved_path"]) == ("../etc/passwd", resolved)
    (written,) = await recorded(file)
    assert (written.path, written.resolved_path, written.outcome) == ("../etc/passwd", resolved, "error")


async def test_a_cancelled_call_is_on_record_and_no_longer_in_flight(audited: tuple[Rig, Path]) -> None:
    rig, file = audited
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rig.dispatcher.outcome, CALLER, "work_until", {"moment": "never"})
        await rig.stage.happens("never begun")
        assert gauge(rig.metrics.exposition().decode(), "armarium_calls_in_flight") == 1
        tasks.cancel_scope.cancel()
    (record,) = await recorded(file)
    assert (record.tool, record.outcome) == ("work_until", "error")
    assert gauge(rig.metrics.exposition().decode(), "armarium_calls_in_flight") == 0
    await rig.stage.happens("never stopped")


@pytest.mark.parametrize(
    "text",
    [pytest.param(10**30, id="a number beyond 64 bits"), pytest.param("half \ud83d", id="an unpaired surrogate")],
)
async def test_no_argument_keeps_a_call_off_the_record(
    rig: Rig, caplog: pytest.LogCaptureFixture, text: object
) -> None:
    caplog.set_level(logging.INFO, "armarium.calls")
    await called(rig, "keep", {"path": "a", "content": "", "extra": text})
    (line,) = [json.loads(JsonLines().format(record)) for record in caplog.records if record.msg == "call"]
    assert (line["tool"], line["outcome"]) == ("keep", "error")


async def test_calls_errors_and_durations_are_counted(rig: Rig) -> None:
    for _ in range(3):
        await called(rig, "echo", {"text": "hi"})
    await called(rig, "echo", {})
    await called(rig, "crash", {})
    exposed = rig.metrics.exposition().decode()
    for line in (
        'armarium_calls_total{capability="stage",outcome="success",tool="echo"} 3.0',
        'armarium_calls_total{capability="stage",outcome="error",tool="echo"} 1.0',
        'armarium_errors_total{capability="stage",code="INVALID_ARGUMENT"} 1.0',
        'armarium_errors_total{capability="stage",code="INTERNAL"} 1.0',
        'armarium_call_duration_seconds_bucket{capability="stage",le="+Inf",tool="echo"} 4.0',
        'armarium_call_duration_seconds_count{capability="stage",tool="echo"} 4.0',
        "armarium_calls_in_flight 0.0",
    ):
        assert line in exposed.splitlines()


async def test_tools_nobody_has_do_not_grow_the_metrics(rig: Rig) -> None:
    before = len(rig.metrics.exposition().splitlines())
    for number in range(50):
        with pytest.raises(UnknownTool):
            await rig.dispatcher.outcome(CALLER, f"made_up_{number}", {})
    assert len(rig.metrics.exposition().splitlines()) == before


def test_a_caller_does_not_show_the_key_when_printed() -> None:
    assert ALICE_KEY not in repr(CALLER)


async def test_arguments_reach_the_tool_and_the_record_alike_over_http(
    http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "armarium.calls")
    session = await open_session(http)
    answer = await http.post("/mcp", json=calling("keep", path="a", content="é" * 10), headers=session)
    assert answer.json()["result"]["structuredContent"] == {"size": 10}
    await anyio.lowlevel.checkpoint()
    (line,) = [json.loads(JsonLines().format(record)) for record in caplog.records if record.msg == "call"]
    assert line["arguments"]["content"]["length"] == 20
