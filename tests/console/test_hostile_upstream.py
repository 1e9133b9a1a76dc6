"""Reports of a hostile upstream: nothing in them leads elsewhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import expect

from support.browser import Visitor
from support.elsewhere import Elsewhere
from support.gateway_server import ALLOWED, rag_entry

WAYS_OUT = """<h1>Tides</h1>
<meta http-equiv="refresh" content="0;url={origin}/refresh">
<link rel="stylesheet" href="{origin}/style"><link rel="prefetch" href="{origin}/prefetch"><base href="{origin}/">
<style>@import "{origin}/import"; body {{ background: url({origin}/background) }}</style>
<img src="{origin}/image" srcset="{origin}/source-set"><object data="{origin}/object"></object>
<video src="{origin}/video" autoplay></video><iframe src="{origin}/frame"></iframe>
<svg width="9" height="9"><image href="{origin}/svg" width="9" height="9"/></svg>
<p><a id="link" href="{origin}/link">link</a> <a id="top" href="{origin}/top" target="_top">top</a>
<a id="new" href="{origin}/new" target="_blank">new</a> <a id="ping" href="#here" ping="{origin}/ping">ping</a></p>
<form action="{origin}/form"><button id="send">send</button></form>
<svg width="9" height="9"><a id="drawn" href="{origin}/drawn"><rect width="9" height="9"/></a></svg>"""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    with Elsewhere.running() as server:
        yield server


@pytest.fixture(scope="module")
def settings(elsewhere: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    base = tmp_path_factory.mktemp("gateway")
    (base / "overrides").mkdir()
    report = base64.b64encode(WAYS_OUT.format(origin=elsewhere.url).encode()).decode()
    attached = {
        "artifacts": [{"name": "tides.html", "b64": report, "mime": "text/html"}],
        "display": {"open_canvas": True, "primary_file": "tides.html"},
    }
    source = {"id": "evil", "name": "Ledger", "sourceType": "wiki", "authRequired": False}
    hit = {"id": "1", "score": 1.0, "resourceId": "evil", "snippet": "of evil", "title": "report"}
    (base / "evil.json").write_text(
        json.dumps(
            {
                "rag_discover_resources": {"results": {"resources": [source | {"authMode": "none"}]}},
                "rag_get_raw_results": {"results": {"hits": [hit]}} | attached,
                "rag_get_synthesized_results": attached,
            }
        )
    )
    shown = {"displayName": "Books", "defaultSelected": True}
    servers = {"books": rag_entry("evil", f"--more={base / 'evil.json'}", ui=shown)}
    (base / "overrides/rag-mcp.json").write_text(json.dumps(servers))
    return {"gateway": {"config_dir": str(base), "own_sources": False, **ALLOWED}}


async def test_a_report_leads_nowhere(owner: Visitor, elsewhere: Elsewhere) -> None:
    """Neither what it loads, nor its links, forms and refresh reach another place, however a person clicks."""
    # The browser also tells of requests that it refuses. Those that it sends arrive at the other server.
    owner.expected = rf"^(console|policy): |{re.escape(elsewhere.url)}/"
    elsewhere.asked.clear()
    page = await owner.open("/console/sources")
    await expect(page.get_by_text("1 of 1 source asked by default")).to_be_visible()
    await page.get_by_role("textbox", name="Question").fill("when is high water?")
    await page.get_by_role("button", name="Search", exact=True).click()
    report = page.frame_locator("iframe[title='Report tides.html']")
    heading = report.get_by_role("heading", name="Tides")
    await expect(heading).to_be_visible()
    address = page.url
    for name in ("link", "top", "new", "ping", "send", "drawn"):
        target = report.locator(f"#{name}")
        # A console that removes it is as good.
        if await target.count():
            await target.dispatch_event("click")
    for frame in page.frames:
        await frame.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await expect(heading).to_be_visible()
    assert page.url == address
    assert owner.context.pages == [page]
    await owner.context.request.get(f"{elsewhere.url}/asked-by-the-test")
    assert elsewhere.asked == ["/asked-by-the-test"]
