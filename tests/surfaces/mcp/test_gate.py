"""Which HTTP requests are admitted: hosts, origins, keys, the size and the form of a request."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import anyio
import anyio.abc
import httpx
import pytest

from armarium.foundation.security.identity import ANYONE, Authenticator, Principal, key_hash
from armarium.surfaces.mcp.app import McpApp
from support.mcp_messages import calling, http_client, open_session, opening, server_command, serving
from support.mcp_test_server import ALICE_KEY, BOB_KEY, build
from support.server import ServerProcess

ALLOWED = "https://console.example.com"
MAX_BODY_BYTES = 200_000


@pytest.fixture(scope="module")
async def guarded() -> AsyncGenerator[str]:
    """A server on loopback with one allowed origin and a small limit on bodies."""
    async with serving(build(allowed_origins=(ALLOWED + "/",), max_body_bytes=MAX_BODY_BYTES).app) as url:
        yield url


@pytest.fixture(scope="module")
async def public() -> AsyncGenerator[str]:
    """A server that may be called by any name."""
    async with serving(build(loopback_only=False).app) as url:
        yield url


@pytest.fixture
async def alice(guarded: str) -> AsyncGenerator[httpx.AsyncClient]:
    """Alice, speaking to the guarded server."""
    async with http_client(guarded) as client:
        yield client


async def handshake(url: str, key: str | None = ALICE_KEY, **headers: str) -> httpx.Response:
    async with http_client(url, key) as client:
        return await client.post("/mcp", json=opening(), headers=headers)


def json_rpc_error(answer: httpx.Response) -> dict[str, Any]:
    """The error of a refusal, which has the form of a JSON-RPC error without an id."""
    body = answer.json()
    assert (body["jsonrpc"], body["id"]) == ("2.0", None)
    return body["error"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://[", "http://", "https://console.example.com.evil.example"]
)
async def test_an_origin_that_is_not_allowed_is_refused_with_403(guarded: str, origin: str) -> None:
    answer = await handshake(guarded, origin=origin)
    assert answer.status_code == 403
    assert "origin" in json_rpc_error(answer)["message"]


@pytest.mark.parametrize("origin", [ALLOWED, ALLOWED.upper(), ALLOWED + "/"])
async def test_an_allowed_origin_gets_through(guarded: str, origin: str) -> None:
    assert (await handshake(guarded, origin=origin)).status_code == 200


async def test_a_page_the_server_itself_serves_on_loopback_gets_through(guarded: str) -> None:
    assert (await handshake(guarded, origin=guarded)).status_code == 200


async def test_a_page_on_another_port_of_this_machine_is_another_origin(guarded: str) -> None:
    assert (await handshake(guarded, origin="http://127.0.0.1:1")).status_code == 403


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "[", "", "10.0.0.1"])
async def test_a_rebound_host_name_is_refused_on_a_loopback_server(guarded: str, host: str) -> None:
    assert (await handshake(guarded, host=host)).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8091", "127.0.0.1:1", "127.0.0.2", "[::1]:8091"])
async def test_every_name_of_the_loopback_interface_is_accepted(guarded: str, host: str) -> None:
    assert (await handshake(guarded, host=host)).status_code == 200


async def test_a_public_server_answers_to_any_name_but_not_to_any_origin(public: str) -> None:
    assert (await handshake(public, host="files.example.com")).status_code == 200
    rebound = await handshake(public, host="evil.example", origin="http://evil.example")
    assert rebound.status_code == 403


async def test_a_browser_is_told_that_an_allowed_origin_may_call(alice: httpx.AsyncClient) -> None:
    asked = {
        "origin": ALLOWED,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,mcp-session-id",
    }
    del alice.headers["authorization"]  # browsers send no credentials when they ask first
    preflight = await alice.options("/mcp", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == ALLOWED
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    answer = await handshake(str(alice.base_url), origin=ALLOWED)
    assert answer.headers["access-control-allow-origin"] == ALLOWED
    assert "mcp-session-id" in answer.headers["access-control-expose-headers"].lower()


async def test_a_browser_is_told_nothing_of_the_kind_for_another_origin(alice: httpx.AsyncClient) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    preflight = await alice.options("/mcp", headers=asked)
    assert preflight.is_client_error
    assert "access-control-allow-origin" not in preflight.headers


async def test_a_request_without_a_key_is_refused_with_401_and_told_how_to_come_back(guarded: str) -> None:
    answer = await handshake(guarded, key=None)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="armarium"'
    json_rpc_error(answer)


@pytest.mark.parametrize("offered", ["Bearer wrong", f"Bearer {ALICE_KEY}x", f"Bearer {key_hash(ALICE_KEY)}"])
async def test_a_wrong_key_is_refused_with_401_and_called_invalid(guarded: str, offered: str) -> None:
    answer = await handshake(guarded, key=None, authorization=offered)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="armarium", error="invalid_token"'


@pytest.mark.parametrize("offered", ["", "Bearer", f"Basic {ALICE_KEY}", ALICE_KEY])
async def test_what_is_no_bearer_key_counts_as_none(guarded: str, offered: str) -> None:
    answer = await handshake(guarded, key=None, authorization=offered)
    assert answer.status_code == 401
    assert "error" not in answer.headers["www-authenticate"]


@pytest.mark.parametrize("offered", [f"bearer {ALICE_KEY}", f"BEARER   {ALICE_KEY}"])
async def test_the_scheme_may_be_written_in_any_case(guarded: str, offered: str) -> None:
    assert (await handshake(guarded, key=None, authorization=offered)).status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "POST"])
async def test_the_key_is_checked_before_anything_else_is_looked_at(guarded: str, method: str) -> None:
    async with http_client(guarded, None) as stranger:
        answer = await stranger.request(method, "/mcp", content=b"{" if method == "POST" else None)
    assert answer.status_code == 401


async def test_a_key_with_letters_beyond_ascii_is_accepted_as_it_was_hashed() -> None:
    key = "schlüssel-鍵"
    known = Authenticator((Principal("zoe", (), key_hash(key)),))
    async with serving(build(authenticator=known).app) as url, http_client(url, None) as client:
        headers = [(b"authorization", f"Bearer {key}".encode())]
        answer = await client.post("/mcp", json=opening(), headers=httpx.Headers(headers, encoding="utf-8"))
    assert answer.status_code == 200


async def test_every_key_belongs_to_its_own_principal_and_the_tool_is_told(guarded: str) -> None:
    for key, username, groups in ((ALICE_KEY, "alice", ["staff", "editors"]), (BOB_KEY, "bob", [])):
        async with http_client(guarded, key) as client:
            session = await open_session(client)
            answer = await client.post("/mcp", json=calling("whoami"), headers=session)
        seen = answer.json()["result"]["structuredContent"]
        assert (seen["username"], seen["groups"]) == (username, groups)
        assert seen["apikey_hash"] == key_hash(key)
        assert seen["credential_sha256"] == key_hash(key), "the raw key reaches the tool through the call"


async def test_a_server_open_to_anyone_asks_for_no_key_and_calls_everyone_anonymous() -> None:
    rig = build(authenticator=Authenticator((), open_to_anyone=True))
    async with serving(rig.app) as url, http_client(url, None) as client:
        session = await open_session(client)
        answer = await client.post("/mcp", json=calling("whoami"), headers=session)
        assert answer.json()["result"]["structuredContent"]["username"] == ANYONE.username
        assert (await client.get("/metrics")).status_code == 200
        rebound = await client.get("/metrics", headers={"host": "evil.example"})
        assert rebound.status_code == 403, "metrics are not for a page that rebound its name"


async def test_metrics_are_for_their_groups_whose_names_are_not_told_to_others() -> None:
    rig = build()
    app = McpApp(rig.servers, rig.gate, rig.sessions, rig.metrics, may_read_metrics=lambda each: "staff" in each.groups)
    async with serving(app) as url, http_client(url) as alice, http_client(url, BOB_KEY) as bob:
        assert (await alice.get("/metrics")).status_code == 200
        refusal = await bob.get("/metrics")
    assert (refusal.status_code, refusal.json()["error"]["data"]["code"]) == (403, "GROUP_REQUIRED")
    assert "staff" not in refusal.text


async def test_health_needs_no_key_and_metrics_do(guarded: str) -> None:
    async with http_client(guarded, None) as stranger:
        health = await stranger.get("/health")
        assert (health.status_code, health.text) == (200, "ok")
        assert (await stranger.get("/metrics")).status_code == 401
        assert (await stranger.get("/nowhere")).status_code == 404


async def test_a_body_declared_too_large_is_refused_before_it_is_sent(guarded: str) -> None:
    host, port = guarded.removeprefix("http://").split(":")
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ALICE_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {10**15}\r\n\r\n"
    )
    async with await anyio.connect_tcp(host, int(port)) as stream:
        await stream.send(head.encode())
        with anyio.fail_after(10):
            answer = await stream.receive()
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_grows_too_large_on_the_way_is_refused_with_413(alice: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 10_000 + 2):
            yield b"x" * 10_000

    answer = await alice.post("/mcp", content=pieces())
    assert answer.status_code == 413
    assert str(MAX_BODY_BYTES) in json_rpc_error(answer)["message"]


async def test_a_body_of_exactly_the_limit_is_read(alice: httpx.AsyncClient) -> None:
    body = json.dumps(opening()).encode().ljust(MAX_BODY_BYTES)
    assert (await alice.post("/mcp", content=body)).status_code == 200
    assert (await alice.post("/mcp", content=body + b" ")).status_code == 413


async def test_a_body_that_stops_arriving_is_given_up() -> None:
    rig = build(body_timeout_s=0.05, max_body_bytes=MAX_BODY_BYTES)
    async with serving(rig.app) as url:
        host, port = url.removeprefix("http://").split(":")
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ALICE_KEY}\r\n"
            "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(head.encode())
            with anyio.fail_after(10):
                answer = await stream.receive()
        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_trickles_is_given_up() -> None:
    rig = build(body_timeout_s=0.5, max_body_bytes=MAX_BODY_BYTES)
    async with serving(rig.app) as url:
        host, port = url.removeprefix("http://").split(":")
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ALICE_KEY}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {MAX_BODY_BYTES}\r\n\r\n"
        )

        async def trickle(stream: anyio.abc.SocketStream) -> None:
            with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                while True:
                    await stream.send(b" ")
                    await anyio.sleep(0.01)

        async with await anyio.connect_tcp(host, int(port)) as stream, anyio.create_task_group() as tasks:
            await stream.send(head.encode())
            tasks.start_soon(trickle, stream)
            with anyio.fail_after(60):
                answer = await stream.receive()
            tasks.cancel_scope.cancel()
        assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'{"jsonrpc": NaN}', b'"\\ud8', b"[" * 100_000])
async def test_a_body_that_is_not_json_is_refused_with_400_as_a_parse_error(
    alice: httpx.AsyncClient, body: bytes
) -> None:
    answer = await alice.post("/mcp", content=body)
    assert answer.status_code == 400
    assert json_rpc_error(answer)["code"] == -32700


@pytest.mark.parametrize(
    "body",
    [
        [opening()],
        [],
        "initialize",
        7,
        None,
        {},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "2.0", "id": [1], "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
        {"jsonrpc": "2.0"},
    ],
)
async def test_what_is_no_single_json_rpc_message_is_refused_with_400(alice: httpx.AsyncClient, body: Any) -> None:
    answer = await alice.post("/mcp", content=json.dumps(body).encode())
    assert answer.status_code == 400
    assert json_rpc_error(answer)["code"] == -32600


async def test_an_empty_body_is_refused_with_400(alice: httpx.AsyncClient) -> None:
    assert (await alice.post("/mcp", content=b"")).status_code == 400


@pytest.mark.parametrize("form", ["text/plain", "application/json-rpc", "application/x-www-form-urlencoded", ""])
async def test_a_content_type_other_than_json_is_refused_with_415(alice: httpx.AsyncClient, form: str) -> None:
    answer = await alice.post("/mcp", json=opening(), headers={"content-type": form})
    assert answer.status_code == 415


async def test_json_with_a_charset_is_json(alice: httpx.AsyncClient) -> None:
    answer = await alice.post("/mcp", json=opening(), headers={"content-type": "Application/JSON; charset=utf-8"})
    assert answer.status_code == 200


@pytest.mark.parametrize("accepted", ["text/html", "text/event-stream", "image/*"])
async def test_a_client_that_takes_no_json_is_refused_with_406(alice: httpx.AsyncClient, accepted: str) -> None:
    assert (await alice.post("/mcp", json=opening(), headers={"accept": accepted})).status_code == 406


@pytest.mark.parametrize("accepted", ["*/*", "application/json", "application/*;q=0.5", "text/html, application/json"])
async def test_a_client_that_takes_json_in_any_wording_is_answered(alice: httpx.AsyncClient, accepted: str) -> None:
    assert (await alice.post("/mcp", json=opening(), headers={"accept": accepted})).status_code == 200


async def test_accept_may_be_spread_over_several_header_lines(alice: httpx.AsyncClient) -> None:
    del alice.headers["accept"]
    lines = [("accept", "application/json"), ("accept", "text/html")]
    assert (await alice.post("/mcp", json=opening(), headers=lines)).status_code == 200


@pytest.mark.parametrize("method", ["PUT", "PATCH", "HEAD", "OPTIONS"])
async def test_other_methods_are_refused_with_405_and_told_which_ones_there_are(
    alice: httpx.AsyncClient, method: str
) -> None:
    answer = await alice.request(method, "/mcp")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "POST", "DELETE"}


@pytest.fixture(scope="module")
def measured() -> Generator[ServerProcess]:
    """A server in a process of its own, so that its memory can be told from ours."""
    with ServerProcess(server_command("http", "--max-bytes", str(MAX_BODY_BYTES))) as server:
        httpx.get(f"{server.url}/metrics", headers={"authorization": f"Bearer {ALICE_KEY}"})
        yield server


def test_a_body_without_end_does_not_fill_the_memory(measured: ServerProcess) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(640):
            yield b"x" * 100_000

    headers = {"authorization": f"Bearer {ALICE_KEY}", "content-type": "application/json"}
    with measured.peak_memory() as growth:
        answer = httpx.post(f"{measured.url}/mcp", content=pieces(), headers=headers, timeout=30)
    assert answer.status_code == 413
    assert growth.bytes < 8 * 1024 * 1024


@pytest.mark.parametrize("separator", [b"", b"\r\nX-Another: "], ids=["one endless header", "endlessly many headers"])
def test_a_head_without_end_is_cut_off_before_it_fills_the_memory(measured: ServerProcess, separator: bytes) -> None:
    poured = 0
    with measured.peak_memory() as growth, socket.create_connection(("127.0.0.1", measured.port), timeout=10) as peer:
        peer.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        with contextlib.suppress(OSError):
            while poured < 64 * 1024 * 1024:
                poured += peer.send(b"a" * 1000 + separator)
    assert poured < 16 * 1024 * 1024, "the server hung up long before"
    assert growth.bytes < 8 * 1024 * 1024


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nHost: "])
async def test_a_head_that_does_not_arrive_is_not_waited_for(sent: bytes) -> None:
    async with serving(build().app, head_timeout_s=0.05) as url:
        host, port = url.removeprefix("http://").split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            if sent:
                await stream.send(sent)
            with anyio.fail_after(10):
                assert (await stream.receive()).startswith(b"HTTP/1.1 400 ")


async def test_refusals_are_counted_by_status() -> None:
    rig = build()
    async with serving(rig.app) as url, http_client(url) as client:
        await handshake(url, key=None)
        await handshake(url, key="wrong")
        await handshake(url, origin="https://evil.example")
        exposed = (await client.get("/metrics")).text
    assert 'armarium_requests_refused_total{status="401"} 2.0' in exposed
    assert 'armarium_requests_refused_total{status="403"} 1.0' in exposed


@pytest.mark.parametrize("name", ["authorization", "host", "origin"])
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/metrics", "/health", "/nowhere", "/api/status", "/console"])
async def test_a_header_that_decides_who_calls_is_refused_when_it_is_repeated(
    guarded: str, name: str, path: str
) -> None:
    place = guarded.removeprefix("http://")
    right = {"authorization": f"Bearer {ALICE_KEY}", "host": place, "origin": ALLOWED, "connection": "close"}
    other = {"authorization": "Bearer wrong", "host": "evil.example", "origin": "https://evil.example"}
    host, port = place.split(":")
    for first, second in ((right, other), (other, right), (right, right)):
        lines = [*(line for line in right.items() if line[0] != name), (name, first[name]), (name, second[name])]
        head = f"GET {path} HTTP/1.1\r\n" + "".join(f"{each}: {value}\r\n" for each, value in lines) + "\r\n"
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(head.encode())
            with anyio.fail_after(10):
                answer = b"".join([part async for part in stream])
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert f"the header {name} is repeated".encode() in answer


async def test_a_path_with_a_slash_behind_it_leads_to_the_path_and_names_no_host(guarded: str) -> None:
    async with httpx.AsyncClient(base_url=guarded) as plain:
        for path in ("/mcp", "/mcp/stage"):
            answer = await plain.post(f"{path}/?a=b")
            assert answer.status_code == 307
            assert answer.headers["location"] == f"{path}?a=b"
        elsewhere = await plain.post("/mcp/", headers={"host": "evil.example"})
        assert elsewhere.status_code == 403
        assert "location" not in elsewhere.headers
