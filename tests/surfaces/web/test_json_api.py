"""The JSON API: arguments, answers, errors, and the same checks and records as over MCP."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, read_records
from armarium.foundation.sockets import listen
from armarium.surfaces.mcp.http_server import serve_http
from support.notes_api import BASE, KEY, STAFF_KEY, Demo, caller_of, demo
from support.waiting import eventually

ORIGIN = "https://console.example.com"
UNREADABLE = "the query is not percent-encoded UTF-8, or has too many fields"


@pytest.fixture
def server() -> Demo:
    """A server with the usual settings."""
    return demo()


@pytest.fixture
async def carol(server: Demo) -> AsyncGenerator[httpx.AsyncClient]:
    """A caller of it."""
    async with caller_of(server.app) as client:
        yield client


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error in the capability's own envelope."""
    return answer.json()["error"]


def refusal_of(answer: httpx.Response) -> str:
    """The code of what never became a call."""
    body = answer.json()
    assert set(body) == {"error", "code"}
    assert isinstance(body["error"], str)
    return body["code"]


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("", {}),
        ("limit=3&newest=true&weight=0.5&kind=long", {"limit": 3, "newest": True, "weight": 0.5, "kind": "long"}),
        ("weight=2", {"weight": 2.0}),
        ("tags=a", {"tags": ["a"]}),
        ("tags=1&tags=true", {"tags": ["1", "true"]}),
        ("numbers=1&numbers=-2", {"numbers": [1, -2]}),
        ("note=7", {"note": "7"}),
        ("note=", {"note": ""}),
        ("note=caf%C3%A9+%26+tea", {"note": "café & tea"}),
    ],
)
async def test_texts_of_a_query_become_what_the_schema_says(
    carol: httpx.AsyncClient, query: str, asked: dict[str, Any]
) -> None:
    answer = await carol.get(f"/api/demo/notes?{query}")
    assert (answer.status_code, answer.json()["asked"]) == (200, asked)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=many", "`limit` must be an integer, not a string"),
        ("limit=", "`limit` must be an integer, not a string"),
        ("limit=true", "`limit` must be an integer, not a string"),
        ("limit=01", "`limit` must be an integer, not a string"),
        ("limit=1.5", "`limit` must be an integer, not a number"),
        ("limit=0", "`limit` must be at least 1"),
        ("limit=101", "`limit` must be at most 100"),
        ("newest=1", "`newest` must be true or false, not a string"),
        ("numbers=1&numbers=x", "`numbers.1` must be an integer, not a string"),
        ("kind=wide", "unsupported kind: wide; supported: short, long"),
        ("lmit=1", "unknown argument `lmit`; did you mean `limit`?"),
        ("limit=1&limit=2", "`limit` is given twice"),
        ("other=1&other=2", "`other` is given twice"),
        ("note=%ff", UNREADABLE),
        (
            "&".join(f"x{number}=1" for number in range(1001)),
            UNREADABLE,
        ),
    ],
)
async def test_a_query_that_does_not_fit_is_told_in_the_capabilitys_envelope(
    carol: httpx.AsyncClient, query: str, message: str
) -> None:
    answer = await carol.get(f"/api/demo/notes?{query}")
    assert answer.status_code == 400
    assert (error_of(answer)["code"], error_of(answer)["message"]) == ("INVALID_ARGUMENT", message)


async def test_a_note_is_created_changed_and_deleted(carol: httpx.AsyncClient) -> None:
    made = await carol.post("/api/demo/notes", json={"title": "tea", "text": "green"})
    assert (made.status_code, made.json()) == (201, {"number": 1, "title": "tea", "text": "green"})
    changed = await carol.patch("/api/demo/notes/1", json={"title": "tea", "text": " or black"})
    assert (changed.status_code, changed.json()["text"]) == (200, "green or black")
    written = await carol.put("/api/demo/notes/1", params={"title": "coffee"}, json={"text": "none"})
    assert (written.status_code, written.json()) == (200, {"number": 1, "title": "coffee", "text": "none"})
    assert (await carol.get("/api/demo/notes/1")).json() == written.json()
    dropped = await carol.delete("/api/demo/notes/1")
    assert (dropped.status_code, dropped.content) == (204, b"")
    assert "content-length" not in dropped.headers
    assert (await carol.get("/api/demo/notes/1")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "message"),
    [
        ("PUT", "/notes/1?title=t", {"number": 2}, "`number` is already in the path"),
        ("PUT", "/notes/1?title=t", {"mode": "add"}, "`mode` cannot be chosen here"),
        ("PUT", "/notes/1?title=t&mode=add", {}, "`mode` cannot be chosen here"),
        ("PUT", "/notes/1?title=t&text=x", {}, "`text` belongs in the body"),
        ("PUT", "/notes/1", {"title": "t"}, "`title` belongs in the query"),
        ("PUT", "/notes/1?title=t&x=1", {"x": 1}, "`x` is given twice"),
        ("PUT", "/notes/1?title=t", {"txt": ""}, "unknown argument `txt`; did you mean `text`?"),
        ("PUT", "/notes/1", {}, "`title` is required"),
        ("PUT", "/notes/1?title=t", [], "the body must be a JSON object of arguments"),
        ("PUT", "/notes/1?title=t", "x", "the body must be a JSON object of arguments"),
        ("PATCH", "/notes/first", {"title": "t"}, "`number` must be an integer, not a string"),
        ("GET", "/notes/1?number=1", None, "`number` is already in the path"),
        ("DELETE", "/notes/1", {"number": 1}, "DELETE takes no body; its arguments belong in the query"),
        ("GET", "/notes", {"limit": 1}, "GET takes no body; its arguments belong in the query"),
    ],
)
async def test_an_argument_has_one_place(
    carol: httpx.AsyncClient, method: str, path: str, body: object, message: str
) -> None:
    given = {} if body is None else {"json": body}
    answer = await carol.request(method, f"/api/demo{path}", **given)
    assert (answer.status_code, error_of(answer)["message"]) == (400, message)


@pytest.mark.parametrize("body", [b"{", b"{'title': 1}", b'{"title": NaN}', b"\xff", b'{"title": "a"} x'])
async def test_a_body_that_is_no_json_is_told_in_the_envelope(carol: httpx.AsyncClient, body: bytes) -> None:
    answer = await carol.post("/api/demo/notes", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, error_of(answer)["message"]) == (400, "the body is not valid JSON")


async def test_an_unpaired_surrogate_in_a_body_is_the_callers_mistake_and_in_an_answer_a_question_mark(
    carol: httpx.AsyncClient,
) -> None:
    told = await carol.post(
        "/api/demo/notes", content=b'{"title": "\\ud800"}', headers={"content-type": "application/json"}
    )
    assert told.status_code == 400
    assert (await carol.get("/api/demo/half")).json() == {"text": "half ?"}


@pytest.mark.parametrize(("body", "kind"), [([1], "list"), ({"a": 1}, "dict"), ("x", "str"), (5, "int")])
async def test_a_body_may_be_one_argument_as_a_whole(carol: httpx.AsyncClient, body: object, kind: str) -> None:
    answer = await carol.post("/api/demo/reports", params={"source": "scan"}, json=body)
    assert (answer.status_code, answer.json()) == (200, {"text": f"scan: {kind}"})


async def test_without_a_body_its_arguments_are_missing(carol: httpx.AsyncClient) -> None:
    for path, missing in (("notes", "title"), ("reports?source=s", "report")):
        answer = await carol.post(f"/api/demo/{path}")
        assert (answer.status_code, error_of(answer)["message"]) == (400, f"`{missing}` is required")


@pytest.mark.parametrize("media_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
async def test_a_body_of_another_type_is_refused_with_415(carol: httpx.AsyncClient, media_type: str | None) -> None:
    headers = {"content-type": media_type} if media_type else {}
    answer = await carol.post("/api/demo/notes", content=b'{"title": "a"}', headers=headers)
    assert (answer.status_code, refusal_of(answer)) == (415, "UNSUPPORTED_MEDIA_TYPE")


async def test_the_type_of_a_body_may_have_parameters(carol: httpx.AsyncClient) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert (await carol.post("/api/demo/notes", content=b'{"title": "a"}', headers=headers)).status_code == 201


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [
        ("missing", 404, "NOTE_MISSING"),
        ("taken", 409, "NOTE_TAKEN"),
        ("hurried", 429, "HURRIED"),
        ("forbidden", 403, "FORBIDDEN"),
        ("busy", 503, "BUSY"),
        ("broken", 500, "BROKEN"),
        ("internal", 500, "INTERNAL"),
        ("late", 504, "DEADLINE_EXCEEDED"),
        ("unexpectedly", 500, "INTERNAL"),
    ],
)
async def test_an_error_has_its_status_and_its_envelope(
    carol: httpx.AsyncClient, how: str, status: int, code: str
) -> None:
    answer = await carol.post("/api/demo/failures", json={"how": how})
    assert (answer.status_code, error_of(answer)["code"]) == (status, code)
    assert "hunter2" not in answer.text
    assert answer.headers.get("retry-after") == ("2" if how == "hurried" else None)


async def test_a_call_that_takes_too_long_is_stopped_with_504() -> None:
    async with caller_of(demo(deadline_s=0.01).app) as carol:
        answer = await carol.get("/api/demo/looking/never")
    assert (answer.status_code, error_of(answer)["code"]) == (504, "DEADLINE_EXCEEDED")


@pytest.mark.parametrize("path", ["/api/demo/notes", "/api/openapi.json", "/api/nowhere"])
@pytest.mark.parametrize("key", [None, "wrong"])
async def test_without_a_key_nothing_is_told_not_even_what_there_is(path: str, key: str | None) -> None:
    async with caller_of(demo().app, key) as stranger:
        answer = await stranger.get(path)
    assert (answer.status_code, refusal_of(answer)) == (401, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_another_origin_is_refused_with_403(carol: httpx.AsyncClient) -> None:
    answer = await carol.get("/api/demo/notes", headers={"origin": "https://evil.example"})
    assert (answer.status_code, refusal_of(answer)) == (403, "FORBIDDEN_ORIGIN")


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
async def test_a_body_that_is_too_large_is_refused_with_413(carol: httpx.AsyncClient, method: str) -> None:
    path = "/api/demo/notes/1" if method == "PUT" else "/api/demo/notes"
    answer = await carol.request(method, path, json={"text": "x" * 10_000})
    assert (answer.status_code, refusal_of(answer)) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize(
    "path", ["/api", "/api/", "/api/demo", "/api/demo/notes/", "/api/demo/notes/1/2", "/api/other", "/api/demo/a%2Fb"]
)
async def test_a_path_that_nobody_has_is_404_in_json(carol: httpx.AsyncClient, path: str) -> None:
    answer = await carol.get(path)
    assert (answer.status_code, refusal_of(answer)) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/api/demo/notes/1", "DELETE, GET, HEAD, PATCH, PUT"),
        ("DELETE", "/api/demo/notes", "GET, HEAD, POST"),
        ("HEAD", "/api/demo/reports", "POST"),
        ("OPTIONS", "/api/demo/reports", "POST"),
        ("POST", "/api/openapi.json", "GET, HEAD"),
    ],
)
async def test_another_method_is_405_and_told_which_there_are(
    carol: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = await carol.request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert method == "HEAD" or refusal_of(answer) == "METHOD_NOT_ALLOWED"


@pytest.mark.parametrize("path", ["/api/demo/notes", "/api/openapi.json", "/api/demo/notes/9", "/api/nowhere"])
async def test_head_says_what_get_would_without_a_body(carol: httpx.AsyncClient, path: str) -> None:
    whole, head = await carol.get(path), await carol.head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers == whole.headers


@pytest.mark.parametrize("path", ["/api/demo/notes", "/api/openapi.json", "/api/demo/notes/9", "/api/nowhere"])
async def test_every_answer_is_json_that_nobody_guesses_about_or_keeps(carol: httpx.AsyncClient, path: str) -> None:
    answer = await carol.get(path)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
async def test_a_browser_is_told_that_an_allowed_origin_may_change_things(method: str) -> None:
    asked = {"origin": ORIGIN, "access-control-request-method": method}
    async with caller_of(demo(allowed_origins=(ORIGIN,)).app, None) as page:
        answer = await page.options("/api/demo/notes/1", headers=asked)
    assert answer.status_code == 200
    assert method in answer.headers["access-control-allow-methods"]


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncGenerator[tuple[httpx.AsyncClient, Path]]:
    """A caller of a server that writes an audit log, and the file."""
    file = tmp_path / "audit.sqlite"
    audit = AuditLog(file)
    async with caller_of(demo(audit=audit).app) as client:
        yield client, file
    audit.close()


async def recorded(file: Path, count: int) -> list[CallRecord]:
    await eventually(lambda: len(read_records(file, AuditFilter(), last=100)) >= count)
    records = [record for _, record in read_records(file, AuditFilter(), last=100)]
    assert len(records) == count
    return records


async def test_a_call_is_on_record_like_every_other(audited: tuple[httpx.AsyncClient, Path]) -> None:
    carol, file = audited
    await carol.post("/api/demo/notes", json={"title": "tea", "text": "secret leaves"})
    [record] = await recorded(file, 1)
    assert (record.surface, record.capability, record.tool) == ("api", "demo", "make_note")
    assert (record.principal, record.outcome) == ("carol", "success")
    assert "tea" in record.arguments
    assert "secret leaves" not in record.arguments


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"title": 5}', b'{"title": "t", "number": 1}'])
async def test_a_call_that_never_got_its_arguments_is_on_record_too(
    audited: tuple[httpx.AsyncClient, Path], body: bytes
) -> None:
    carol, file = audited
    await carol.patch("/api/demo/notes/1", content=body, headers={"content-type": "application/json"})
    [record] = await recorded(file, 1)
    assert (record.tool, record.outcome, record.code) == ("write_note", "error", "INVALID_ARGUMENT")


async def test_calls_and_refusals_are_counted(server: Demo, carol: httpx.AsyncClient) -> None:
    await carol.get("/api/demo/notes/9")
    await carol.get("/api/nowhere")
    await anyio.lowlevel.checkpoint()
    page = server.metrics.exposition().decode()
    assert 'armarium_calls_total{capability="demo",outcome="error",tool="read_note"} 1.0' in page
    assert 'armarium_errors_total{capability="demo",code="NOTE_MISSING"} 1.0' in page
    assert 'armarium_requests_refused_total{status="404"} 1.0' in page


async def test_a_tool_that_only_a_route_names_is_not_offered_over_mcp(server: Demo) -> None:
    headers = {"accept": "application/json, text/event-stream"}

    async def ask(method: str, params: dict[str, Any]) -> dict[str, Any]:
        answer = await client.post(
            "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, headers=headers
        )
        headers.setdefault("mcp-session-id", answer.headers.get("mcp-session-id", ""))
        return answer.json()

    identity = {"name": "by-hand", "version": "0"}
    async with server.app.running(), caller_of(server.app) as client:
        await ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": identity})
        listed = await ask("tools/list", {})
        refused = await ask("tools/call", {"name": "drop_note", "arguments": {"number": 1}})
        assert (await client.delete("/api/demo/notes/1")).status_code == 404
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["find_notes", "make_note"]
    assert "unknown tool" in refused["error"]["message"]


@pytest.mark.parametrize(("method", "path"), [("GET", "looking"), ("POST", "changing")])
async def test_a_server_that_stops_tells_callers_that_still_wait(
    server: Demo, carol: httpx.AsyncClient, method: str, path: str
) -> None:
    answers: list[httpx.Response] = []

    async def call() -> None:
        answers.append(await carol.request(method, f"/api/demo/{path}/dawn"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await server.moments.happens("dawn awaited")
        await server.app.end_calls()
        await server.moments.happens("dawn abandoned")
    assert (answers[0].status_code, error_of(answers[0])["code"]) == (503, "CANCELLED")


@pytest.mark.parametrize(("method", "path", "end"), [("GET", "looking", "abandoned"), ("POST", "changing", "done")])
async def test_a_reader_who_leaves_ends_the_call_and_a_change_is_carried_through(
    server: Demo, method: str, path: str, end: str
) -> None:
    listening = listen("127.0.0.1", 0)
    address = f"{BASE}:{listening.getsockname()[1]}"
    headers = {"authorization": f"Bearer {KEY}"}
    ready = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(serve_http, server.app, listening, grace_s=1, on_ready=ready.set))
        with anyio.fail_after(10):
            await ready.wait()
        async with httpx.AsyncClient(headers=headers) as client, anyio.create_task_group() as leaving:
            leaving.start_soon(client.request, method, f"{address}/api/demo/{path}/dusk")
            await server.moments.happens("dusk awaited")
            leaving.cancel_scope.cancel()
        if end == "done":
            async with httpx.AsyncClient(headers=headers) as client:  # the server has seen the other one leave by now
                assert (await client.get(f"{address}/api/demo/notes")).status_code == 200
            assert not server.moments["dusk abandoned"].is_set()
            server.moments["dusk"].set()
        await server.moments.happens(f"dusk {end}")
        tasks.cancel_scope.cancel()


async def test_a_route_may_stand_at_the_root_of_the_api(carol: httpx.AsyncClient) -> None:
    assert (await carol.get("/api/overview")).json() == {"count": 0}
    assert (await carol.get("/api/demo/overview")).status_code == 404


async def test_a_route_of_a_group_is_for_its_members_and_a_denial_is_on_record(tmp_path: Path) -> None:
    file = tmp_path / "audit.sqlite"
    audit = AuditLog(file)
    server = demo(audit=audit)
    async with caller_of(server.app) as carol, caller_of(server.app, STAFF_KEY) as dave:
        denied = await carol.put("/api/admin/rules/tea", json={})
        assert (denied.status_code, error_of(denied)["code"]) == (403, "GROUP_REQUIRED")
        assert "staff" not in denied.text
        assert (await dave.put("/api/admin/rules/tea", json={})).json() == {"text": "tea"}
        records = await recorded(file, 2)
    audit.close()
    assert {(each.principal, each.tool, each.code) for each in records} == {
        ("carol", "keep_rule", "GROUP_REQUIRED"),
        ("dave", "keep_rule", None),
    }


async def test_without_a_key_it_is_not_told_who_may(server: Demo) -> None:
    async with caller_of(server.app, None) as nobody:
        assert (await nobody.put("/api/admin/rules/tea", json={})).status_code == 401


@pytest.mark.parametrize("path", ["/events", "/openapi.json", "/events/ws"])
def test_no_route_takes_the_place_of_the_apis_own(path: str) -> None:
    with pytest.raises(ValueError, match="is taken"):
        demo(also_at_root=(path,))


@pytest.mark.parametrize(
    ("target", "body", "field"),
    [
        ("/api/demo/notes", b'{"title": "\\ud800"}', "title"),
        ("/api/demo/notes", b'{"title": "tea", "text": "\\udfff and more"}', "text"),
        ("/api/demo/reports?source=s", b'{"deep": [{"inside": "\\ud800"}]}', "report"),
        ("/api/demo/reports?source=s", b'{"\\ud800": 1}', "report"),
        ("/api/demo/reports?source=s", b'["\\ud800"]', "report"),
        ("/api/demo/reports?source=s", b'"\\ud800"', "report"),
    ],
)
async def test_an_unpaired_surrogate_is_refused_anywhere_in_a_body(
    server: Demo, carol: httpx.AsyncClient, target: str, body: bytes, field: str
) -> None:
    answer = await carol.post(target, content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, error_of(answer)["code"]) == (400, "INVALID_ARGUMENT")
    assert error_of(answer)["message"] == f"`{field}` contains an unpaired surrogate, which UTF-8 cannot encode"
    assert (await carol.get("/api/overview")).json() == {"count": 0}, "nothing was kept"
