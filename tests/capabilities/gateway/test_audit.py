"""Log and audit trail of calls with invalid arguments contain nothing that may be a secret."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS
from armarium.foundation.audit import AuditFilter, CallRecord, read_records
from armarium.foundation.telemetry import JsonLines
from support.rag_fakes import ANNA, FakeUpstream, Rig, hit, resource, rig

CANARY = "canary-4b1d-in-the-wrong-place"


def served(tmp_path: Path) -> Rig:
    upstream = FakeUpstream([resource("a")], [hit("h", "a", 1.0)], declares=["bearer"])
    return rig({"one": upstream}, audit_file=tmp_path / "audit.sqlite")


async def records(rigged: Rig) -> list[CallRecord]:
    await rigged.close_audit()
    assert rigged.audit_file is not None
    return [record for _, record in read_records(rigged.audit_file, AuditFilter(), last=100)]


@pytest.mark.parametrize(
    ("tool", "arguments", "written"),
    [
        (RAW_RESULTS, {"query": "q", "sources": ["one:a"], "user-token": CANARY}, {"[unknown]": 1}),
        (RAW_RESULTS, {"query": "q", "sources": ["one:a"], CANARY: True, "x": 1}, {"[unknown]": 2}),
        (RAW_RESULTS, {"query": "q", "sources": ["one:a"], "top_k": CANARY}, {"top_k": "[hidden]"}),
        (DISCOVER, {"filters": {CANARY: CANARY}}, {"filters": "[hidden]"}),
        ("rag_connect", {"server": "one", "kind": CANARY, "token": CANARY}, {"kind": "[hidden]", "token": "[hidden]"}),
        ("rag_connect", {"server": CANARY * 3, "kind": "bearer", "token": CANARY}, {"server": "[hidden]"}),
        ("rag_connect", {"server": "one", "kind": f"{CANARY}\ud800", "token": "x"}, {"server": "[hidden]"}),
    ],
)
async def test_a_secret_in_the_wrong_place_is_not_written_down(
    tool: str, arguments: dict[str, Any], written: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rigged = served(tmp_path)
    outcome = await rigged.outcome(ANNA, tool, **arguments)
    assert outcome.error is not None
    (record,) = await records(rigged)
    assert json.loads(record.arguments).items() >= written.items()
    log = "".join(JsonLines().format(line) for line in caplog.records if line.name.startswith("armarium"))
    assert CANARY not in f"{record}{log}"
    assert "sha256" not in f"{record}{log}"
    assert record.call_id in log


async def test_what_fits_is_written_down_beside_what_does_not(tmp_path: Path) -> None:
    rigged = served(tmp_path)
    await rigged.refusal(ANNA, "rag_connect", server="one", kind="magic", token=CANARY)
    (record,) = await records(rigged)
    assert record.root == "one"
    assert json.loads(record.arguments) == {"server": "one", "kind": "[hidden]", "token": "[hidden]"}


async def test_the_caller_is_told_the_name_that_is_unknown_and_where_it_belongs(tmp_path: Path) -> None:
    rigged = served(tmp_path)
    misplaced = await rigged.refusal(ANNA, DISCOVER, filters={"bearer": CANARY})
    assert misplaced["message"] == "unknown argument `filters.bearer`; `bearer` belongs beside `filters`, not in it"
    misspelt = await rigged.refusal(ANNA, DISCOVER, filters={"serach": "x"})
    assert misspelt["message"] == "unknown argument `filters.serach`; did you mean `filters.search`?"
