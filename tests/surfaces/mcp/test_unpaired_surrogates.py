"""Unpaired surrogates, which JSON can escape and UTF-8 cannot encode, are rejected, and every call is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, read_records
from armarium.foundation.surrogates import has_unpaired_surrogate
from armarium.surfaces.json.text import NotJson, decode, encode
from support.mcp_messages import calling, http_client, open_session, opening, request, serving
from support.mcp_test_server import build
from support.waiting import eventually

HALF = "half \ud83d"
MODERN = "2026-07-28"
SPELT = '"half \\ud83d"'


def spelt(message: dict[str, Any]) -> bytes:
    """The message as a client writes it that escapes what is not ASCII."""
    return json.dumps(message).encode()


def test_half_characters_are_read_as_they_are_spelt() -> None:
    assert decode(f'{{"a": [{SPELT}, "\\ud83d\\ude00", 1.5]}}'.encode()) == {"a": [HALF, "😀", 1.5]}


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[1,]", "NaN", "\\ud800", f"[{SPELT}, NaN]", f"[{SPELT}, -Infinity]", f"[{SPELT}, 1e999]"),
        *(f"[{SPELT},]", f"[{SPELT}, {'1' * 5000}]", "[" * 100_000 + SPELT, f"[{SPELT}, 01]"),
    ],
)
def test_what_is_no_json_stays_none_beside_half_characters(text: str) -> None:
    with pytest.raises(NotJson):
        decode(text.encode())


def test_bytes_that_are_no_utf_8_are_no_json() -> None:
    with pytest.raises(NotJson):
        decode(b'["\\ud800", "\xed\xa0\x80"]')


def test_an_answer_never_has_half_characters_in_it() -> None:
    answer = {"jsonrpc": "2.0", "id": 1, "result": {HALF: [HALF, {"a": HALF, "n": 1}]}}
    assert json.loads(encode(answer))["result"] == {"half ?": ["half ?", {"a": "half ?", "n": 1}]}


def test_integers_of_any_size_are_written() -> None:
    """Servers behind the gateway may send them."""
    answer = {"jsonrpc": "2.0", "id": 1, "result": {HALF: [10**30, 1]}}
    assert json.loads(encode(answer))["result"] == {"half ?": [10**30, 1]}
    assert json.loads(encode(answer, newline=True)) == json.loads(encode(answer))
    assert json.loads(encode({"id": 1, "result": object()}))["error"]["message"] == "Internal error"


def test_a_pair_of_escapes_is_a_whole_character() -> None:
    assert not has_unpaired_surrogate("ä😀")
    assert has_unpaired_surrogate(HALF)


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "a", "content": HALF, "root": HALF},
        {"path": "a", "content": "x", HALF: 1},
        {"path": "a", "content": "x", "extra": [{"deep": HALF}]},
    ],
)
async def test_a_tool_refuses_them_and_the_call_keeps_its_id_and_its_record(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    file = tmp_path / "audit.sqlite"
    trail = AuditLog(file)
    try:
        async with serving(build(audit=trail).app) as address, http_client(address) as http:
            session = await open_session(http)
            answer = await http.post("/mcp", content=spelt(calling("keep", id="seven", **arguments)), headers=session)
            assert answer.status_code == 200
            assert answer.json()["id"] == "seven"
            result = answer.json()["result"]
            assert result["structuredContent"]["error"]["code"] == "INVALID_ARGUMENT"
            assert (
                "unpaired surrogate" in result["content"][0]["text"]
                or "unknown argument" in result["content"][0]["text"]
            )
            healthy = await http.post("/mcp", json=calling("echo", text="hi"), headers=session)
            assert healthy.json()["result"]["structuredContent"] == {"text": "hi"}
        await eventually(lambda: len(records(file)) == 2)
        assert [record.outcome for record in records(file)] == ["error", "success"]
    finally:
        trail.close()


def records(file: Path) -> list[CallRecord]:
    return [record for _, record in read_records(file, AuditFilter(), last=10)]


async def test_a_client_without_a_session_is_answered_alike(address: str) -> None:
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "echo"}
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientInfo": {"name": "by-hand", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = calling("echo", id="seven", text=HALF)
    message["params"]["_meta"] = meta
    async with http_client(address, **headers) as http:
        answer = await http.post("/mcp", content=spelt(message))
    reply = answer.json() if answer.text.startswith("{") else json.loads(answer.text.partition("data: ")[2])
    assert reply["id"] == "seven"
    assert reply["result"]["structuredContent"]["error"]["details"] == {"field": "text"}


async def test_a_tool_that_would_say_them_again_refuses_too(http: httpx.AsyncClient, session: dict[str, str]) -> None:
    answer = await http.post("/mcp", content=spelt(calling("echo", text=HALF)), headers=session)
    assert answer.json()["result"]["structuredContent"]["error"]["details"] == {"field": "text"}


@pytest.mark.parametrize(
    "message",
    [
        calling(HALF),
        request(HALF),
        request("tools/call", {"name": "echo", "arguments": {}, "_meta": {"progressToken": HALF}}),
        request("tools/list", {"cursor": HALF}),
    ],
)
async def test_elsewhere_in_a_request_they_are_answered_under_its_id(
    http: httpx.AsyncClient, session: dict[str, str], message: dict[str, Any]
) -> None:
    answer = await http.post("/mcp", content=spelt(message), headers=session)
    assert answer.status_code == 200
    assert answer.json()["id"] == 1


async def test_an_id_that_cannot_be_repeated_is_refused(http: httpx.AsyncClient, session: dict[str, str]) -> None:
    answer = await http.post("/mcp", content=spelt(calling("echo", id=HALF, text="hi")), headers=session)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == -32600


async def test_a_client_whose_name_is_cut_is_told_so(http: httpx.AsyncClient) -> None:
    message = opening()
    message["params"]["clientInfo"]["name"] = HALF
    answer = await http.post("/mcp", content=spelt(message))
    assert (answer.status_code, answer.json()["id"]) == (200, "opening")
