"""The page of the console: confined by its headers, and a clear text where it is not built."""

from __future__ import annotations

import gzip
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from armarium.foundation.security.identity import Authenticator
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.console.page import ConsolePage
from armarium.surfaces.gate import Gate

PAGE, SCRIPT = "<!doctype html><title>Armarium</title>", "export const x = 1;\n" * 100


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "files"
    (directory / "assets").mkdir(parents=True)
    (directory / "index.html").write_text(PAGE)
    (directory / "assets" / "index-1a2b.js").write_text(SCRIPT)
    (directory / "canvas.html").write_text("<!doctype html><title>Report</title><script>'use strict'</script>")
    (directory / "built-from").write_text("hash")
    (tmp_path / "secret").write_text("not to be served")
    return directory


@pytest.fixture
async def http(files: Path) -> AsyncGenerator[httpx.AsyncClient]:
    gate = Gate(Authenticator(()), loopback_only=True, max_body_bytes=1000, metrics=Metrics())
    app = Starlette(routes=ConsolePage(gate, files).routes)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8091") as client:
        yield client


@pytest.mark.parametrize("path", ["", "/", "/ask", "/file/root/workspace/src/app.py", "/file/store/a%2Fb.md"])
async def test_every_address_of_the_console_is_the_page(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(f"/console{path}")
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


async def test_the_page_may_load_and_send_nothing_elsewhere(http: httpx.AsyncClient) -> None:
    headers = (await http.get("/console")).headers
    policy = dict(each.strip().partition(" ")[::2] for each in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert "http" not in headers["content-security-policy"]
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"


async def test_a_report_is_shown_in_a_frame_without_an_origin(http: httpx.AsyncClient) -> None:
    answer = await http.get("/console/canvas")
    policy = answer.headers["content-security-policy"]
    assert "Report" in answer.text
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "allow-same-origin" not in policy
    assert {"connect-src 'none'", "form-action 'none'", "frame-ancestors 'self'"} <= set(policy.split("; "))
    assert policy.endswith("script-src 'sha256-eRtaeqcVFyPImuIFClNdaosAhRufChL7+dumku9g1ew='")


async def test_assets_are_compressed_and_kept_by_browsers(http: httpx.AsyncClient) -> None:
    packed = await http.get("/console/assets/index-1a2b.js", headers={"accept-encoding": "br, gzip;q=0.5"})
    assert packed.text == SCRIPT
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) == len(gzip.compress(SCRIPT.encode()))
    plain = await http.get("/console/assets/index-1a2b.js", headers={"accept-encoding": "identity"})
    assert plain.text == SCRIPT
    assert "content-encoding" not in plain.headers
    assert "immutable" in plain.headers["cache-control"]
    assert plain.headers["content-type"].startswith("text/javascript")
    head = await http.head("/console/assets/index-1a2b.js", headers={"accept-encoding": "identity"})
    assert (head.content, int(head.headers["content-length"])) == (b"", len(SCRIPT))


@pytest.mark.parametrize(
    "path",
    [
        "assets/missing.js",
        "assets/../built-from",
        "assets/..%2f..%2fsecret",
        "assets/%00",
        "assets/",
        "assets//etc/passwd",
    ],
)
async def test_nothing_else_is_served(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(f"/console/{path}")
    assert answer.status_code == 404 or answer.text == PAGE
    assert "not to be served" not in answer.text


async def test_other_hosts_and_methods_are_refused(http: httpx.AsyncClient) -> None:
    assert (await http.get("/console", headers={"host": "evil.example"})).status_code == 403
    assert (await http.post("/console")).status_code == 405


async def test_without_its_files_the_console_says_how_to_build_them(http: httpx.AsyncClient, files: Path) -> None:
    (files / "index.html").unlink()
    answer = await http.get("/console")
    assert answer.status_code == 503
    assert "make console" in answer.text
