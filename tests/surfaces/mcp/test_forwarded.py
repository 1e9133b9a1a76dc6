"""Host names that the server answers to, and the headers of proxies in front of it."""

from __future__ import annotations

import ipaddress
import logging
from typing import Any

import httpx
import pytest
from starlette.types import Scope

from armarium.surfaces.http.forwarded import ForwardedRequests, IpNetwork, is_clear_text
from support.mcp_messages import http_client, opening, serving
from support.mcp_test_server import build

PUBLIC = "files.example.org"
THIS_MACHINE = (ipaddress.ip_network("127.0.0.1"),)
OUTSIDE = "203.0.113.9"


async def handshake(url: str, key: str | None = None, **headers: str) -> httpx.Response:
    async with http_client(url, *([key] if key else [])) as client:
        return await client.post("/mcp", json=opening(), headers=headers)


@pytest.mark.parametrize("loopback_only", [True, False])
async def test_a_server_answers_to_its_allowed_names_with_any_port_and_to_no_others(loopback_only: bool) -> None:
    async with serving(build(allowed_hosts=(PUBLIC,), loopback_only=loopback_only).app) as url:
        for host in (PUBLIC, PUBLIC.upper(), f"{PUBLIC}:8443", f"{PUBLIC}.", "localhost", "127.0.0.1", "[::1]:80"):
            assert (await handshake(url, Host=host)).status_code == 200, host
        for host in ("evil.example", f"{PUBLIC}.evil.example", f"x.{PUBLIC}", f"{PUBLIC}@evil.example", "[", "", ":80"):
            answer = await handshake(url, Host=host)
            assert answer.status_code == 403, host


async def test_a_page_of_the_server_itself_may_call_and_one_of_another_name_may_not() -> None:
    async with serving(build(allowed_hosts=(PUBLIC,), loopback_only=False).app) as url:
        assert (await handshake(url, Host=PUBLIC, Origin=f"https://{PUBLIC}")).status_code == 200
        assert (await handshake(url, Host="localhost", Origin=f"https://{PUBLIC}")).status_code == 403
    async with serving(build(loopback_only=False).app) as url:
        assert (await handshake(url, Host=PUBLIC, Origin=f"https://{PUBLIC}")).status_code == 403


async def seen_through(headers: dict[str, str], proxies: tuple[IpNetwork, ...] = THIS_MACHINE) -> dict[str, Any]:
    """The client and the scheme of a request with these headers that this machine sent."""
    seen: dict[str, Any] = {}

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        seen.update(client=scope["client"] and scope["client"][0], scheme=scope["scheme"], clear=is_clear_text(scope))

    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 40000), "headers": raw}
    await ForwardedRequests(app, proxies)(scope, None, None)  # pyright: ignore[reportArgumentType] nothing is received or sent
    return seen


@pytest.mark.parametrize(
    ("headers", "client", "scheme"),
    [
        ({"X-Forwarded-For": OUTSIDE, "X-Forwarded-Proto": "https"}, OUTSIDE, "https"),
        ({"X-Forwarded-For": f"10.6.6.6, {OUTSIDE}"}, OUTSIDE, "http"),
        ({"X-Forwarded-For": f"10.6.6.6, {OUTSIDE}, 127.0.0.1", "X-Forwarded-Proto": "https"}, OUTSIDE, "https"),
        ({"Forwarded": f"for={OUTSIDE};proto=https"}, OUTSIDE, "https"),
        ({"Forwarded": f'for=10.6.6.6, For="{OUTSIDE}:4711";Proto=HTTPS;host=evil.example'}, OUTSIDE, "https"),
        ({"Forwarded": 'for="[2001:db8::17]:4711"'}, "2001:db8::17", "http"),
        ({"Forwarded": "for=_hidden;proto=https"}, None, "https"),
        ({"Forwarded": "for=unknown"}, None, "http"),
        # A client can send the header that the proxy does not set, and a Host that looks like parameters.
        ({"Forwarded": f"for={OUTSIDE};proto=https", "X-Forwarded-For": "10.6.6.6"}, None, "http"),
        ({"Forwarded": f'for={OUTSIDE};host="for=10.6.6.6;proto=https"'}, OUTSIDE, "http"),
        ({"Forwarded": f'for={OUTSIDE};host="a, for=10.6.6.6;proto=https"'}, OUTSIDE, "http"),
        ({"Forwarded": f'for={OUTSIDE};host="a\\", for=10.6.6.6;proto=https"'}, OUTSIDE, "http"),
        ({"Forwarded": f"for={OUTSIDE};host=for=10.6.6.6;proto=https"}, OUTSIDE, "https"),
        ({"Forwarded": f"for={OUTSIDE};xfor=10.6.6.6;for=10.6.6.6"}, OUTSIDE, "http"),
        ({"Forwarded": f'for="10.6.6.6;proto=https, for={OUTSIDE}'}, None, "http"),
        ({"Forwarded": f"for=10.6.6.6;;, , for={OUTSIDE}"}, OUTSIDE, "http"),
        ({"X-Forwarded-For": f"::ffff:{OUTSIDE}"}, OUTSIDE, "http"),
        ({"X-Forwarded-For": "", "X-Forwarded-Proto": "https"}, None, "https"),
        ({"X-Forwarded-For": "[[[, 999.1.1.1"}, None, "http"),
        ({}, "127.0.0.1", "http"),
    ],
)
async def test_the_client_of_a_request_is_the_last_address_that_is_no_trusted_proxy(
    headers: dict[str, str], client: str | None, scheme: str
) -> None:
    seen = await seen_through(headers)
    assert (seen["client"], seen["scheme"]) == (client, scheme)
    assert seen["clear"] is (scheme == "http" and client != "127.0.0.1")


async def test_headers_of_any_other_sender_do_not_count() -> None:
    headers = {"Forwarded": f"for={OUTSIDE};proto=https", "X-Forwarded-For": OUTSIDE, "X-Forwarded-Proto": "https"}
    for proxies in ((), (ipaddress.ip_network("10.0.0.0/8"),)):
        assert (await seen_through(headers, proxies))["client"] == "127.0.0.1"
        assert (await seen_through(headers, proxies))["scheme"] == "http"


async def test_a_running_server_logs_the_client_behind_a_trusted_proxy_and_warns_once_of_keys_in_clear_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    for proxies, client in ((THIS_MACHINE, OUTSIDE), ((), "127.0.0.1")):
        caplog.clear()
        async with serving(build(trusted_proxies=proxies).app) as url:
            for _ in range(2):
                assert (await handshake(url, "wrong", **{"X-Forwarded-For": OUTSIDE})).status_code == 401
        refused = [record.__dict__["client"] for record in caplog.records if record.message == "refused"]
        assert refused == [client, client]
        warned = [record.__dict__["client"] for record in caplog.records if "clear text" in record.message]
        assert warned == ([OUTSIDE] if proxies else [])
