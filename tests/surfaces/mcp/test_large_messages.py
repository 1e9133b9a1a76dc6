"""Large messages: above a limit they are rejected before they cost anything, below it they arrive complete."""

from __future__ import annotations

import json
import logging
import traceback
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.foundation.audit import AuditFilter, AuditLog, read_records
from armarium.foundation.errors import ResponseTooLarge, UnknownTool
from armarium.foundation.settings.model import LimitSettings
from armarium.surfaces.caller import Caller
from armarium.surfaces.json import encoder as response_encoder
from armarium.surfaces.json.bounds import MAX_ARGUMENTS, MAX_MEMBERS, has_at_most_values
from armarium.surfaces.json.encoder import EncodedJson, encode_answer, encode_message, encode_value, estimate_size
from armarium.surfaces.json.text import replace_surrogates
from armarium.surfaces.mcp.event_stream import DeferredParts
from support.mcp_messages import calling, http_client, open_session, request, serving
from support.mcp_test_server import ALICE, ALICE_KEY, Rig, build
from support.waiting import eventually

MIB = 1024 * 1024
MODERN = "2026-07-28"
CALLER = Caller(ALICE, "http", "session-7", ALICE_KEY)
FEW = LimitSettings(max_argument_values=1000, max_argument_depth=64)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(), inner, max_size=8),
    max_leaves=40,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=8)


def nested(depth: int) -> Any:
    value: Any = "deep"
    for _ in range(depth):
        value = [value]
    return value


TOO_MUCH = {
    "many arguments": {f"k{number}": 1 for number in range(MAX_ARGUMENTS + 1)},
    "many values": {"text": "a", "more": [1] * 2000},
    "many values at every depth": {"text": "a", "more": [[1] * 20] * 100},
    "many members": {"text": "a", "more": {f"k{number}": 1 for number in range(MAX_MEMBERS + 1)}},
    "deep lists": {"text": nested(1000)},
    "just too deep": {"text": nested(64)},
}


@pytest.mark.parametrize("arguments", TOO_MUCH.values(), ids=TOO_MUCH.keys())
async def test_arguments_that_are_too_many_or_too_deep_are_refused_and_on_record(
    arguments: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    audit = AuditLog(tmp_path / "audit.sqlite")
    rig = build(audit=audit, limits=FEW)
    with caplog.at_level(logging.INFO, "armarium.calls"):
        result = (await rig.dispatcher.outcome(CALLER, "echo", arguments)).result
        await anyio.lowlevel.checkpoint()
    audit.close()
    assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENT"
    ((_, record),) = read_records(tmp_path / "audit.sqlite", AuditFilter(), last=10)
    assert (record.tool, record.outcome, record.code) == ("echo", "error", "INVALID_ARGUMENT")
    assert json.loads(record.arguments) == {"[unknown]": len(arguments)}
    assert [line.message for line in caplog.records] == ["call"]


async def test_a_call_of_an_unknown_tool_is_on_record_whatever_its_arguments(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.sqlite")
    rig = build(audit=audit)
    for arguments in TOO_MUCH.values():
        with pytest.raises(UnknownTool):
            await rig.dispatcher.outcome(CALLER, "nobody_knows", arguments)
    audit.close()
    records = read_records(tmp_path / "audit.sqlite", AuditFilter(), last=10)
    assert [record.code for _, record in records] == ["UNKNOWN_TOOL"] * len(TOO_MUCH)


async def test_arguments_at_the_limits_are_taken(rig: Rig) -> None:
    for arguments in (
        {"text": nested(62)},
        {"text": ["a"] * 10_000},
        {"text": "a", "more": {str(n): n for n in range(4000)}},
    ):
        result = (await rig.dispatcher.outcome(CALLER, "echo", arguments)).result
        message: str = result["structuredContent"]["error"]["message"]
        assert message.startswith(("`text` must be a string", "unknown argument `more`")), message


async def test_large_arguments_are_redacted_checked_and_used_like_small_ones(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.sqlite")
    rig = build(audit=audit)
    content = "x" * MIB
    result = (await rig.dispatcher.outcome(CALLER, "keep", {"path": "a", "content": content})).result
    assert result["structuredContent"] == {"size": MIB}
    result = (await rig.dispatcher.outcome(CALLER, "keep", {"path": 7, "content": content})).result
    assert result["structuredContent"]["error"]["message"] == "`path` must be a string, not a number"
    await anyio.lowlevel.checkpoint()
    audit.close()
    (_, kept), (_, refused) = read_records(tmp_path / "audit.sqlite", AuditFilter(), last=10)
    assert (kept.path, kept.request_bytes) == ("a", MIB + 1)
    assert json.loads(kept.arguments)["content"]["length"] == MIB
    assert (refused.outcome, refused.request_bytes) == ("error", MIB)


@given(json_objects, st.integers(0, 60))
def test_counting_the_values_of_a_text_agrees_with_parsing_it(value: dict[str, Any], most: int) -> None:
    def marks(value: Any) -> int:
        inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else max(1, len(inner)) + sum(map(marks, inner))

    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False), json.dumps(value, indent=1)):
        assert has_at_most_values(text.encode("utf-8", "replace"), most) is (marks(value) <= most)


@given(st.binary(max_size=300))
def test_counting_ends_for_any_bytes(text: bytes) -> None:
    has_at_most_values(b'{"' + text, 1)
    has_at_most_values(b"[,,,,,,,,,," + text, 2)


async def test_a_body_with_too_many_values_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = build(max_body_bytes=16 * MIB, request_limits=LimitSettings(max_argument_values=20_000))
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        parsed = False

        def parse(text: bytes) -> Any:
            nonlocal parsed
            parsed = parsed or len(text) > MIB
            return orjson.loads(text)

        monkeypatch.setattr("armarium.surfaces.json.bounds.decode", parse)
        attack = calling("echo", **{f"k{number}": number for number in range(300_000)})
        refused = await http.post("/mcp", json=attack, headers=session)
        assert refused.status_code == 413
        assert refused.json()["error"]["data"]["code"] == "TOO_MANY_VALUES"
        assert not parsed
        # As many commas and brackets within a text are none of ours.
        content = 'He said "[yes], {no}", and, \\ then, left.\n' * 30_000
        answer = await http.post("/mcp", json=calling("keep", path="a", content=content), headers=session)
        assert answer.json()["result"]["structuredContent"] == {"size": len(content)}
        assert parsed


@given(json_objects)
def test_an_encoded_answer_is_the_same_json(answer: dict[str, Any]) -> None:
    expected = replace_surrogates(answer)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(response_encoder, "PIECE_BYTES", 7)
        texts = [text for text in answer.values() if isinstance(text, str)]
        for given_texts in (None, texts):
            result = encode_answer(answer, given_texts, 10 * MIB)
            message = {"jsonrpc": "2.0", "id": "ü", "result": {**result, "isError": False}}
            told = json.loads(b"".join(encode_message(message)))["result"]
            assert told["structuredContent"] == expected
            if given_texts is None:
                assert json.loads(told["content"][0]["text"]) == expected
            else:
                assert [block["text"] for block in told["content"]] == replace_surrogates(texts)


def test_a_text_that_an_answer_repeats_is_in_memory_once() -> None:
    content = "\x01" * MIB
    result = encode_answer({"content": content, "size": 1}, [content, "facts"], 100 * MIB)
    pieces = {id(piece): len(piece) for part in result.values() for piece in part.pieces}
    assert sum(part.size for part in result.values()) > 12 * MIB
    assert sum(pieces.values()) < 6.5 * MIB


@given(json_objects)
def test_the_estimated_size_of_a_value_is_about_its_size(value: dict[str, Any]) -> None:
    size = len(json.dumps(value, ensure_ascii=False))
    assert estimate_size(value) <= 12 * size
    assert size <= 60 + 12 * estimate_size(value)


def test_the_estimated_size_of_long_lists_is_about_their_size() -> None:
    entries = [{"name": f"file_{number}", "size": number, "type": "file"} for number in range(10_000)]
    assert 0.3 < estimate_size({"entries": entries}) / len(orjson.dumps(entries)) < 3


@pytest.mark.parametrize("value", [{"text": "x" * 1000}, {"items": ["x"] * 400}, {"items": [{"a": [1] * 40}] * 10}])
def test_encoding_stops_when_an_answer_is_too_large(value: dict[str, Any]) -> None:
    with pytest.raises(ResponseTooLarge):
        encode_value(value, 500)
    with pytest.raises(ResponseTooLarge):
        encode_answer(value, None, 500)


@pytest.mark.parametrize("form", ["plain", "encoded", "structured"])
async def test_an_answer_that_is_too_large_is_an_error_with_a_hint(form: Any) -> None:
    rig = build(limits=LimitSettings(max_response_bytes=MIB))
    result = (await rig.dispatcher.outcome(CALLER, "fill", {"size": 2 * MIB}, form=form)).result
    error = result["structuredContent"]["error"]
    assert (error["code"], error["retryable"]) == ("RESPONSE_TOO_LARGE", False)
    assert "smaller part" in error["hint"]
    assert not any(isinstance(value, EncodedJson) for value in result.values())


@pytest.mark.parametrize("token", [None, "progress"])
async def test_a_large_answer_arrives_whole_over_http(token: str | None) -> None:
    rig = build(max_body_bytes=4 * MIB)
    text = 'snow ❄ and "quotes" \n \x01' * 60_000
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        message = calling("echo", id="big", token=token, text=text)
        answer = await http.post("/mcp", json=message, headers=session)
        body = answer.text.partition("data: ")[2] if "event-stream" in answer.headers["content-type"] else answer.text
        reply = json.loads(body)
    assert reply["id"] == "big"
    assert reply["result"]["structuredContent"] == {"text": text}
    assert json.loads(reply["result"]["content"][0]["text"]) == {"text": text}


async def test_the_record_of_a_large_answer_has_its_size(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.sqlite")
    rig = build(audit=audit)
    await rig.dispatcher.outcome(CALLER, "fill", {"size": MIB}, form="encoded")
    await eventually(lambda: len(read_records(tmp_path / "audit.sqlite", AuditFilter(), last=1)) == 1)
    audit.close()
    ((_, record),) = read_records(tmp_path / "audit.sqlite", AuditFilter(), last=1)
    assert 2 * MIB < record.response_bytes < 2.1 * MIB


LONG = "x" * 500_000
MANY = {str(number): 1 for number in range(20_000)}


@pytest.mark.parametrize(
    "message",
    [
        request("initialize", {"protocolVersion": "1", "capabilities": {"experimental": MANY}, "clientInfo": {}}),
        request("tools/list", {"_meta": MANY}),
        request("tools/list", {"cursor": LONG}),
        request("tools/call", {"name": "echo", "arguments": {"text": "hi"}, "_meta": {"progressToken": LONG}}),
        request("tools/call", {"name": LONG}),
        request(LONG),
        request("tools/list", id=LONG),
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": MANY},
        request("tools/list", {"_meta": json.loads("[" * 200 + "]" * 200)}),
    ],
    ids=lambda message: message["method"][:40],
)
async def test_what_is_long_besides_the_arguments_of_a_call_is_refused_before_anybody_looks_at_it(
    http: httpx.AsyncClient, session: dict[str, str], message: dict[str, Any]
) -> None:
    refused = await http.post("/mcp", json=message, headers=session)
    assert refused.status_code == 413
    assert len(refused.content) < 1000
    taken = await http.post("/mcp", json=calling("echo", text=LONG), headers=session)
    assert taken.json()["result"]["structuredContent"] == {"text": LONG}


async def test_a_client_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("armarium.surfaces.http.responses.SEND_TIMEOUT_S", 0.2)
    rig = build()
    async with serving(rig.app) as url, http_client(url) as http:
        session = await open_session(http)
        await _take_nothing(rig, http, calling("fill", size=20 * MIB), session)


async def _take_nothing(rig: Rig, http: httpx.AsyncClient, message: dict[str, Any], headers: dict[str, str]) -> None:
    in_flight = rig.dispatcher.response_bytes
    async with http.stream("POST", "/mcp", json=message, headers=headers) as answer:
        assert answer.status_code == 200
        assert in_flight.total > 20 * MIB
        await eventually(lambda: in_flight.total == 0)
        with pytest.raises(httpx.RemoteProtocolError):
            await answer.aread()


async def test_without_a_session_large_answers_wait_for_each_other_and_arrive_whole() -> None:
    rig = build(limits=LimitSettings(response_bytes_in_flight=3 * MIB, max_response_bytes=8 * MIB))
    message, headers = sessionless(calling("fill", size=MIB))
    texts: list[str] = []
    async with serving(rig.app) as url, http_client(url) as http:

        async def fill() -> None:
            answer = await http.post("/mcp", json=message, headers=headers)
            texts.append(answer.json()["result"]["structuredContent"]["text"])

        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                tasks.start_soon(fill)
        await eventually(lambda: rig.dispatcher.response_bytes.total == 0)
    assert texts == ["x" * MIB] * 6


@pytest.mark.parametrize("form", ["encoded", "structured"])
async def test_a_call_that_is_cancelled_keeps_nothing_of_its_answer(form: Any) -> None:
    rig = build(limits=LimitSettings(response_bytes_in_flight=MIB))
    kept_by: list[BaseException] = []

    async def fill() -> None:
        try:
            await rig.dispatcher.outcome(CALLER, "fill", {"size": MIB}, form=form)
        except BaseException as cut_short:
            kept_by.append(cut_short)
            raise

    first = (await rig.dispatcher.outcome(CALLER, "fill", {"size": MIB}, form=form)).result
    in_flight = rig.dispatcher.response_bytes
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fill)
        await eventually(lambda: len(in_flight.waiting) == 1)
        tasks.cancel_scope.cancel()
    (cut_short,) = kept_by
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(cut_short.__traceback__)]
    assert not [local for frame in frames for local in frame.values() if estimate_size(local) >= MIB]
    assert first


def sessionless(message: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The call as clients word it from 2026-07-28 on, and its headers."""
    meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
    params = message["params"]
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": params["name"]}
    return message | {"params": params | {"_meta": params.get("_meta", {}) | meta}}, headers


async def test_a_large_answer_without_a_session_is_encoded_and_arrives_whole() -> None:
    rig = build(max_body_bytes=4 * MIB)
    text = 'snow ❄ and "quotes" \n \x01' * 60_000
    message, headers = sessionless(calling("echo", id="big", text=text))
    async with serving(rig.app) as url, http_client(url) as http:
        answer = await http.post("/mcp", json=message, headers=headers)
    reply = answer.json()
    assert (reply["id"], reply["result"]["resultType"]) == ("big", "complete")
    assert reply["result"]["structuredContent"] == {"text": text}
    assert json.loads(reply["result"]["content"][0]["text"]) == {"text": text}
    assert int(answer.headers["content-length"]) == len(answer.content)


async def test_the_bytes_of_a_large_answer_without_a_session_count_until_they_are_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("armarium.surfaces.http.responses.SEND_TIMEOUT_S", 0.2)
    rig = build()
    message, headers = sessionless(calling("fill", size=20 * MIB))
    async with serving(rig.app) as url, http_client(url) as http:
        await _take_nothing(rig, http, message, headers)


@pytest.mark.parametrize("form", ["plain", "encoded"])
async def test_what_counts_is_the_size_of_the_answer_as_json(form: Any) -> None:
    rig = build(limits=LimitSettings(max_response_bytes=4 * MIB))
    result = (await rig.dispatcher.outcome(CALLER, "echo", {"text": "\x01" * MIB}, form=form)).result
    assert result["structuredContent"]["error"]["code"] == "RESPONSE_TOO_LARGE"


async def test_deferred_parts_come_back_at_the_end_of_an_event_stream() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    large = DeferredParts()
    sending = large.restore(send)
    await sending({"type": "http.response.start", "status": 200, "headers": []})
    await sending({"type": "http.response.body", "body": b"event: message\r\ndata: {}\r\n\r\n", "more_body": True})
    small = large.take_from({"content": EncodedJson([b"[1,", b"2]"]), "structuredContent": {"a": 1}})
    assert small == {"content": [], "structuredContent": {"a": 1}}
    await sending({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})
    told = json.dumps({"jsonrpc": "2.0", "id": 1, "result": small}).encode()
    await sending({"type": "http.response.body", "body": b"event: message\r\ndata: " + told + b"\r\n\r\n"})

    assert [message["type"] for message in sent[:3]] == ["http.response.start", *["http.response.body"] * 2]
    body = b"".join(message["body"] for message in sent[3:])
    assert body.startswith(b"event: message\r\ndata: {")
    assert body.endswith(b"}\r\n\r\n")
    whole = json.loads(body.partition(b"data: ")[2])
    assert whole == {"jsonrpc": "2.0", "id": 1, "result": {"content": [1, 2], "structuredContent": {"a": 1}}}
    assert not sent[-1].get("more_body")
