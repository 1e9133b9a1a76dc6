"""The frame of the console: areas, palette, help, themes, narrow screens, and what it says when something fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from armarium.surfaces.console.links import OwnerLinks
from support.browser import Visit, Visitor, accessibility_faults, press, session_of, tab_to, visitor
from support.server import ServerProcess, installed_command, write_config


def level_one(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


def menu(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Areas")


async def test_areas_are_reached_by_the_menu_by_keys_and_by_the_address(owner: Visitor) -> None:
    page = await owner.open("/console/status")
    await expect(level_one(page)).to_have_text("Status")
    await press(page, "g", "l")
    await expect(level_one(page)).to_have_text("Activity")
    await expect(page).to_have_title("Activity · Armarium")
    await expect(page.get_by_role("search", name="Filter the calls")).to_be_visible()
    await menu(page).get_by_role("link", name="Status").click()
    await expect(menu(page).get_by_role("link", name="Status")).to_have_attribute("aria-current", "page")
    await page.go_back()
    await expect(level_one(page)).to_have_text("Activity")


async def test_the_start_page_is_the_first_area(owner: Visitor) -> None:
    page = await owner.open("/console")
    await expect(menu(page).get_by_role("listitem").first.get_by_role("link")).to_have_attribute("aria-current", "page")


async def test_the_palette_finds_pages_and_runs_them(owner: Visitor) -> None:
    page = await owner.open("/console/activity")
    await expect(page.get_by_role("search")).to_be_visible()
    await press(page, "Control+K")
    await expect(page.get_by_role("combobox", name="Find a page")).to_be_focused()
    assert await accessibility_faults(page) == []
    await page.keyboard.type("status go")
    await expect(page.get_by_role("listbox").get_by_role("option")).to_have_count(1)
    await press(page, "Enter")
    await expect(level_one(page)).to_have_text("Status")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await press(page, "Control+K")
    await page.keyboard.type("no such thing")
    await expect(page.get_by_text("Nothing found")).to_be_visible()
    await press(page, "Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_help_lists_the_keys_and_letters_can_be_switched_off(owner: Visitor) -> None:
    page = await owner.open("/console/activity")
    await expect(page.get_by_role("search")).to_be_visible()
    await press(page, "?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(dialog).to_contain_text("Go to Status")
    await expect(dialog).to_contain_text("Filter")
    assert await accessibility_faults(page) == []
    await press(page, "Escape")
    await page.get_by_role("button", name="Person and preferences").click()
    await page.get_by_role("menuitemcheckbox", name="Single letters are shortcuts").click()
    await press(page, "Escape", "g", "m", "?")
    await expect(level_one(page)).to_have_text("Activity")
    await expect(dialog).to_have_count(0)


async def test_letters_in_a_field_are_text(owner: Visitor) -> None:
    page = await owner.open("/console/activity")
    field = page.get_by_role("textbox", name="Filter the calls")
    await field.fill("")
    await field.press_sequentially("g m ? tool:grep")
    await expect(field).to_have_value("g m ? tool:grep")
    await expect(level_one(page)).to_have_text("Activity")
    await press(page, "Enter")
    await expect(page).to_have_url(f"{owner.address}/console/activity?tool=grep&q=g+m+%3F")
    await expect(page.get_by_role("heading", name="No call matches")).to_be_visible()


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_are_accessible_in_both_themes_on_every_width(
    visit: Visit, server: ServerProcess, state_dir: Path, scheme: Any, width: int
) -> None:
    session = await session_of(server.url, code=OwnerLinks(state_dir).create())
    async with visit(color_scheme=scheme, viewport={"width": width, "height": 640}, storage_state=session) as person:
        page = await person.open("/console/activity")
        for path, ready in [
            ("activity", page.get_by_role("search")),
            ("activity?tool=none", page.get_by_role("heading", name="No call matches")),
            ("status", page.get_by_text("Live events")),
            ("nothing", page.get_by_role("heading", name="There is no such page")),
        ]:
            await page.goto(f"{person.address}/console/{path}")
            await expect(ready).to_be_visible()
            assert await accessibility_faults(page) == [], path
            wide = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not wide, f"{path} must be scrolled sideways"


async def test_the_chosen_theme_is_kept(owner: Visitor) -> None:
    page = await owner.open("/console/status")
    await page.emulate_media(color_scheme="light")
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    by_day = await page.evaluate(paper)
    await page.get_by_role("button", name="Person and preferences").click()
    await page.get_by_role("menuitemcheckbox", name="Dark").click()
    by_night = await page.evaluate(paper)
    assert by_day != by_night
    await page.reload()
    await expect(level_one(page)).to_have_text("Status")
    assert await page.evaluate(paper) == by_night


async def test_everything_is_reached_by_tab_and_the_content_by_one_step(owner: Visitor) -> None:
    page = await owner.open("/console/activity?own=1")
    await expect(page.get_by_role("search")).to_be_visible()
    await press(page, "Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await press(page, "Enter")
    await expect(page.get_by_role("main")).to_be_focused()
    await tab_to(page, "Calls")
    await page.evaluate("document.activeElement.blur()")
    await tab_to(page, "Person and preferences", most=10)


async def test_the_stream_of_events_is_opened_again_when_it_ends(owner: Visitor) -> None:
    page = await owner.context.new_page()

    async def end_at_once(route: Route) -> None:
        await route.fulfill(content_type="text/event-stream", body="event: greeting\ndata: 1\n\n")

    await page.route("**/api/events", end_at_once)
    await page.goto(f"{owner.address}/console/status")
    await expect(page.get_by_role("banner").get_by_text("reconnecting")).to_be_visible()
    await page.unroute("**/api/events")
    await expect(page.get_by_text("connected", exact=True)).to_be_visible()
    await expect(page.get_by_text("reconnecting")).to_have_count(0)


async def test_a_window_that_is_hidden_for_a_while_gives_its_connection_back(owner: Visitor) -> None:
    """A browser opens six connections to a server: as many windows would otherwise be all that it can open."""
    page = await owner.context.new_page()
    await page.clock.install()
    await page.goto(f"{owner.address}/console/status")
    await expect(page.get_by_text("connected", exact=True)).to_be_visible()
    show = """(isHidden) => {
      Object.defineProperty(document, "hidden", { configurable: true, get: () => isHidden });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(show, True)
    await page.clock.fast_forward(20_000)
    await expect(page.get_by_text("connected", exact=True)).to_be_visible()
    async with page.expect_event("requestfailed", lambda request: request.url.endswith("/api/events")):
        await page.clock.fast_forward(20_000)
    await expect(page.get_by_text("not connected")).to_be_visible()
    await page.evaluate(show, False)
    await expect(page.get_by_text("connected", exact=True)).to_be_visible()


async def test_an_error_of_the_server_is_shown_with_its_code_and_can_be_tried_again(owner: Visitor) -> None:
    page = await owner.context.new_page()
    busy = {"error": {"code": "BUSY", "message": "the log is busy", "hint": "wait a moment"}}
    await page.route("**/api/audit*", lambda route: route.fulfill(status=409, json=busy))
    await page.goto(f"{owner.address}/console/activity")
    alert = page.get_by_role("alert")
    for text in ("the log is busy", "wait a moment", "BUSY"):
        await expect(alert).to_contain_text(text)
    assert await accessibility_faults(page) == []
    await page.unroute("**/api/audit*")
    await alert.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("search")).to_be_visible()


async def test_a_server_that_wants_a_token_does_not_end_the_session(owner: Visitor) -> None:
    page = await owner.context.new_page()
    expired = {"results": {"error": {"code": "token_expired", "message": "the token has expired"}}}
    await page.route("**/api/audit*", lambda route: route.fulfill(status=401, json=expired))
    await page.goto(f"{owner.address}/console/activity")
    await expect(page.get_by_role("alert")).to_contain_text("token_expired")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_without_keys_there_is_no_log_in_but_a_warning(browser: Browser, tmp_path: Path, directory: Path) -> None:
    settings = {
        "state_dir": str(tmp_path / "state"),
        "server": {"port": 0},
        "security": {"auth": "none"},
        "sandbox": {"roots": [{"name": "workspace", "path": str(directory), "allowed_tools": ["*"]}]},
    }
    config = write_config(tmp_path, settings)
    with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as process:
        async with visitor(browser, process.url) as anyone:
            page = await anyone.open("/console/status")
            await expect(page.get_by_role("note")).to_contain_text("asks nobody for a key")
            await page.get_by_role("button", name="Person and preferences").click()
            await expect(page.get_by_role("menuitem", name="Log out")).to_have_count(0)
            assert await accessibility_faults(page) == []


async def test_a_page_of_another_port_can_do_nothing_with_the_session(owner: Visitor) -> None:
    """The browser sends our cookie with its requests."""
    page = await owner.open("/console/status")
    await expect(level_one(page)).to_have_text("Status")
    owner.expected = "request to|CORS|Failed to load|Access-Control"
    other = await owner.context.new_page()

    async def answer(route: Route) -> None:
        await route.fulfill(content_type="text/html", body="<!doctype html><title>Another port</title>")

    await other.route("http://127.0.0.1:9/**", answer)
    await other.goto("http://127.0.0.1:9/")
    assert await other.evaluate("localStorage.getItem('armarium.proof')") is None
    outcomes = await other.evaluate(
        """async (address) => {
          const options = [
            ["/api/sessions", { method: "DELETE" }],
            ["/api/session", { headers: { "x-armarium-proof": "guessed" } }],
            ["/api/session", { mode: "no-cors" }],
            ["/api/session", { method: "POST", mode: "no-cors", body: '{"key": "x"}' }],
          ];
          const outcomes = options.map(([path, more]) =>
            fetch(address + path, { credentials: "include", ...more }).then(({ type }) => type, () => "refused"));
          return Promise.all(outcomes);
        }""",
        owner.address,
    )
    assert set(outcomes) <= {"refused", "opaque"}
    await page.reload()
    await expect(level_one(page)).to_have_text("Status")
