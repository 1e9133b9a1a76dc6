"""The shared components, on a page of their own under the policy of the console: keys, focus, and long lists."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from armarium.foundation.security.identity import Authenticator
from armarium.foundation.settings.model import SessionSettings
from armarium.foundation.telemetry import Metrics
from armarium.surfaces.console.page import ConsolePage
from armarium.surfaces.gate import Gate
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.sessions import Sessions
from support.browser import REPOSITORY, Visitor, accessibility_faults, press, tab_to, visitor
from support.mcp_messages import serving

PARTS = ["grid", "tree", "code", "diff", "markdown", "report", "panes", "filters", "guard", "small"]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built page."""
    built = tmp_path_factory.mktemp("gallery")
    subprocess.run([sys.executable, REPOSITORY / "scripts/console", "--gallery", built], check=True)
    return built


@pytest.fixture
async def gallery(files: Path, browser: Browser) -> AsyncGenerator[Visitor]:
    metrics = Metrics()
    gate = Gate(Authenticator(()), loopback_only=True, max_body_bytes=1000, metrics=metrics)
    app = McpApp({}, gate, Sessions(SessionSettings(), metrics), metrics, further=ConsolePage(gate, files).routes)
    async with (
        serving(app) as address,
        visitor(browser, address, viewport={"width": 1000, "height": 800}) as person,
    ):
        yield person


async def part(gallery: Visitor, name: str) -> Page:
    page = await gallery.open(f"/console/{name}")
    await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    return page


def status(page: Page):
    return page.get_by_role("main").get_by_role("status")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_component_has_a_fault_of_accessibility(gallery: Visitor, scheme: Any) -> None:
    page = await gallery.open()
    await page.emulate_media(color_scheme=scheme)
    found: dict[str, list[str]] = {}
    for name in PARTS:
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(name)
        await expect(page.locator("[aria-busy=true]")).to_have_count(0)
        found[name] = await accessibility_faults(page)
    assert {name: faults for name, faults in found.items() if faults} == {}


async def test_a_grid_of_ten_thousand_rows_has_few_elements_and_one_tab_stop(gallery: Visitor) -> None:
    page = await part(gallery, "grid")
    grid = page.get_by_role("grid", name="Files")
    await expect(grid).to_have_attribute("aria-rowcount", "10001")
    assert await grid.get_by_role("row").count() < 200
    await tab_to(page, "Files")
    await press(page, "ArrowDown", "j", " ", "Enter")
    await expect(status(page)).to_have_text("chosen 2, opened file 2.txt, marked 1")
    await press(page, "End", "k", "Enter")
    await expect(status(page)).to_contain_text("opened file 9998.txt")
    await expect(grid.locator("[aria-rowindex='10000']")).to_be_visible()
    await press(page, "F2")
    await expect(status(page)).to_contain_text("opened renamed")
    await press(page, "Home", "PageDown")
    await expect(status(page)).not_to_contain_text("chosen 0")
    active = await grid.get_attribute("aria-activedescendant")
    assert await page.locator(f"[id='{active}']").count() == 1
    await press(page, "Tab")
    assert not await grid.evaluate("(grid) => grid.contains(document.activeElement)")


async def test_a_tree_opens_folders_by_keys_and_shows_a_large_one(gallery: Visitor) -> None:
    page = await part(gallery, "tree")
    tree = page.get_by_role("tree", name="Files")
    await tab_to(page, "Files")
    await press(page, "ArrowRight")
    await expect(tree.get_by_role("treeitem", name="note.md")).to_be_visible()
    await press(page, "ArrowRight", "ArrowDown", "Enter")
    await expect(status(page)).to_have_text("chosen docs/note.md, opened docs/note.md")
    await expect(tree.get_by_role("treeitem", name="note.md")).to_have_attribute("aria-level", "2")
    await press(page, "ArrowLeft", "ArrowLeft")
    await expect(tree.get_by_role("treeitem", name="note.md")).to_have_count(0)
    await press(page, "ArrowDown", "ArrowRight")
    await expect(tree.get_by_role("treeitem", name="9.txt", exact=True)).to_be_visible()
    assert await tree.get_by_role("treeitem").count() < 200
    await press(page, "End")
    await expect(status(page)).to_contain_text("chosen readme.md")
    await press(page, "ArrowUp", "ArrowRight")
    await expect(tree.get_by_role("treeitem", name="broken")).to_contain_text("cannot be read")


async def test_code_is_read_cited_edited_and_saved_by_keys(gallery: Visitor) -> None:
    page = await part(gallery, "code")
    code = page.get_by_role("textbox", name="src/app.py")
    await expect(code).to_be_visible()
    await expect(page.locator(".cm-mark")).to_have_attribute("title", "SQL made of strings")
    await page.get_by_role("button", name="Cite").click()
    await expect(page.locator(".cm-cited")).to_have_count(4)
    await expect(page.get_by_text("def function_50()")).to_be_in_viewport()
    before = await status(page).inner_text()
    await code.focus()
    await page.keyboard.type("x")
    await expect(status(page)).to_have_text(before)
    await page.get_by_role("button", name="Edit", exact=True).click()
    await code.focus()
    await press(page, "Control+Home")
    await page.keyboard.type("import os\n")
    await press(page, "Control+S")
    await expect(status(page)).to_contain_text("saved 1 times")
    await press(page, "Escape", "Tab")
    await expect(page.get_by_role("button", name="After the editor")).to_be_focused()
    await page.get_by_role("button", name="Replace").click()
    await expect(code).to_have_text("one line")


async def test_a_difference_shows_both_versions(gallery: Visitor) -> None:
    page = await part(gallery, "diff")
    await expect(page.get_by_role("textbox", name="version 4")).to_contain_text("at dawn")
    await expect(page.get_by_role("textbox", name="version 5")).to_contain_text("at high tide")
    await expect(page.locator(".cm-changedLine")).to_have_count(2)


async def test_markdown_is_elements_and_never_html(gallery: Visitor) -> None:
    page = await part(gallery, "markdown")
    main = page.get_by_role("main")
    await expect(main).to_contain_text('<b onclick="alert(1)">HTML</b>')
    await expect(main.locator("b, script, img")).to_have_count(0)
    await expect(main.get_by_role("link", name="docs")).to_have_attribute("rel", "noreferrer noopener")
    await expect(main.get_by_text("bad")).to_be_visible()
    await expect(main.get_by_role("link", name="bad")).to_have_count(0)
    await expect(main.get_by_role("button", name="[1]")).to_be_visible()


async def test_a_report_is_shown_without_its_scripts(gallery: Visitor) -> None:
    page = await gallery.context.new_page()
    # What the browser says of the attempts.
    gallery.expected = r"Content Security Policy|^policy: (script-src-attr|img-src|base-uri)"
    loaded: list[str] = []
    page.on("response", lambda response: loaded.append(response.url))
    await page.goto(f"{gallery.address}/console/report?hostile=yes")
    frame = page.frame_locator("iframe[title=Report]")
    heading = frame.get_by_role("heading", name="Report")
    await expect(heading).to_have_css("color", "rgb(255, 0, 0)")
    inside = page.frames[1]
    await expect(frame.get_by_text("x", exact=True)).to_have_attribute("id", "leads-nowhere")
    await frame.get_by_text("x", exact=True).click()
    await expect(heading).to_be_visible()
    assert inside.url.endswith("/console/canvas")
    assert await inside.evaluate("self.origin") == "null"
    assert await inside.evaluate("document.title") != "ran"
    assert not any("leak" in url for url in loaded)


async def test_panes_are_resized_by_keys_and_remember_it(gallery: Visitor) -> None:
    page = await part(gallery, "panes")
    divider = page.get_by_role("separator", name="Width of list")
    await divider.focus()
    await press(page, "ArrowRight", "ArrowRight")
    await expect(divider).to_have_attribute("aria-valuenow", "332")
    await page.reload()
    await expect(divider).to_have_attribute("aria-valuenow", "332")
    await page.set_viewport_size({"width": 600, "height": 700})
    await expect(divider).to_have_count(0)
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_text("the detail")).to_be_visible()
    await page.get_by_role("button", name="Back to list").click()
    await expect(page.get_by_text("the list")).to_be_visible()


async def test_filters_are_in_the_address(gallery: Visitor) -> None:
    page = await part(gallery, "filters")
    await press(page, "/")
    await page.keyboard.type("severity:high rule:S608 a:b text")
    await press(page, "Enter")
    await expect(status(page)).to_have_text("severity=high&rule=S608&q=a%3Ab+text")
    await page.get_by_role("button", name="Severity").click()
    await press(page, "ArrowDown", "Enter", "Escape")
    await expect(status(page)).to_have_text("rule=S608&q=a%3Ab+text&severity=high&severity=low")
    await expect(page.get_by_role("textbox")).to_have_value("severity:high severity:low rule:S608 a:b text")
    await page.get_by_role("button", name="Clear all filters").click()
    await expect(status(page)).to_have_text("")


async def test_unsaved_changes_are_not_left_behind_silently(gallery: Visitor) -> None:
    page = await part(gallery, "small")
    await page.get_by_role("link", name="guard").click()
    await page.get_by_label("unsaved").check()
    await page.get_by_role("button", name="Leave", exact=True).click()
    dialog = page.get_by_role("dialog", name="Leave without saving?")
    await dialog.get_by_role("button", name="Stay").click()
    assert page.url.endswith("/console/guard")
    await page.go_back()
    await expect(dialog).to_be_visible()
    assert page.url.endswith("/console/guard")
    await dialog.get_by_role("button", name="Leave it").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("small")


async def test_a_menu_is_used_by_keys_and_says_why_something_is_disabled(gallery: Visitor) -> None:
    page = await part(gallery, "small")
    await tab_to(page, "Actions")
    await press(page, "Enter")
    await expect(page.get_by_role("menuitem", name="Open")).to_be_focused()
    await press(page, "ArrowDown")
    disabled = page.get_by_role("menuitem", name="Rename this root is read-only")
    await expect(disabled).to_be_focused()
    await press(page, "Enter")
    await expect(page.get_by_role("menu")).to_be_visible()
    await press(page, "d", "Enter")
    await expect(page.get_by_role("button", name="Actions")).to_be_focused()
    await page.get_by_role("button", name="Undo").click()
    await expect(status(page).filter(has_text="undone")).to_be_visible()


async def test_a_dialog_takes_the_focus_and_gives_it_back(gallery: Visitor) -> None:
    page = await part(gallery, "small")
    opener = page.get_by_role("button", name="Open a dialog")
    await opener.focus()
    await press(page, "Enter")
    dialog = page.get_by_role("dialog", name="A dialog")
    await expect(dialog).to_be_visible()
    assert await dialog.evaluate("(dialog) => dialog.contains(document.activeElement)")
    await press(page, "Escape")
    await expect(dialog).to_have_count(0)
    await expect(opener).to_be_focused()


async def test_tabs_are_chosen_by_arrow_keys(gallery: Visitor) -> None:
    page = await part(gallery, "small")
    await page.get_by_role("tab", name="Content").focus()
    await press(page, "ArrowRight")
    await expect(page.get_by_role("tab", name="Findings 2")).to_be_focused()
    await expect(page.get_by_role("tabpanel")).to_have_text("panel two")
