"""Secret parameters: which server receives them, how long they are stored, and where they must never appear."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS, scrub
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityVerifier, server_key
from armarium.capabilities.gateway.tokens.lent_tokens import LentToken, LentTokens
from armarium.foundation.audit import AuditFilter, read_records
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.security.identity import Principal, key_hash
from armarium.foundation.telemetry import log_as_json
from armarium.foundation.tools import Relayed
from armarium.server import open_server
from armarium.settings import Settings
from armarium.surfaces.dispatch import Caller
from support.rag_fakes import ANNA, LEX, FakeSource, FakeUpstream, Rig, hit, resource, rig

Json = dict[str, Any]
CANARY = "canary-7f3e-never-written-down"
SECRET = b"a secret that both ends know"


def wiki(*declares: str, **more: Any) -> FakeUpstream:
    return FakeUpstream([resource("a", **more)], [hit("h", "a", 1.0)], declares=declares, answers=True)


@pytest.mark.contract("G1-7", "G5.4-2", "G5.6-2", "G7-2", "G12-2")
@pytest.mark.parametrize("name", SECRET_PARAMETERS)
@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
async def test_a_secret_of_the_call_reaches_the_server_that_declares_it(tool: str, name: str) -> None:
    upstream = wiki(name)
    await rig({"one": upstream}).answer(ANNA, tool, query="q", sources=["one:a"], **{name: CANARY})
    assert upstream.calls_of(tool)[0][name] == CANARY


@pytest.mark.contract("G5.4-2")
async def test_a_server_that_does_not_ask_for_a_secret_is_not_told_it() -> None:
    upstream = wiki("bearer")
    await rig({"one": upstream}).answer(ANNA, RAW_RESULTS, query="q", sources=["one:a"], api_key=CANARY)
    assert CANARY not in str(upstream.asked)


@pytest.mark.contract("G12-3")
async def test_a_secret_is_not_told_to_two_servers() -> None:
    first, second = wiki("bearer"), wiki("bearer")
    served = rig({"one": first, "two": second})
    refused = await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a", "two:a"], bearer=CANARY)
    assert refused["code"] == "INVALID_ARGUMENT"
    assert CANARY not in f"{refused}{first.asked}{second.asked}"


@pytest.mark.contract("G12-3")
async def test_while_it_is_not_known_whose_source_it_is_nobody_is_told_the_secret() -> None:
    first, second = wiki("bearer"), FakeUpstream([resource("b")], [hit("h", "b", 1.0)], declares=["bearer"])
    served = rig({"one": first, "two": second})
    await served.answer(ANNA, RAW_RESULTS, query="q", sources=["b"], bearer=CANARY)
    assert CANARY not in str(first.asked)
    assert second.calls_of(RAW_RESULTS)[0]["bearer"] == CANARY


@pytest.mark.contract("G2-5")
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
    assert served.lent_tokens.secrets(ANNA, "one") == {}


def test_a_lent_token_is_forgotten_when_its_time_is_over() -> None:
    now = 0.0
    lent = LentTokens(max_ttl_s=100, clock=lambda: now)
    assert lent.store(ANNA, "one", "bearer", CANARY, 10_000) == 100
    now = 99.0
    assert lent.secrets(ANNA, "one") == {"bearer": CANARY}
    now = 100.0
    assert lent.secrets(ANNA, "one") == {}
    assert lent.remove(ANNA, "one") is False


@pytest.mark.contract("G7-2")
def test_only_sensitive_parameters_can_be_lent() -> None:
    with pytest.raises(InvalidArgument):
        LentTokens(max_ttl_s=100).store(ANNA, "one", "username", CANARY)


def test_a_lent_token_does_not_show_where_objects_are_printed() -> None:
    assert CANARY not in repr(LentToken("bearer", CANARY, 1.0))


def test_secrets_are_taken_out_of_whatever_they_stand_in() -> None:
    said = {"a": [f"x {CANARY} y", {CANARY: 1}], "b": 2, "c": None}
    assert scrub(said, [CANARY]) == {"a": ["x [removed] y", {"[removed]": 1}], "b": 2, "c": None}


@pytest.mark.parametrize("short", ["abc", "x", "7"])
def test_a_short_secret_is_taken_out_where_it_is_a_word_and_nowhere_else(short: str) -> None:
    said = {short: f"{short}! token={short}; {short}{short} a{short}b"}
    assert scrub(said, [short]) == {short: f"[removed]! token=[removed]; {short}{short} a{short}b"}


async def connected_status(served: Rig) -> str:
    (mine,) = (await served.answer(ANNA, "rag_config"))["data_sources"]
    return mine["status"]


@pytest.mark.contract("G13-4")
@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
async def test_a_kept_token_that_the_server_calls_expired_is_asked_for_again(tool: str) -> None:
    upstream = FakeUpstream(
        [resource("a", authMode="bearer", authRequired=True)], answers=tool == SYNTHESIZED, declares=["bearer"]
    )
    served = rig({"one": upstream})
    await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token=CANARY)
    assert await connected_status(served) == "ready"
    upstream.refuse_with(tool, "rate_limited")
    await served.refusal(ANNA, tool, query="q", sources=["one:a"])
    assert await connected_status(served) == "ready"
    upstream.refuse_with(tool, "token_expired")
    assert (await served.refusal(ANNA, tool, query="q", sources=["one:a"]))["code"] == "token_expired"
    assert served.lent_tokens.secrets(ANNA, "one") == {}
    assert await connected_status(served) == "action_required"


async def test_a_kept_token_that_discovery_is_refused_for_is_let_go() -> None:
    upstream = FakeUpstream(declares=["bearer"])
    upstream.refuse_with(DISCOVER, "token_expired")
    for ask in ("discover", "search"):
        served = rig({"one": upstream})
        await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token=CANARY)
        if ask == "discover":
            await served.answer(ANNA, DISCOVER)
        else:
            await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a"])
        assert served.lent_tokens.secrets(ANNA, "one") == {}


async def test_a_kept_token_stays_when_another_one_is_refused() -> None:
    upstream = FakeUpstream([resource("a")], declares=["bearer"])
    upstream.refuse_with(RAW_RESULTS, "token_expired")
    served = rig({"one": upstream})
    await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token=CANARY)
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a"], bearer="given-in-the-call")
    await served.refusal(LEX, RAW_RESULTS, query="q", sources=["one:a"])
    assert served.lent_tokens.secrets(ANNA, "one") == {"bearer": CANARY}


Failure = Callable[[FakeUpstream], None]


def _echo_in_answer(upstream: FakeUpstream) -> None:
    upstream.say(RAW_RESULTS, {"results": {"hits": [hit("h", "a", 1.0, snippet=f"you sent {CANARY}")]}})


def _echo_in_error(upstream: FakeUpstream) -> None:
    upstream.refuse_with(RAW_RESULTS, "token_expired", f"the token {CANARY} is too old")


def _echo_in_code(upstream: FakeUpstream) -> None:
    upstream.refuse_with(RAW_RESULTS, f"bad {CANARY}")


def _echo_in_text(upstream: FakeUpstream) -> None:
    said = [{"type": "text", "text": f"Traceback: KeyError {CANARY}"}]
    upstream.say(RAW_RESULTS, Relayed(said, None, is_error=True))


@pytest.mark.contract("G3-2", "G5.4-3", "G5.7-1", "G7-3")
@pytest.mark.parametrize("failure", [_echo_in_answer, _echo_in_error, _echo_in_code, _echo_in_text])
async def test_a_secret_is_in_no_answer_log_audit_row_or_file_whatever_the_server_does_with_it(
    failure: Failure, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log_as_json("debug")
    try:
        upstream = wiki(*SECRET_PARAMETERS)
        failure(upstream)
        served = rig({"one": upstream}, audit_file=tmp_path / "audit.sqlite")
        said: list[Any] = []
        for name in SECRET_PARAMETERS:
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


@pytest.mark.contract("G12-5")
async def test_the_audit_trail_tells_who_asked_which_sources_and_what_was_denied(tmp_path: Path) -> None:
    entry = {"dataSources": [{"id": "law", "groups": ["legal"]}]}
    upstream = FakeUpstream([resource("a"), resource("law")], [hit("h", "a", 1.0)])
    served = rig({"one": upstream}, {"one": entry}, audit_file=tmp_path / "audit.sqlite")
    await served.answer(ANNA, RAW_RESULTS, query="q", sources=["one:a", "one:law"])
    await served.close_audit()
    rows = [record for _, record in read_records(tmp_path / "audit.sqlite", AuditFilter(), last=10)]
    assert [(row.principal, row.outcome, row.code, row.root, row.path) for row in rows] == [
        ("anna", "success", None, None, None),
        ("anna", "success", None, "one", "a"),
        ("anna", "error", "unauthorized_source", "one", "law"),
    ]
    assert json.loads(rows[0].arguments)["sources"] == ["one:a", "one:law"]
    assert len({row.call_id for row in rows}) == 1
    assert [row.arguments for row in rows[1:]] == ["{}", "{}"], "what was asked is told once"
    assert rows[1].duration_ms > 0, "the server took its time"


@pytest.mark.contract("G12-5")
async def test_the_audit_trail_tells_of_each_source_how_it_went(tmp_path: Path) -> None:
    good, denying, hidden = wiki(), wiki(), wiki()
    denying.refuse_with(RAW_RESULTS, "unauthorized_source")
    upstreams = {"good": good, "denying": denying, "hidden": hidden}
    served = rig(upstreams, {"hidden": {"groups": ["legal"]}}, audit_file=tmp_path / "audit.sqlite")
    sources = ["good:a", "denying:a", "hidden:a", "good:none"]
    await served.answer(ANNA, RAW_RESULTS, query="q", sources=sources)
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=sources[1:])
    await served.close_audit()
    rows = [record for _, record in read_records(tmp_path / "audit.sqlite", AuditFilter(), last=20)]
    failed = {
        ("unauthorized_source", "denying", "a"),
        ("unauthorized_source", "hidden", "a"),
        ("invalid_source", "good", "none"),
    }
    answered, refused = rows[:5], rows[5:]
    assert (answered[0].code, answered[0].root) == (None, None)
    assert {(row.code, row.root, row.path) for row in answered[1:]} == failed | {(None, "good", "a")}
    assert (refused[0].outcome, refused[0].root, refused[0].path) == ("error", None, None)
    assert {(row.code, row.root, row.path) for row in refused[1:]} == failed
    assert not hidden.asked, "a server that the caller may not see learns nothing"


@pytest.mark.parametrize("tool", [RAW_RESULTS, SYNTHESIZED])
async def test_a_call_for_one_source_is_one_row_with_its_place(tool: str, tmp_path: Path) -> None:
    upstream = FakeUpstream([resource("a")], [hit("h", "a", 1.0)], answers=True)
    served = rig({"one": upstream}, audit_file=tmp_path / "audit.sqlite")
    await served.answer(ANNA, tool, query="q", sources=["a"])
    upstream.refuse_with(tool, "token_expired")
    await served.refusal(ANNA, tool, query="q", sources=["a"])
    await served.close_audit()
    rows = [record for _, record in read_records(tmp_path / "audit.sqlite", AuditFilter(root="one"), last=20)]
    assert [(row.code, row.root, row.path) for row in rows] == [(None, "one", "a"), ("token_expired", "one", "a")]


async def test_a_call_that_is_denied_as_a_whole_tells_the_trail_what_was_asked(tmp_path: Path) -> None:
    served = rig({"one": wiki()}, {"one": {"groups": ["legal"]}}, audit_file=tmp_path / "audit.sqlite")
    await served.refusal(ANNA, RAW_RESULTS, query="q", sources=["one:a"])
    await served.close_audit()
    ((_, row),) = read_records(tmp_path / "audit.sqlite", AuditFilter(), last=10)
    assert (row.outcome, row.code, row.root, row.path) == ("error", "unauthorized_source", "one", "a")


def verifier(server: str, secret: bytes = SECRET, **more: Any) -> CapabilityVerifier:
    return CapabilityVerifier(server, server_key(secret, server), **more)


@pytest.mark.contract("G5.6-3")
async def test_a_source_that_wants_a_capability_token_is_sent_one_of_ours_for_it() -> None:
    upstream = wiki("capability_token", authMode="capability")
    served = rig({"one": upstream}, secret=SECRET)
    await served.hits(ANNA, "one:a")
    token = upstream.calls_of(RAW_RESULTS)[0]["capability_token"]
    verifier("one").verify(token, "anna", ["a"])


async def test_without_a_shared_secret_no_token_is_made_up() -> None:
    upstream = wiki("capability_token", authMode="capability")
    served = rig({"one": upstream})
    await served.hits(ANNA, "one:a")
    assert "capability_token" not in upstream.calls_of(RAW_RESULTS)[0]


async def test_a_caller_can_have_a_token_issued_for_a_source_of_theirs_only() -> None:
    entry = {"dataSources": [{"id": "a", "groups": ["legal"]}]}
    served = rig({"one": wiki()}, {"one": entry}, secret=SECRET)
    issued = await served.answer(LEX, "rag_issue_token", source="one:a", ttl_s=10)
    verifier("one").verify(issued["capability_token"], "lex", ["a"])
    assert (await served.refusal(ANNA, "rag_issue_token", source="one:a"))["code"] == "unauthorized_source"


async def test_no_token_is_issued_for_what_this_server_keeps_itself() -> None:
    served = rig({}, own=[FakeSource("corpus", {"*": ["corpus"]})], secret=SECRET)
    refused = await served.refusal(ANNA, "rag_issue_token", source="armarium:corpus")
    assert refused["code"] == "INVALID_ARGUMENT"


async def lent_again(after: Json) -> dict[str, str]:
    """What of a token lent to `one` goes out after the registry was read anew, with `one` as it says."""
    served = rig({"one": wiki("bearer"), "two": wiki("bearer")})
    for server in ("one", "two"):
        await served.answer(ANNA, "rag_connect", server=server, kind="bearer", token=CANARY)
    served.members.update(rig({"one": wiki("bearer")}, {"one": after}).members)
    served.gateway.servers_changed()
    await served.hits(ANNA, "one:a", "two:a")
    told = {name: member.calls_of(RAW_RESULTS)[0].get("bearer", "") for name, member in served.members.items()}
    assert told["two"] == CANARY, "the other server is as it was"
    return told


async def test_a_token_lent_to_a_server_is_not_given_to_another_program_under_its_name() -> None:
    assert (await lent_again({"command": "somebody-else"}))["one"] == ""


async def test_a_token_is_kept_while_only_what_people_see_of_a_server_changes() -> None:
    assert (await lent_again({"description": "the same, said better"}))["one"] == CANARY


async def test_a_token_lent_to_a_server_is_gone_with_the_server_even_if_it_comes_back() -> None:
    served = rig({"one": wiki("bearer")})
    await served.answer(ANNA, "rag_connect", server="one", kind="bearer", token=CANARY)
    one = served.members.pop("one")
    served.gateway.servers_changed()
    assert served.lent_tokens.secrets(ANNA, "one") == {}
    served.members["one"] = one
    served.gateway.servers_changed()
    assert served.lent_tokens.secrets(ANNA, "one") == {}


async def test_a_reload_forgets_what_was_lent_for_a_name_that_another_program_has_now(tmp_path: Path) -> None:
    file = tmp_path / "config/overrides/rag-mcp.json"
    file.parent.mkdir(parents=True)
    gateway = {"config_dir": str(tmp_path / "config"), "watch": False}
    settings = {"state_dir": str(tmp_path / "state"), "audit": {"enabled": False}, "gateway": gateway}
    kept = {"one": {"command": "unused"}, "two": {"command": "unused"}}
    file.write_text(json.dumps(kept))
    async with open_server(Settings.model_validate(settings)) as armarium:

        async def asked(tool: str, **arguments: Any) -> Json:
            admin = Caller(Principal("root", ("admin",), key_hash("root")), "test")
            return (await armarium.dispatcher.outcome(admin, tool, arguments)).result["structuredContent"]

        for server in kept:
            assert (await asked("rag_connect", server=server, kind="bearer", token=CANARY))["server"] == server
        file.write_text(json.dumps(kept | {"one": {"command": "another"}}))
        await asked("admin_reload")
        assert (await asked("rag_disconnect", server="one"))["forgotten"] is False
        assert (await asked("rag_disconnect", server="two"))["forgotten"] is True
