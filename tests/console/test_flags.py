"""The console offers what the server offers: tools that are switched off are in no menu and no filter."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from armarium.foundation.security.identity import read_token
from armarium.surfaces.console.links import OwnerLinks
from support.browser import Visitor, accessibility_faults, press, session_of, visitor
from support.server import ServerProcess, installed_command, write_config

pytestmark = pytest.mark.usefixtures("built_console")


@asynccontextmanager
async def served(
    browser: Browser, tmp_path: Path, settings: dict[str, Any], **options: Any
) -> AsyncGenerator[tuple[Visitor, httpx.Client]]:
    """The owner, logged in to a server with these settings, and a program with the token."""
    state = tmp_path / "state"
    config = write_config(tmp_path, {"state_dir": str(state), "server": {"port": 0}} | settings)
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)], **options) as server:
        headers = {"authorization": f"Bearer {read_token(state / 'secret.token')}"}
        session = await session_of(server.url, code=OwnerLinks(state).create())
        with httpx.Client(base_url=server.url, headers=headers, timeout=60) as api:
            async with visitor(browser, server.url, storage_state=session) as owner:
                yield owner, api


def roots(directory: Path) -> Mapping[str, Any]:
    directory.mkdir()
    return {"roots": [{"name": "workspace", "path": str(directory), "allowed_tools": ["*"]}]}


async def areas(page: Page) -> list[str]:
    menu = page.get_by_role("navigation", name="Areas")
    await expect(menu.get_by_role("link", name="Activity")).to_be_visible()
    return [each.strip() for each in await menu.get_by_role("listitem").all_inner_texts()]


async def test_without_the_tools_of_the_store_there_is_no_fileio(browser: Browser, tmp_path: Path) -> None:
    settings = {"store": {"tools": {"file_io": False}}, "registry": {"project": str(tmp_path)}}
    async with served(browser, tmp_path, settings) as (owner, _):
        page = await owner.open("/console")
        await expect(page).to_have_url(f"{owner.address}/console/findings")
        assert "FileIO" not in await areas(page)
        await page.goto(f"{owner.address}/console/files")
        await expect(page.get_by_text("There is no such page")).to_be_visible()


async def test_with_a_root_fileio_has_no_projects(browser: Browser, tmp_path: Path) -> None:
    settings = {"store": {"tools": {"file_io": {"enabled": False}}}, "sandbox": roots(tmp_path / "work")}
    async with served(browser, tmp_path, settings) as (owner, _):
        page = await owner.open("/console/files")
        await expect(page.get_by_role("link", name="workspace")).to_be_visible()
        assert "FileIO" in await areas(page)
        await expect(page.get_by_text("Projects")).to_have_count(0)


@pytest.mark.contract("S5.3-4")
async def test_a_tool_that_is_off_is_offered_nowhere_and_its_reason_is_said(browser: Browser, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"store": {}}
    async with served(browser, tmp_path, settings) as (_, api):
        written = api.put("/api/store/notes/file", params={"path": "/a.md"}, json={"content": "tide\n"})
        assert written.status_code == 200, written.text
    settings["store"] = {"tools": {"file_write": False, "file_delete": False}}
    async with served(browser, tmp_path, settings) as (owner, _):
        page = await owner.open("/console/files")
        await expect(page.get_by_role("link", name="notes")).to_be_visible()
        await expect(page.get_by_role("button", name="New project")).to_be_disabled()
        await expect(page.get_by_text("file_write is not offered here")).to_be_visible()
        await press(page, "n")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert await accessibility_faults(page) == []

        await page.goto(f"{owner.address}/console/files/store/notes")
        await expect(page.get_by_role("grid").get_by_role("row").filter(has_text="a.md")).to_be_visible()
        await press(page, "n")
        await expect(page.get_by_text("New file: file_write is not offered here")).to_be_visible()
        await page.get_by_role("grid").get_by_role("row").filter(has_text="a.md").click()
        await press(page, "Delete")
        await expect(page.get_by_text("Delete: file_delete is not offered here")).to_be_visible()

        await page.goto(f"{owner.address}/console/file/store/notes/a.md")
        await expect(page.locator(".cm-content")).to_contain_text("tide")
        await expect(page.get_by_role("button", name="Edit")).to_have_attribute("aria-disabled", "true")
        await press(page, "e")
        await expect(page.get_by_text("Edit: file_write is not offered here")).to_be_visible()

        # The log has calls of the tool from before it was switched off.
        await page.goto(f"{owner.address}/console/activity?own=1")
        await expect(page.get_by_role("grid", name="Calls").get_by_text("file_write").first).to_be_visible()
        await page.get_by_role("button", name="Tool").click()
        await expect(page.get_by_role("menuitemcheckbox", name="file_list_page")).to_be_visible()
        await expect(page.get_by_role("menuitemcheckbox", name="file_write")).to_have_count(0)


async def test_sources_follow_the_flag_of_rag(browser: Browser, tmp_path: Path) -> None:
    settings = {"gateway": {"config_dir": str(tmp_path / "mcp")}, "sandbox": roots(tmp_path / "work")}
    for flag, expected in (("true", True), ("false", False)):
        environment = {"FEATURE_RAG_MCP_ENABLED": flag}
        async with served(browser, tmp_path, settings, environ=environment) as (owner, _):
            page = await owner.open("/console")
            menu = await areas(page)
            assert ("Sources" in menu, "Ask" in menu) == (expected, expected)
            await page.goto(f"{owner.address}/console/sources")
            await expect(page.get_by_text("There is no such page")).to_have_count(0 if expected else 1)
