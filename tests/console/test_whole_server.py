"""The journeys of one person through a server with everything: what one area changes is seen in the others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from armarium.foundation.security.identity import read_token
from armarium.surfaces.console.links import OwnerLinks, link
from support.browser import Visitor, press, tab_to
from support.client import connected
from support.console_corpus import until_searchable, write_searchable
from support.console_gateway import TOKEN
from support.gateway_server import ALLOWED, rag_entry
from support.server import ServerProcess

QUESTION = "What does rotate_lens run?"
LAMP = "root/workspace/lamp.py"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("work") / "lighthouse"
    write_searchable(root)
    return root


@pytest.fixture(scope="module")
def settings(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = tmp_path_factory.mktemp("gateway")
    (config / "overrides").mkdir()
    servers = {"wiki": rag_entry("tides"), "archive": rag_entry("letters", f"--bearer={TOKEN}")}
    (config / "overrides/rag-mcp.json").write_text(json.dumps(servers))
    return {
        "corpus": {"root": str(directory), "embedding": {"provider": "local"}},
        "store": {},
        "gateway": {"config_dir": str(config), **ALLOWED},
    }


@pytest.fixture(scope="module")
def token(server: ServerProcess, state_dir: Path) -> str:
    key = read_token(state_dir / "secret.token")
    assert key
    return key


@pytest.fixture(scope="module")
def api(server: ServerProcess, token: str) -> Iterator[httpx.Client]:
    """A program that calls the same server."""
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


@pytest.fixture
async def page(server: ServerProcess, state_dir: Path, stranger: Visitor) -> Page:
    """A page whose person has logged in by a link."""
    await until_searchable(server.url, state_dir)
    opened = await stranger.context.new_page()
    await opened.goto(link(server.url, OwnerLinks(state_dir).create()))
    await expect(opened.get_by_role("navigation", name="Areas")).to_be_visible()
    return opened


async def go(page: Page, letter: str, title: str) -> None:
    """Go to an area by its letter."""
    await press(page, "g", letter)
    await expect(page.get_by_role("heading", level=1, name=title)).to_be_visible()


async def choose(page: Page, name: str) -> None:
    """Go on to a control by Tab, and use it."""
    await tab_to(page, name)
    await press(page, "Enter")


def rows(grid: Locator) -> Locator:
    return grid.locator("[role=row][aria-rowindex]:not([aria-rowindex='1'])")


async def test_from_a_question_to_the_file_and_a_conflict_with_an_agent_by_keys_alone(
    server: ServerProcess, page: Page, directory: Path, token: str
) -> None:
    lamp = directory / "lamp.py"
    before = lamp.read_text()
    await tab_to(page, "Question")
    await page.keyboard.type(QUESTION)
    await press(page, "Enter")
    await expect(page.get_by_role("article")).to_have_attribute("aria-busy", "false")
    await press(page, "1")
    passage = page.get_by_role("region", name="Passage")
    await expect(passage.get_by_role("heading", name="lamp.py")).to_be_focused()
    await expect(page.locator(".cm-cited").first).to_contain_text("class Lamp")
    await choose(page, "Open file")
    await expect(page).to_have_url(re.compile(r"/console/file/corpus/lamp\.py\?L=1-\d+$"))
    await expect(page.locator(".cm-cited").first).to_contain_text("class Lamp")

    await page.goto(f"{server.url}/console/file/{LAMP}")
    await expect(page.get_by_role("button", name="Edit")).not_to_have_attribute("aria-disabled", "true")
    await press(page, "e")
    await page.locator(".cm-content").first.focus()
    await press(page, "Control+Home")
    await page.keyboard.type("# mine\n")
    async with connected(server.url, key=token) as agent:
        await agent.call("write_file", root="workspace", path="lamp.py", content="# theirs\n", mode="overwrite")
    await press(page, "Control+s")
    conflict = page.get_by_role("alert")
    await expect(conflict).to_contain_text("Changed meanwhile")
    assert lamp.read_text() == "# theirs\n"
    await press(page, "Escape")
    await choose(page, "Compare")
    difference = page.get_by_role("group", name="what is there now and your text")
    await expect(difference).to_contain_text("# theirs")
    await expect(difference).to_contain_text("# mine")
    await choose(page, "Overwrite")
    await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert lamp.read_text() == f"# mine\n{before}"

    await page.get_by_role("button", name="Stop editing").press("Enter")
    await go(page, "l", "Activity")
    calls = page.get_by_role("grid", name="Calls").get_by_role("row").filter(has_text="write_file")
    await expect(calls.filter(has_text="workspace:lamp.py").filter(has_text="success")).to_have_count(2)
    await expect(calls.filter(has_text="CONFLICT")).to_have_count(1)


async def test_an_earlier_version_in_a_project_is_restored_by_keys_alone(
    server: ServerProcess, page: Page, api: httpx.Client
) -> None:
    for text in ("dawn\n", "noon\n"):
        assert api.put("/api/store/notes/file", params={"path": "/tide.md"}, json={"content": text}).is_success
    await page.goto(f"{server.url}/console/file/store/notes/tide.md")
    await expect(page.locator(".cm-content")).to_contain_text("noon")
    await press(page, "3")
    await expect(page.get_by_role("list", name="What happened")).to_contain_text("token · file_write")
    await choose(page, "Restore")
    await expect(page.get_by_role("dialog", name="Restore version")).to_be_visible()
    await choose(page, "Restore")
    await expect(page.get_by_text(re.compile(r"Version \d+ is back"))).to_be_visible()
    stored = api.get("/api/store/notes/file", params={"path": "/tide.md"})
    assert stored.json()["content"] == "dawn\n"


async def test_findings_are_judged_together_and_the_judgement_is_undone_by_keys_alone(
    page: Page, api: httpx.Client
) -> None:
    found = [
        {"path": "lamp.py", "rule_id": "S605", "severity": "high", "message": f"shell {line}", "line_start": line}
        for line in range(1, 4)
    ]
    assert api.post("/api/registry/scan-results", json={"scan_source": "bandit", "findings": found}).is_success
    await go(page, "i", "Findings")
    grid = page.get_by_role("grid", name="List of findings")
    await expect(rows(grid)).to_have_count(3)
    await tab_to(page, "List of findings")
    await press(page, "Control+a")
    await expect(page.get_by_role("toolbar", name="Marked findings")).to_contain_text("3 marked")
    await press(page, "p")
    await expect(page.get_by_role("dialog", name="Judge 3 findings").get_by_label("Reason")).to_be_focused()
    await page.keyboard.type("only in tests")
    await choose(page, "Set 3 findings to false positive")
    await expect(page.get_by_role("heading", name="No finding matches")).to_be_visible()
    assert statuses(api) == {"false_positive"}
    await press(page, "u")
    await expect(rows(grid)).to_have_count(3)
    assert statuses(api) == {"open"}


def statuses(api: httpx.Client) -> set[str]:
    return {each["status"] for each in api.get("/api/registry/findings").json()["results"]}


async def test_a_source_is_connected_from_the_answer_that_failed_and_asked_again(page: Page) -> None:
    await go(page, "s", "Sources")
    await tab_to(page, "Letters")
    await press(page, "Space")
    await expect(page.get_by_role("checkbox", name="Letters", exact=True)).to_be_checked()
    await tab_to(page, "Question")
    await page.keyboard.type("Who wrote in May?")
    await press(page, "Enter")
    failed = page.get_by_role("list", name="Sources that did not answer")
    await expect(failed).to_contain_text("token_expired")
    await failed.get_by_role("button", name="Connect").press("Enter")
    await expect(page.get_by_role("dialog", name="Connect archive")).to_be_visible()
    await tab_to(page, "Token")
    await page.keyboard.type(TOKEN)
    await press(page, "Enter")
    await expect(page.get_by_role("listitem").filter(has_text="archive:letters")).to_be_visible()
    await expect(failed).to_have_count(0)


async def test_logging_out_ends_the_session_by_keys_alone(server: ServerProcess, page: Page) -> None:
    await choose(page, "Person and preferences")
    await expect(page.get_by_role("menuitem").first).to_be_visible()
    for _ in range(20):
        await press(page, "ArrowDown")
        chosen = await page.evaluate("document.activeElement.textContent.trim()")
        if chosen == "Log out":
            break
    await press(page, "Enter")
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()
    await page.goto(f"{server.url}/console/activity")
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()
    assert (await page.context.request.get(f"{server.url}/api/status")).status == 401
