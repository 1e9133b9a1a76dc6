"""The HTTP transport: a failure affects one request only, and memory is bounded."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import anyio
import httpx2
import pytest

from armarium.capabilities.gateway.upstreams.errors import BUSY, NOT_MCP, SESSION_LOST, TOO_LARGE, UNREACHABLE
from armarium.capabilities.gateway.upstreams.http import RequestErrorTransport
from armarium.capabilities.gateway.upstreams.redirects import MAX_REDIRECTS, SameOriginRedirects
from armarium.capabilities.gateway.upstreams.sse import NotificationStream
from support.waiting import eventually

LIMIT_BYTES = 10_000
ADDRESS = "http://upstream.invalid/mcp"
Answer = Callable[[httpx2.Request], httpx2.Response]


class Chunks(httpx2.AsyncByteStream):
    """A body that comes piece by piece; after the last one it may go on for ever."""

    def __init__(self, *pieces: bytes, endless: bool = False) -> None:
        self.pieces = pieces
        self.endless = endless
        self.begun = False
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.begun = True
        for piece in self.pieces:
            yield piece
        if self.endless:
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        self.closed = True


class Wire:
    """The transport between a client and an answer made up by the test."""

    def __init__(self) -> None:
        self.sessions_lost = 0
        self.answer: Answer = lambda request: httpx2.Response(500)
        self.pauses: list[float] = []
        """The pauses between attempts, which take no time here."""
        self._http: httpx2.AsyncClient | None = None

    async def opened(self) -> AsyncGenerator[Wire]:
        def lost() -> None:
            self.sessions_lost += 1

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        wire = SameOriginRedirects(httpx2.MockTransport(lambda request: self.answer(request)))
        notifications = NotificationStream(wire, LIMIT_BYTES, sleep=sleep)
        transport = RequestErrorTransport(wire, LIMIT_BYTES, lost, notifications)
        async with httpx2.AsyncClient(transport=transport) as self._http:
            yield self

    async def post(self, message: dict[str, Any], **headers: str) -> httpx2.Response:
        assert self._http is not None
        with anyio.fail_after(60):
            return await self._http.post(ADDRESS, json={"jsonrpc": "2.0", **message}, headers=headers)

    async def call(self, **headers: str) -> dict[str, Any]:
        """The JSON-RPC message that answers a request."""
        response = await self.post({"id": 7, "method": "tools/call", "params": {}}, **headers)
        text = response.text
        if response.headers["content-type"] == "text/event-stream":
            text = [line for line in text.splitlines() if line.startswith("data: ")][-1].removeprefix("data: ")
        message = json.loads(text)
        assert message["id"] == 7
        return message

    async def get(self, **headers: str) -> httpx2.Response:
        assert self._http is not None
        return await self._http.get(ADDRESS, headers=headers)


@pytest.fixture
async def wire() -> AsyncGenerator[Wire]:
    async for opened in Wire().opened():
        yield opened


def raising(error: Exception) -> Answer:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise error

    return answer


def answering(status: int, kind: str, body: bytes | Chunks, **headers: str) -> Answer:
    sent = {"content-type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if isinstance(body, Chunks):
        return lambda request: httpx2.Response(status, headers=sent, stream=body)
    return lambda request: httpx2.Response(status, headers=sent, stream=Chunks(body))


RESULT = b'{"jsonrpc":"2.0","id":7,"result":{}}'


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (raising(httpx2.ConnectError("refused at http://user:sesame@host")), UNREACHABLE),
        (raising(httpx2.ConnectTimeout("late")), UNREACHABLE),
        (raising(httpx2.RemoteProtocolError("sesame")), UNREACHABLE),
        (answering(503, "text/html", b"sesame"), UNREACHABLE),
        (answering(401, "text/plain", b"sesame"), UNREACHABLE),
        (answering(401, "application/json", b'{"error":"sesame"}'), UNREACHABLE),
        (answering(500, "text/event-stream", b"data: {}"), UNREACHABLE),
        (answering(429, "application/json", b"{}"), BUSY),
        (answering(200, "text/html", b"<html>sesame"), NOT_MCP),
        (answering(202, "text/plain", b""), NOT_MCP),
        (answering(200, "application/json", b"sesame"), NOT_MCP),
        (answering(200, "application/json", b"[]"), NOT_MCP),
        (answering(200, "application/json", b'{"jsonrpc":"2.0","id":8,"result":{}}'), NOT_MCP),
        (answering(200, "application/json", RESULT, content_encoding="gzip"), NOT_MCP),
        (answering(200, "application/json", Chunks(*[b" " * 6000] * 2, endless=True)), TOO_LARGE),
        (answering(200, "text/event-stream", Chunks(*[b"data: " + b"x" * 6000] * 2, endless=True)), TOO_LARGE),
        (answering(400, "application/json", b"{" + b" " * 100_000), TOO_LARGE),
    ],
)
async def test_what_goes_wrong_answers_the_request_with_an_error_of_ours(wire: Wire, answer: Answer, code: int) -> None:
    wire.answer = answer
    message = await wire.call()
    assert message["error"]["code"] == code
    assert "sesame" not in message["error"]["message"]
    assert wire.sessions_lost == 0


async def test_a_forgotten_session_is_told_apart(wire: Wire) -> None:
    wire.answer = answering(404, "text/plain", b"who?")
    assert (await wire.call())["error"]["code"] == UNREACHABLE
    assert wire.sessions_lost == 0
    assert (await wire.call(**{"mcp-session-id": "abc"}))["error"]["code"] == SESSION_LOST
    assert wire.sessions_lost == 1


async def test_an_answer_in_json_passes_with_its_session(wire: Wire) -> None:
    wire.answer = answering(200, "application/json", RESULT, mcp_session_id="abc")
    response = await wire.post({"id": 7, "method": "initialize"})
    assert response.json() == {"jsonrpc": "2.0", "id": 7, "result": {}}
    assert response.headers["mcp-session-id"] == "abc"


def redirecting(status: int, *locations: str) -> tuple[list[httpx2.Request], Answer]:
    """An answer that redirects to these places in turn, then responds; and the requests that it saw."""
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if len(seen) <= len(locations):
            return answering(status, "text/html", b"", location=locations[len(seen) - 1])(request)
        return answering(200, "application/json", RESULT)(request)

    return seen, answer


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("location", ["/mcp/", "http://upstream.invalid/mcp/", "http://upstream.invalid:80/mcp/"])
async def test_a_redirect_within_the_origin_is_followed_with_message_and_headers(
    wire: Wire, status: int, location: str
) -> None:
    seen, wire.answer = redirecting(status, location)
    assert (await wire.call(authorization="Bearer key"))["result"] == {}
    assert [(each.method, each.url.path) for each in seen] == [("POST", "/mcp"), ("POST", "/mcp/")]
    assert seen[0].content == seen[1].content
    assert seen[1].headers["authorization"] == "Bearer key"


@pytest.mark.parametrize(
    "location",
    [
        "http://elsewhere.invalid/mcp",
        "http://upstream.invalid:8080/mcp",
        "https://upstream.invalid/mcp",
        "http://user:sesame@upstream.invalid/mcp/",
        "//elsewhere.invalid/mcp",
        "http://[/mcp",
    ],
)
async def test_a_redirect_to_another_origin_is_an_error_that_does_not_name_it(wire: Wire, location: str) -> None:
    seen, wire.answer = redirecting(307, location)
    error = (await wire.call(authorization="Bearer key"))["error"]
    assert error["code"] == UNREACHABLE
    assert "redirects" in error["message"]
    assert "invalid/" not in error["message"]
    assert len(seen) == 1


async def test_redirects_in_a_circle_end(wire: Wire) -> None:
    seen, wire.answer = redirecting(308, *["/mcp/", "/mcp"] * 20)
    assert (await wire.call())["error"]["code"] == UNREACHABLE
    assert len(seen) == MAX_REDIRECTS + 1


async def test_a_see_other_is_not_followed(wire: Wire) -> None:
    seen, wire.answer = redirecting(303, "/mcp/")
    assert (await wire.call())["error"]["code"] == UNREACHABLE
    assert len(seen) == 1


async def test_notifications_and_their_stream_are_redirected_too(wire: Wire) -> None:
    seen, wire.answer = redirecting(307, "/mcp/")
    await wire.post({"method": "notifications/initialized"})
    assert [each.url.path for each in seen] == ["/mcp", "/mcp/"]
    seen, wire.answer = redirecting(307, "/mcp/")
    events = answering(200, "text/event-stream", b"")
    answer = wire.answer
    wire.answer = lambda request: answer(request) if request.url.path == "/mcp" else events(request)
    assert (await wire.get()).status_code == 200


@pytest.mark.parametrize(
    ("kind", "form"), [("application/json", b"%b"), ("text/event-stream", b"event: message\ndata: %b\n\n")]
)
async def test_an_answer_with_an_unpaired_surrogate_is_repaired(wire: Wire, kind: str, form: bytes) -> None:
    said = rb'{"jsonrpc":"2.0","id":7,"result":{"text":"half \ud83d, whole \ud83d\ude00"}}'
    wire.answer = answering(200, kind, form % said)
    assert (await wire.call())["result"] == {"text": "half \ufffd, whole 😀"}


async def test_a_refusal_in_json_rpc_passes_as_it_is(wire: Wire) -> None:
    wire.answer = answering(400, "application/json", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32602}}')
    response = await wire.post({"id": 7, "method": "tools/call"})
    assert (response.status_code, response.json()["error"]["code"]) == (400, -32602)


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
async def test_events_pass_however_they_are_cut(wire: Wire, end: bytes) -> None:
    body = b": hello" + end + b"data: {}" + end + b"data: " + RESULT + end + b"data: unfinished"
    wire.answer = answering(200, "text/event-stream", Chunks(*(body[at : at + 1] for at in range(len(body)))))
    response = await wire.post({"id": 7, "method": "tools/call"})
    assert response.content == body


async def test_many_events_may_be_larger_than_one_may_be(wire: Wire) -> None:
    event = b"data: " + b"x" * 5000 + b"\n\n"
    wire.answer = answering(200, "text/event-stream", Chunks(*[event] * 10))
    response = await wire.post({"id": 7, "method": "tools/call"})
    assert response.content == event * 10


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_a_cancelled_request_gives_its_connection_back(wire: Wire, kind: str) -> None:
    body = Chunks(b": working\n\n", endless=True)
    answered: list[dict[str, Any]] = []
    wire.answer = lambda request: (
        answering(202, "text/plain", b"")(request)
        if b"cancelled" in request.content
        else answering(200, kind, body)(request)
    )

    async def wait() -> None:
        answered.append(await wire.call())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await eventually(lambda: body.begun)
        await wire.post({"method": "notifications/cancelled", "params": {"requestId": 7}})
    assert answered[0]["error"]["code"] == UNREACHABLE
    assert body.closed


async def test_a_notification_that_cannot_be_delivered_disturbs_nobody(wire: Wire) -> None:
    wire.answer = raising(httpx2.ConnectError("refused"))
    assert (await wire.post({"method": "notifications/initialized"})).status_code == 202


async def test_notifications_larger_than_the_limit_end_the_stream(wire: Wire) -> None:
    body = Chunks(b": hello\n\n", b"data: " + b"x" * (LIMIT_BYTES + 1), endless=True)
    wire.answer = answering(200, "text/event-stream", body)
    assert (await wire.get()).content == b": hello\n\n"
    assert body.closed


async def test_the_notification_stream_is_opened_with_growing_pauses_until_it_succeeds(wire: Wire) -> None:
    failures = [
        raising(httpx2.ConnectError("refused")),
        answering(503, "text/plain", b"later"),
        answering(404, "text/plain", b"who?"),
        answering(200, "text/html", b"<html>"),
        *[raising(httpx2.ReadTimeout("late"))] * 4,
    ]
    left = iter([*failures, answering(200, "text/event-stream", b"data: {}\n\n")])
    wire.answer = lambda request: next(left)(request)
    assert (await wire.get()).content == b"data: {}\n\n"
    assert wire.pauses == [0, 1, 2, 4, 8, 16, 30, 30, 30]


async def test_a_notification_stream_that_breaks_off_ends_without_an_error(wire: Wire) -> None:
    class Broken(Chunks):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b"id: 1\ndata: {}\n\n"
            raise httpx2.ReadError("reset")

    wire.answer = answering(200, "text/event-stream", Broken())
    assert (await wire.get()).content == b"id: 1\ndata: {}\n\n"
    assert (await wire.get(**{"last-event-id": "1"})).content == b"id: 1\ndata: {}\n\n"
    assert wire.pauses == [0, 1], "a stream that ends at once is not opened all the time"


async def test_a_server_without_a_notification_stream_is_believed(wire: Wire) -> None:
    wire.answer = answering(405, "text/plain", b"")
    assert (await wire.get()).status_code == 405
    assert wire.pauses == [0]


async def test_the_rest_of_an_answer_that_broke_off_is_not_asked_for_without_end(wire: Wire) -> None:
    wire.answer = raising(httpx2.ConnectError("refused"))
    with pytest.raises(httpx2.ConnectError):
        await wire.get(**{"last-event-id": "of an answer"})
