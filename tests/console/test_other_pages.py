"""What pages of another server on this machine can do to the console of a person who is logged in: nothing."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from armarium.foundation.audit import AuditFilter, read_records
from armarium.foundation.security.identity import read_token
from armarium.surfaces.console.links import OwnerLinks
from support.browser import Visit, Visitor, session_of
from support.elsewhere import Elsewhere
from support.server import ServerProcess


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere.running() as server:
        yield server


@pytest.fixture(scope="module")
def token(server: ServerProcess, state_dir: Path) -> str:
    key = read_token(state_dir / "secret.token")
    assert key
    return key


async def page_elsewhere(person: Visitor, elsewhere: Elsewhere) -> Page:
    """A page of the other server, in a browser that is logged in to the console."""
    page = await person.context.new_page()
    await page.goto(elsewhere.url)
    return page


@pytest.fixture
async def victim(visit: Visit, server: ServerProcess, state_dir: Path, elsewhere: Elsewhere) -> AsyncGenerator[Visitor]:
    """A person who is logged in, and opens pages of the other server."""
    session = await session_of(server.url, code=OwnerLinks(state_dir).create())
    async with visit(storage_state=session) as person:
        person.expected = re.escape(elsewhere.url) + r"|frame-ancestors|CORS|ERR_FAILED|ERR_BLOCKED_BY_RESPONSE"
        yield person


async def test_a_page_of_another_port_cannot_frame_the_console(
    victim: Visitor, server: ServerProcess, elsewhere: Elsewhere
) -> None:
    page = await page_elsewhere(victim, elsewhere)
    for path in ("/console", "/console/canvas", "/console/assets/../canvas"):
        refused: list[str] = []
        page.on("console", lambda message, refused=refused: refused.append(message.text))
        await page.evaluate(
            """(address) => new Promise((loaded) => {
              const frame = document.createElement("iframe");
              frame.onload = loaded;
              frame.src = address;
              document.body.replaceChildren(frame);
            }).then(() => undefined)""",
            server.url + path,
        )
        frame = page.frames[-1]
        assert await frame.evaluate("document.title") not in ("Armarium", "Report")
        assert await frame.get_by_role("navigation").count() == 0
        assert frame.url.startswith("chrome-error://")


async def test_a_page_of_another_port_can_read_and_change_nothing(
    victim: Visitor, server: ServerProcess, elsewhere: Elsewhere, directory: Path, token: str, state_dir: Path
) -> None:
    """The browser sends the cookie with all of these requests: another port is the same site."""
    page = await page_elsewhere(victim, elsewhere)
    before = {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}
    file = f"{server.url}/api/sandbox/workspace/file?path=notes.md"
    sent = await page.evaluate(
        """async ([origin, file]) => {
          const tell = (name, request) => request.then(
            async (answer) => [name, answer.type, answer.status, await answer.text()], () => [name, "refused", 0, ""]);
          const simple = { credentials: "include", headers: { "content-type": "text/plain" } };
          return Promise.all([
            tell("read", fetch(file, { credentials: "include" })),
            tell("read blindly", fetch(file, { credentials: "include", mode: "no-cors" })),
            tell("session", fetch(`${origin}/api/session`, { credentials: "include" })),
            tell("events", fetch(`${origin}/api/events`, { credentials: "include" })),
            tell("page", fetch(`${origin}/console`, { credentials: "include" })),
            tell("write", fetch(file, { ...simple, method: "PUT", body: '{"content":"theirs"}' })),
            tell("with a proof", fetch(file, { ...simple, headers: { "x-armarium-proof": "x" } })),
            tell("post blindly", fetch(`${origin}/api/registry/scan-results`, { ...simple, method: "POST",
              mode: "no-cors", body: '{"scan_source":"theirs","findings":[]}' })),
            tell("log in", fetch(`${origin}/api/session`, { ...simple, method: "POST", mode: "no-cors",
              body: '{"key":"theirs"}' })),
            tell("tool", fetch(`${origin}/mcp`, { ...simple, method: "POST", mode: "no-cors",
              body: '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' })),
          ]);
        }""",
        [server.url, file],
    )
    assert len(sent) == 10
    for name, kind, status, text in sent:
        assert (kind in ("refused", "opaque"), status, text) == (True, 0, ""), name
    await _post_a_form(page, f"{server.url}/api/sandbox/workspace/folder")
    assert {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()} == before
    # The server records every call. Nothing was called but the log-in of the person.
    httpx.get(f"{server.url}/api/audit", headers={"authorization": f"Bearer {token}"}, timeout=60).raise_for_status()
    recorded = read_records(state_dir / "audit.sqlite", AuditFilter(surface="console"), last=1000)
    assert {record.tool for _, record in recorded} == {"console_log_in"}
    own = await victim.open("/console/files")
    await expect(own.get_by_role("navigation", name="Areas")).to_be_visible()


async def _post_a_form(page: Page, address: str) -> None:
    async with page.expect_navigation() as sent:
        await page.evaluate(
            """(address) => {
              const form = document.createElement("form");
              Object.assign(form, { method: "post", action: address, enctype: "text/plain" });
              form.innerHTML = `<input name='{"path":"theirs","x":"' value='"}'>`;
              document.body.append(form);
              form.submit();
            }""",
            address,
        )
    answer = await sent.value
    assert answer is not None
    assert answer.status in (401, 403), await answer.text()


async def test_a_window_that_another_port_opened_is_out_of_its_reach(
    victim: Visitor, server: ServerProcess, elsewhere: Elsewhere
) -> None:
    page = await page_elsewhere(victim, elsewhere)
    async with victim.context.expect_page() as opened:
        await page.evaluate("(address) => { window.other = open(address) }", f"{server.url}/console")
    console = await opened.value
    await expect(console.get_by_role("navigation", name="Areas")).to_be_visible()
    assert await console.evaluate("window.opener") is None
    await page.wait_for_function("() => window.other.closed")
