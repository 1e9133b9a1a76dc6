"""Rejected requests have stable codes for programs; origin patterns match what they should."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.foundation.errors import BindFailed, ConfigError, TlsConfigInvalid
from armarium.foundation.sockets import listen, tls_context
from armarium.surfaces.http.origins import AllowedOrigins
from support.mcp_messages import http_client, open_session, opening, request, serving
from support.mcp_test_server import build

ORIGINS = ("http://localhost:*", "https://console.example.com")


@pytest.fixture(scope="module")
async def server() -> AsyncGenerator[str]:
    """A server that any page of this machine may call, and one page of another."""
    async with serving(build(allowed_origins=ORIGINS).app) as url:
        yield url


def code_of(answer: httpx.Response) -> str:
    data = answer.json()["error"]["data"]
    assert data["retryable"] is False
    return data["code"]


async def test_a_missing_key_is_unauthorized(server: str) -> None:
    async with http_client(server, None) as client:
        assert code_of(await client.post("/mcp", json=opening())) == "UNAUTHORIZED"


@pytest.mark.parametrize("headers", [{"origin": "https://evil.example"}, {"host": "evil.example"}])
async def test_another_origin_or_host_is_a_forbidden_origin(server: str, headers: dict[str, str]) -> None:
    async with http_client(server) as client:
        assert code_of(await client.post("/mcp", json=opening(), headers=headers)) == "FORBIDDEN_ORIGIN"


async def test_a_session_nobody_has_is_a_session_not_found(server: str) -> None:
    async with http_client(server) as client:
        answer = await client.post("/mcp", json=request("tools/list"), headers={"mcp-session-id": "nobody's"})
        assert (answer.status_code, code_of(answer)) == (404, "SESSION_NOT_FOUND")
        session = await open_session(client)
        await client.delete("/mcp", headers=session)
        gone = await client.post("/mcp", json=request("tools/list"), headers=session)
        assert code_of(gone) == "SESSION_NOT_FOUND"


async def test_a_refusal_without_a_code_of_its_own_has_none(server: str) -> None:
    async with http_client(server) as client:
        answer = await client.post("/mcp", content=b"{")
    assert "data" not in answer.json()["error"]


async def test_a_page_from_any_port_of_an_origin_for_every_port_may_call(server: str) -> None:
    async with http_client(server) as client:
        for origin in ("http://localhost", "http://localhost:5173"):
            answer = await client.post("/mcp", json=opening(), headers={"origin": origin})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin
            asked = {"origin": origin, "access-control-request-method": "POST"}
            assert (await client.options("/mcp", headers=asked)).headers["access-control-allow-origin"] == origin


@pytest.mark.parametrize(
    "origin",
    [
        "https://localhost:5173",
        "http://localhost.evil.example",
        "http://localhost:5173.evil.example",
        "http://localhost:*",
        "http://localhost:",
        "http://localhost:123456",
        "http://localhostx",
        "http://evil.example/http://localhost:1",
        "https://console.example.com:8443",
    ],
)
def test_every_port_means_the_port_and_nothing_else(origin: str) -> None:
    assert not AllowedOrigins(ORIGINS).allow(origin)


@given(
    st.lists(st.from_regex(r"\Ahttps?://[a-z0-9.\-\[\]()+|]{1,12}(:\*|:[0-9]{1,5})?\Z"), max_size=4),
    st.text(max_size=30),
)
def test_only_what_is_listed_is_allowed_whatever_the_list_looks_like(listed: list[str], origin: str) -> None:
    expected = origin in listed and not origin.endswith(":*")
    for each in listed:
        base, wildcard, _ = each.partition(":*")
        rest = origin.removeprefix(base)
        port = rest.removeprefix(":")
        fits = rest == "" or (rest.startswith(":") and port.isascii() and port.isdigit() and len(port) <= 5)
        expected |= bool(wildcard) and origin.startswith(base) and fits
    assert AllowedOrigins(listed).allow(origin) == expected


def test_an_address_that_cannot_be_listened_on_has_a_code_and_is_an_error_of_the_settings() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(BindFailed) as refused:
        listen("127.0.0.1", taken.getsockname()[1])
    assert refused.value.code == "BIND_FAILED"
    assert isinstance(refused.value, ConfigError)


def test_files_that_are_no_certificate_have_a_code(tmp_path: Path) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n")
    for certificate, key in ((nonsense, nonsense), (nonsense, tmp_path / "missing.pem"), (tmp_path, nonsense)):
        with pytest.raises(TlsConfigInvalid) as refused:
            tls_context(certificate, key)
        assert refused.value.code == "TLS_CONFIG_INVALID"
        assert not isinstance(refused.value, ssl.SSLError)
