"""The Activity page: calls as they come, what filters them, and what is known about one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect

from armarium.foundation.security.identity import read_token
from support.browser import Visitor, accessibility_faults, press, tab_to
from support.server import ServerProcess
from support.waiting import eventually

HOSTILE = '<img src=x onerror="document.title=1">=cmd.md'


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    served = tmp_path_factory.mktemp("workspace")
    (served / "notes.md").write_text("# Harbour\n")
    (served / HOSTILE).write_text("nothing\n")
    return served


@pytest.fixture
def agent(server: ServerProcess, state_dir: Path) -> Iterator[httpx.Client]:
    """A program that calls the server with the token."""
    token = read_token(state_dir / "secret.token")
    with httpx.Client(base_url=server.url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client


def read(agent: httpx.Client, path: str) -> None:
    agent.get("/api/sandbox/workspace/file", params={"path": path})


async def recorded(agent: httpx.Client, path: str) -> None:
    """Wait until the audit log has a call about the path."""
    await eventually(lambda: agent.get("/api/audit", params={"path_prefix": path}).json()["calls"])


def rows(page: Page, text: str) -> Any:
    return page.get_by_role("grid", name="Calls").get_by_role("row").filter(has_text=text)


async def test_calls_appear_as_they_come_and_wait_while_the_list_is_paused(owner: Visitor, agent: httpx.Client) -> None:
    page = await owner.open("/console/activity")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    read(agent, "live.md")
    await expect(rows(page, "workspace:live.md")).to_have_count(1)
    await page.get_by_role("button", name="Pause").click()
    for number in range(3):
        read(agent, f"paused-{number}.md")
    await expect(page.get_by_role("button", name="3 new")).to_be_visible()
    await expect(rows(page, "paused-")).to_have_count(0)
    await page.get_by_role("button", name="3 new").click()
    await expect(rows(page, "paused-")).to_have_count(3)
    assert await accessibility_faults(page) == []


async def test_the_reads_of_the_console_do_not_fill_the_list(owner: Visitor, agent: httpx.Client) -> None:
    other = await owner.open("/console/files/root/workspace")
    await expect(other.get_by_role("row").filter(has_text="notes.md")).to_be_visible()
    await recorded(agent, "")
    page = await owner.open("/console/activity")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await other.reload()
    await expect(other.get_by_role("row").filter(has_text="notes.md")).to_be_visible()
    read(agent, "after-the-console.md")
    await expect(rows(page, "after-the-console.md")).to_have_count(1)
    for tool in ("list_folder", "list_roots", "console_session"):
        await expect(rows(page, tool)).to_have_count(0)
    await page.get_by_label("the console's own reads").check()
    await expect(rows(page, "list_folder")).not_to_have_count(0)


async def test_the_list_stays_while_it_is_read(owner: Visitor, agent: httpx.Client) -> None:
    page = await owner.open("/console/activity")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    read(agent, "first.md")
    await rows(page, "workspace:first.md").hover()
    read(agent, "second.md")
    await expect(page.get_by_role("button", name="1 new")).to_be_visible()
    await expect(rows(page, "second.md")).to_have_count(0)
    await page.mouse.move(1, 1)
    await expect(rows(page, "second.md")).to_have_count(1)


async def test_filters_are_in_the_address_and_come_from_the_calls_there_are(
    owner: Visitor, agent: httpx.Client
) -> None:
    read(agent, "absent.md")
    agent.get("/api/sandbox/workspace/stat", params={"path": "notes.md"})
    await recorded(agent, "absent.md")
    page = await owner.open("/console/activity?tool=read_file&status=NOT_FOUND")
    await expect(rows(page, "absent.md")).not_to_have_count(0)
    await expect(rows(page, "stat_file")).to_have_count(0)
    await page.get_by_role("button", name="Tool").click()
    await page.get_by_role("menuitemcheckbox", name="stat_file").click()
    await page.wait_for_url("**/activity?*tool=stat_file*")
    # An event that the filters do not admit is not shown.
    read(agent, "notes.md")
    read(agent, "absent-too.md")
    await expect(rows(page, "absent-too.md")).to_have_count(1)
    await expect(rows(page, "workspace:notes.md")).to_have_count(0)


async def test_a_call_leads_to_its_arguments_and_its_file_by_keys(owner: Visitor, agent: httpx.Client) -> None:
    read(agent, "notes.md")
    await recorded(agent, "notes.md")
    page = await owner.open("/console/activity?tool=read_file&q=notes.md")
    await expect(rows(page, "notes.md")).not_to_have_count(0)
    await tab_to(page, "Calls")
    await press(page, "Home", "Enter")
    await expect(page.get_by_label("Arguments")).to_contain_text('"path": "notes.md"')
    await expect(page.get_by_role("link", name="notes.md")).to_have_attribute(
        "href", "/console/file/root/workspace/notes.md"
    )
    assert await accessibility_faults(page) == []


async def test_names_of_files_stay_text_also_in_what_is_exported(owner: Visitor, agent: httpx.Client) -> None:
    read(agent, HOSTILE)
    await recorded(agent, HOSTILE[:8])
    page = await owner.open("/console/activity?tool=read_file&q=%3Cimg")
    await expect(rows(page, HOSTILE)).not_to_have_count(0)
    await page.get_by_role("button", name="Export").click()
    async with page.expect_download() as saving:
        await page.get_by_role("menuitem", name="Export as JSON").click()
    saved = json.loads(Path(await (await saving.value).path()).read_text())
    assert {call["path"] for call in saved} == {HOSTILE}
    assert await page.title() != "1"


async def test_the_pages_in_the_dark_on_a_small_screen_and_without_calls(visit: Any, owner: Visitor) -> None:
    page = await owner.open("/console/activity?tool=nothing_like_this")
    await expect(page.get_by_text("No call matches")).to_be_visible()
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size({"width": 320, "height": 640})
    assert await accessibility_faults(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 320
