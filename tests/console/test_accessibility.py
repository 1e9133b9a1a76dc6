"""Every screen in both themes: with content, without any, and while the server fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from armarium.foundation.security.identity import read_token
from armarium.surfaces.console.links import OwnerLinks
from support.api_server import until_indexed
from support.browser import Visit, accessibility_faults, session_of, sideways, visitor
from support.console_corpus import owners_api, write_searchable
from support.console_gateway import write_servers
from support.gateway_server import ALLOWED
from support.server import ServerProcess, installed_command, write_config

Theme = Literal["light", "dark"]
THEMES: tuple[Theme, ...] = ("light", "dark")
THEMES_OF_THE_REST = ("light", pytest.param("dark", marks=pytest.mark.soak))
"""Colours are the same with and without content."""
FAILURE = {"error": {"code": "BUSY", "message": "too much to do", "hint": "wait a moment", "retryable": True}}

SCREENS = {
    "ask": "ask",
    "files": "files",
    "folder": "files/root/workspace",
    "file": "file/root/workspace/handbook.md",
    "history": "file/store/notes/harbour.md?tab=history",
    "findings": "findings?status=open",
    "issues": "findings/issues?status=open",
    "sources": "sources",
    "servers": "admin/servers",
    "keys": "admin/keys",
    "checks": "admin/checks",
    "settings": "admin/settings",
    "activity": "activity",
    "status": "status",
}
"""The address of each screen."""
CONTENT = {
    "ask": "What do you want to know?",
    "files": "notes",
    "folder": "handbook.md",
    "file": "The lamp is lit",
    "history": "Version 1",
    "findings": "password in the code",
    "issues": "Relight the lamp",
    "sources": "Harbour notes",
    "servers": "archive",
    "activity": "write_file",
    "status": "sandbox",
}
"""What the page shows when it has everything, if that can be known."""


def _settings(base: Path, *, is_full: bool) -> dict[str, Any]:
    directory, registry = base / "workspace", base / "registry"
    registry.mkdir()
    gateway: dict[str, Any] = {"config_dir": str(base / "gateway"), "watch": False, **ALLOWED}
    if is_full:
        write_searchable(directory)
        gateway |= write_servers(base / "gateway")
    else:
        directory.mkdir()
    return {
        "sandbox": {"roots": [{"name": "workspace", "path": str(directory), "allowed_tools": ["*"]}]},
        "corpus": {"root": str(directory), "embedding": {"provider": "local"}, "ingest": {"watch": False}},
        "registry": {"project": str(registry)},
        "store": {},
        "gateway": gateway,
    }


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("full") / "workspace"


@pytest.fixture(scope="module")
def settings(directory: Path) -> dict[str, Any]:
    return _settings(directory.parent, is_full=True)


@pytest.fixture(scope="module")
def full(server: ServerProcess, state_dir: Path) -> ServerProcess:
    """A server that has something of everything."""
    headers = {"authorization": f"Bearer {read_token(state_dir / 'secret.token')}"}
    with httpx.Client(base_url=f"{server.url}/api", headers=headers, timeout=60) as api:
        for text in ("Ships leave at high tide.\n", "Ships leave at dawn.\n"):
            api.put("/store/notes/file", params={"path": "/harbour.md"}, json={"content": text}).raise_for_status()
        api.put("/sandbox/workspace/file", params={"path": "new.md"}, json={"content": "x"}).raise_for_status()
        finding = {"path": "handbook.md", "rule_id": "S105", "message": "password in the code", "severity": "high"}
        scan = {"scan_source": "ruff", "findings": [finding | {"line_start": 5}]}
        api.post("/registry/scan-results", json=scan).raise_for_status()
        api.post("/registry/issues", json={"title": "Relight the lamp"}).raise_for_status()
    return server


@pytest.fixture(scope="module")
def empty(built_console: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """A server that has nothing, and its state directory."""
    base = tmp_path_factory.mktemp("empty")
    own = {"state_dir": str(base / "state"), "server": {"port": 0}}
    config = write_config(base, own | _settings(base, is_full=False))
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        yield process, base / "state"


async def settled(page: Page) -> None:
    await page.locator("main h1").wait_for(state="attached")
    await expect(page.locator("main [aria-busy=true]")).to_have_count(0)
    await page.evaluate("document.fonts.ready")


async def faults_at_every_width(page: Page) -> list[str]:
    """What axe finds at the usual width and at 320 px, and what scrolls sideways there."""
    found = await accessibility_faults(page)
    await page.set_viewport_size({"width": 320, "height": 640})
    await settled(page)
    return [*found, *await accessibility_faults(page), *await sideways(page)]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("screen", SCREENS)
async def test_a_screen_with_content(
    full: ServerProcess, state_dir: Path, visit: Visit, screen: str, theme: Theme
) -> None:
    session = await session_of(full.url, code=OwnerLinks(state_dir).create())
    async with visit(storage_state=session, color_scheme=theme) as owner:
        page = await owner.open(f"/console/{SCREENS[screen]}")
        if screen in CONTENT:
            content = page.get_by_role("main").get_by_text(CONTENT[screen])
            await expect(content.locator("visible=true").first).to_be_visible()
        await settled(page)
        assert await faults_at_every_width(page) == []


@pytest.mark.parametrize("theme", THEMES_OF_THE_REST)
@pytest.mark.parametrize("screen", [each for each in SCREENS if each not in ("file", "history")])
async def test_a_screen_without_content(
    empty: tuple[ServerProcess, Path], browser: Any, screen: str, theme: Theme
) -> None:
    server, state = empty
    session = await session_of(server.url, code=OwnerLinks(state).create())
    async with visitor(browser, server.url, storage_state=session, color_scheme=theme) as owner:
        page = await owner.open(f"/console/{SCREENS[screen]}")
        await settled(page)
        assert await faults_at_every_width(page) == []


@pytest.mark.parametrize("theme", THEMES_OF_THE_REST)
@pytest.mark.parametrize("screen", SCREENS)
async def test_a_screen_while_the_server_fails(
    full: ServerProcess, state_dir: Path, visit: Visit, screen: str, theme: Theme
) -> None:
    async def fail(route: Route) -> None:
        await route.fulfill(status=503, json=FAILURE)

    session = await session_of(full.url, code=OwnerLinks(state_dir).create())
    async with visit(storage_state=session, color_scheme=theme) as owner:
        owner.expected = "503"
        await owner.context.route(re.compile("/api/(?!session|events)"), fail)
        page = await owner.open(f"/console/{SCREENS[screen]}")
        await expect(page.get_by_text("too much to do").first).to_be_visible()
        await settled(page)
        assert await faults_at_every_width(page) == []


@pytest.mark.parametrize("theme", THEMES)
async def test_the_log_in(server: ServerProcess, visit: Visit, theme: Theme) -> None:
    async with visit(color_scheme=theme) as stranger:
        page = await stranger.open()
        await expect(page.get_by_label("Key", exact=True)).to_be_visible()
        assert await accessibility_faults(page) == []
        await page.set_viewport_size({"width": 320, "height": 640})
        assert [*await accessibility_faults(page), *await sideways(page)] == []


@pytest.mark.parametrize("theme", THEMES)
async def test_dialogs(full: ServerProcess, state_dir: Path, visit: Visit, theme: Theme) -> None:
    session = await session_of(full.url, code=OwnerLinks(state_dir).create())
    async with visit(storage_state=session, color_scheme=theme) as owner:
        page = await owner.open("/console/activity")
        await settled(page)
        for keys, dialog in (("Control+k", "Find a page"), ("?", "shortcuts")):
            await page.keyboard.press(keys)
            await expect(page.get_by_role("dialog", name=dialog)).to_be_visible()
            assert await faults_at_every_width(page) == []
            await page.keyboard.press("Escape")
        for address, button in (("findings?status=open", "Import…"), ("sources", "Connect…")):
            await page.set_viewport_size({"width": 1280, "height": 900})
            await page.goto(f"{owner.address}/console/{address}")
            await page.get_by_role("button", name=button).first.click()
            await expect(page.get_by_role("dialog")).to_be_visible()
            assert await faults_at_every_width(page) == []


@pytest.mark.parametrize("theme", THEMES)
async def test_an_answer_in_a_thread_and_its_passage(
    full: ServerProcess, state_dir: Path, visit: Visit, theme: Theme
) -> None:
    async with owners_api(full.url, state_dir) as http:
        await until_indexed(http)
    session = await session_of(full.url, code=OwnerLinks(state_dir).create())
    async with visit(storage_state=session, color_scheme=theme) as owner:
        page = await owner.open("/console/ask?src=armarium:corpus")
        question = page.get_by_role("textbox", name=re.compile("uestion$"))
        await question.fill("How often does the horn sound in fog?")
        await question.press("Enter")
        await expect(page.get_by_role("article").last).to_have_attribute("aria-busy", "false")
        assert await accessibility_faults(page) == []
        await page.keyboard.press("1")
        await expect(page.get_by_role("button", name="next")).to_be_visible()
        await settled(page)
        assert await faults_at_every_width(page) == []
