"""Sensitive parameters: to whom they go, how long they are kept, and everywhere they must never be."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rag_fakes import ANNA, LEX, FakeUpstream, hit, resource, rig

from armarium.capabilities.gateway.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.connections import Connections
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.refusals import TokenExpired, UnauthorizedSource
from armarium.capabilities.gateway.sensitive import SENSITIVE, scrubbed
from armarium.capabilities.gateway.upstreams.answers import CallResult
from armarium.foundation.audit import AuditFilter, read_records
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.telemetry import log_as_json

CANARY = "canary-7f3e-never-written-down"
SECRET = b"a secret that both ends know"


def wiki(*declares: str, **more: Any) -> FakeUpstream:
    return FakeUpstream([resource("a", **more)], [hit("h", "a", 1.0)], declares=declares, answers=True)


@pytest.mark.parametrize("name", SENSITIVE)
@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
async def test_a_secret_of_the_call_reaches_the_server_that_declares_it(tool: str, name: str) -> None:
    upstream = wiki(name)
    await rig({"one": upstream}).answer(ANNA, tool, query="q", sources=["one:a"], **{name: CANARY})
    assert upstream.calls_of(tool)[0][name] == CANARY


async def test_a_server_that_does_not_ask_for_a_secret_is_not_told_it() -> None:
    upstream = wiki("bearer")
    await rig({"one": upstream}).answer(ANNA, RAW_RESULTS, query="q", sources=["one:a"], api_key=CANARY)
    assert CANARY not in str(upstream.asked)


async def test_a_secret_is_not_told_to_two_servers() -> None:
    first, second = wiki("bearer"), wiki("bearer")
    served = rig({"one": first, "two": second})
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a", "two:a"], bearer=CANARY)
    assert refused["code"] == "INVALID_ARGUMENT"
    assert CANARY not in f"{refused}{first.asked}{second.asked}"


async def test_while_it_is_not_known_whose_source_it_is_nobody_is_told_the_secret() -> None:
    first, second = wiki("bearer"), FakeUpstream([resource("b")], [hit("h", "b", 1.0)], declares=["bearer"])
    served = rig({"one": first, "two": second})
    await served.answer(ANNA, RAW_RESULTS, query="q", sources=["b"], bearer=CANARY)
    assert CANARY not in str(first.asked)
    assert second.calls_of(RAW_RESULTS)[0]["bearer"] == CANARY


async def test_a_token_lent_for_a_server_goes_to_it_alone_and_for_its_owner_alone() -> None:
    first, second = wiki("bearer", authMode="bearer"), wiki("bearer")
    served = rig({"one": first, "two": second})
    kept = await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token=CANARY)
    assert kept == {"server": "one", "kind": "bearer", "expires_in_s": 3600}
    (mine, _) = (await served.answer(ANNA, DISCOVER))["results"]["resources"]
    assert mine["status"] == "ready"
    await served.hits(ANNA, "one:a", "two:a")
    assert first.calls_of(RAW_RESULTS)[0]["bearer"] == CANARY
    assert CANARY not in str(second.asked)
    first.asked.clear()
    await served.hits(LEX, "one:a")
    assert CANARY not in str(first.asked)
    assert (await served.answer(ANNA, "rag_disconnect", server="one"))["forgotten"] is True
    await served.hits(ANNA, "one:a")
    assert CANARY not in str(first.asked)


async def test_nothing_is_kept_for_a_server_that_the_caller_may_not_see() -> None:
    served = rig({"one": wiki()}, {"one": {"groups": ["legal"]}})
    for server in ("one", "nowhere"):
        refused = await served.refusal(ANNA, "rag_connect", server=server, kind="bearer", token=CANARY)
        assert refused["code"] == "invalid_source"
    assert served.connections.secrets(ANNA, "one") == {}


def test_a_lent_token_is_forgotten_when_its_time_is_over() -> None:
    now = 0.0
    connections = Connections(longest_s=100, clock=lambda: now)
    assert connections.keep(ANNA, "one", "bearer", CANARY, 10_000) == 100
    now = 99.0
    assert connections.secrets(ANNA, "one") == {"bearer": CANARY}
    now = 100.0
    assert connections.secrets(ANNA, "one") == {}
    assert connections.forget(ANNA, "one") is False


def test_only_sensitive_parameters_can_be_lent() -> None:
    with pytest.raises(InvalidArgument):
        Connections(longest_s=100).keep(ANNA, "one", "username", CANARY)


def test_a_lent_token_does_not_show_where_objects_are_printed() -> None:
    connections = Connections(longest_s=100)
    connections.keep(ANNA, "one", "bearer", CANARY)
    assert CANARY not in repr(list(connections._kept.values()))


def test_secrets_are_taken_out_of_whatever_they_stand_in() -> None:
    said = {"a": [f"x {CANARY} y", {CANARY: 1}], "b": 2, "c": None}
    assert scrubbed(said, {"bearer": CANARY}) == {"a": ["x [removed] y", {"[removed]": 1}], "b": 2, "c": None}


Failure = Callable[[FakeUpstream], None]


def _echo_in_answer(upstream: FakeUpstream) -> None:
    upstream.say(RAW_RESULTS, {"results": {"hits": [hit("h", "a", 1.0, snippet=f"you sent {CANARY}")]}})


def _echo_in_error(upstream: FakeUpstream) -> None:
    upstream.refuse_with(RAW_RESULTS, "token_expired", f"the token {CANARY} is too old")


def _echo_in_code(upstream: FakeUpstream) -> None:
    upstream.refuse_with(RAW_RESULTS, f"bad {CANARY}")


def _echo_in_text(upstream: FakeUpstream) -> None:
    said = [{"type": "text", "text": f"Traceback: KeyError {CANARY}"}]
    upstream.say(RAW_RESULTS, CallResult(None, said, is_error=True))


@pytest.mark.parametrize("failure", [_echo_in_answer, _echo_in_error, _echo_in_code, _echo_in_text])
async def test_a_secret_is_in_no_answer_log_audit_row_or_file_whatever_the_server_does_with_it(
    failure: Failure, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_as_json("debug")
    try:
        upstream = wiki(*SENSITIVE)
        failure(upstream)
        served = rig({"one": upstream}, audit_file=tmp_path / "audit.sqlite")
        said: list[Any] = []
        for name in SENSITIVE:
            arguments = {"query": "q", "sources": ["one:a"], name: CANARY}
            said.append((await served.outcome(ANNA, RAW_RESULTS, **arguments)).result)
        misplaced: list[dict[str, Any]] = [
            {"filters": {"bearer": CANARY}},
            {"ranking": {"api_key": CANARY}},
            {"token": CANARY},
            {"bearer": {"value": CANARY}},
            {"bearer": CANARY * 1000},
        ]
        for arguments in misplaced:
            said.append((await served.outcome(ANNA, RAW_RESULTS, query="q", sources=["one:a"], **arguments)).result)
        said.append((await served.outcome(ANNA, "rag_connect", server="one", kind="nothing", token=CANARY)).result)
        said.append((await served.outcome(ANNA, "rag_connect", server="one", kind="bearer", token=CANARY)).result)
        said.append((await served.outcome(ANNA, RAW_RESULTS, query="q", sources=["one:a"])).result)
        await served.close_audit()
    finally:
        logging.getLogger().handlers.clear()
    assert CANARY in str(upstream.asked), "the server was told"
    assert CANARY not in json.dumps(said)
    written = capfd.readouterr()
    assert "asked a server" in written.err, "the log was looked at"
    assert CANARY not in written.err + written.out
    files = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert RAW_RESULTS.encode() in files, "the audit trail was looked at"
    assert CANARY.encode() not in files


async def test_the_audit_trail_tells_who_asked_which_sources_and_what_was_denied(tmp_path: Path) -> None:
    entry = {"dataSources": [{"id": "law", "groups": ["legal"]}]}
    upstream = FakeUpstream([resource("a"), resource("law")], [hit("h", "a", 1.0)])
    served = rig({"one": upstream}, {"one": entry}, audit_file=tmp_path / "audit.sqlite")
    await served.answer(ANNA, RAW_RESULTS, query="q", sources=["one:a", "one:law"])
    await served.close_audit()
    rows = [record for _, record in read_records(tmp_path / "audit.sqlite", AuditFilter(), last=10)]
    assert [(row.principal, row.outcome, row.code, row.root, row.path) for row in rows] == [
        ("anna", "success", None, None, None),
        ("anna", "error", "unauthorized_source", "one", "law"),
    ]
    assert json.loads(rows[0].arguments)["sources"] == ["one:a", "one:law"]


async def test_a_call_that_is_denied_as_a_whole_tells_the_trail_what_was_asked(tmp_path: Path) -> None:
    served = rig({"one": wiki()}, {"one": {"groups": ["legal"]}}, audit_file=tmp_path / "audit.sqlite")
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a"])
    await served.close_audit()
    ((_, row),) = read_records(tmp_path / "audit.sqlite", AuditFilter(), last=10)
    assert (row.outcome, row.code, row.root, row.path) == ("error", "unauthorized_source", "one", "a")


def test_a_capability_token_is_good_for_its_user_its_sources_and_its_time() -> None:
    now = 1000.0
    tokens = CapabilityTokens(SECRET, ttl_s=60, clock=lambda: now)
    token, expires_at = tokens.issue("anna", ["a", "b"], ttl_s=3600)
    assert expires_at == 1060, "never longer than the settings allow"
    assert tokens.verify(token, "anna", ["a"]).sources == ("a", "b")
    for username, sources in (("lex", ["a"]), ("anna", ["c"]), ("anna", ["a", "c"])):
        with pytest.raises(UnauthorizedSource):
            tokens.verify(token, username, sources)
    now = 1060.0
    with pytest.raises(TokenExpired):
        tokens.verify(token, "anna", ["a"])


def test_a_token_that_was_changed_or_signed_by_somebody_else_is_refused() -> None:
    tokens = CapabilityTokens(SECRET)
    token, _ = tokens.issue("anna", ["a"])
    version, claims, signature = token.split(".")
    forged, _ = CapabilityTokens(b"another secret altogether").issue("anna", ["a"])
    other, _ = tokens.issue("lex", ["law"])
    changed = f"{version}.{other.split('.')[1]}.{signature}"
    for wrong in (forged, changed, f"x{token}", token[:-1], f"{version}.{claims}", "", ".", "a.b.c", "\udcff.x.y"):
        with pytest.raises(TokenExpired):
            tokens.verify(wrong, "anna", ["a"])


async def test_a_source_that_wants_a_capability_token_is_sent_one_of_ours_for_it() -> None:
    upstream = wiki("capability_token", authMode="capability")
    served = rig({"one": upstream}, secret=SECRET)
    await served.hits(ANNA, "one:a")
    token = upstream.calls_of(RAW_RESULTS)[0]["capability_token"]
    assert CapabilityTokens(SECRET).verify(token, "anna", ["a"])


async def test_without_a_shared_secret_no_token_is_made_up() -> None:
    upstream = wiki("capability_token", authMode="capability")
    served = rig({"one": upstream})
    await served.hits(ANNA, "one:a")
    assert "capability_token" not in upstream.calls_of(RAW_RESULTS)[0]


async def test_a_caller_can_have_a_token_issued_for_a_source_of_theirs_only() -> None:
    entry = {"dataSources": [{"id": "a", "groups": ["legal"]}]}
    served = rig({"one": wiki()}, {"one": entry}, secret=SECRET)
    issued = await served.answer(LEX, "rag_issue_token", source="one:a", ttl_s=10)
    assert CapabilityTokens(SECRET).verify(issued["capability_token"], "lex", ["a"])
    assert (await served.refusal(ANNA, "rag_issue_token", source="one:a"))["code"] == "unauthorized_source"
