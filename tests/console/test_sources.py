"""The Sources page: which sources are asked, their tokens and states, and what servers attach to an answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from support.browser import Visitor, accessibility_faults, press, tab_to
from support.console_gateway import EVIL, PIXEL, TOKEN, write_servers

Json = dict[str, Any]
REFUSED_BY_THE_CANVAS = r"inline event handler|/console/x|script-src|javascript:|form-action|sandboxed"
"""What the browser says of a hostile report: it refuses its scripts and its images."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def settings(servers: Path) -> Json:
    return {"gateway": write_servers(servers) | {"own_sources": False}}


FORGET = """async () => {
  const headers = { "x-armarium-proof": localStorage.getItem("armarium.proof") };
  return (await (await fetch("/api/rag/selection", { method: "DELETE", headers })).json()).removed;
}"""


async def sources_page(person: Visitor) -> Page:
    """The page of a person who has ticked nothing yet."""
    page = await person.open("/console/sources")
    if await page.evaluate(FORGET):
        await page.reload()
    await expect(asked(page)).to_contain_text("2 of 7 sources asked by default")
    return page


def asked(page: Page) -> Locator:
    return page.get_by_role("region", name="RAG providers").get_by_role("status")


def box(page: Page, name: str) -> Locator:
    return page.get_by_role("checkbox", name=name, exact=True)


def server_item(page: Page, name: str) -> Locator:
    """The item of a server, with its sources."""
    providers = page.get_by_role("list", name="RAG providers").locator("> li")
    return providers.filter(has=page.get_by_role("checkbox", name=name, exact=True))


async def search(page: Page, question: str = "when is high water?") -> None:
    await page.get_by_role("textbox", name="Question").fill(question)
    await page.get_by_role("button", name="Search", exact=True).click()


async def only(page: Page, name: str) -> None:
    """Tick this source and no other one."""
    for each in await page.get_by_role("list", name=re.compile("^Sources of")).get_by_role("checkbox").all():
        await each.set_checked(False)
    await box(page, name).check()
    await expect(asked(page)).to_contain_text("1 of")


@pytest.mark.contract("G6-1")
async def test_ticked_sources_are_asked_and_stay_ticked(owner: Visitor) -> None:
    # The answer has a report of a hostile server.
    owner.expected = REFUSED_BY_THE_CANVAS
    page = await sources_page(owner)
    await expect(asked(page)).to_contain_text("2 of 7 sources")
    await expect(box(page, "Harbour notes")).to_be_checked()
    async with page.expect_response("**/api/rag/selection"):
        await box(page, "Tides").uncheck()
    notes = box(page, "Harbour notes")
    assert await notes.evaluate("(box) => box.indeterminate")
    async with page.expect_response("**/api/rag/selection"):
        await box(page, "law").click()
    await expect(box(page, "Verdicts")).to_be_checked()
    await expect(asked(page)).to_contain_text("3 of 7 sources")
    await search(page)
    hits = page.get_by_role("listitem").filter(has_text="notes:harbour")
    await expect(hits).to_be_visible()
    await expect(page.get_by_text("notes:tides")).to_have_count(0)
    await page.reload()
    await expect(asked(page)).to_contain_text("3 of 7 sources")
    await expect(box(page, "Tides")).not_to_be_checked()
    await page.get_by_role("button", name="Reset").click()
    await expect(asked(page)).to_contain_text("2 of 7 sources")
    await expect(page.get_by_role("button", name="Reset")).to_have_count(0)


async def test_sources_are_found_ticked_and_asked_by_keys(owner: Visitor) -> None:
    # The answer has a report of a hostile server.
    owner.expected = REFUSED_BY_THE_CANVAS
    page = await sources_page(owner)
    await press(page, "/")
    await page.keyboard.type("verd")
    await expect(page.get_by_role("list", name="RAG providers").get_by_role("checkbox")).to_have_count(2)
    await tab_to(page, "Verdicts")
    await press(page, "Space")
    await expect(asked(page)).to_contain_text("3 of 7")
    await press(page, "ArrowUp", "ArrowUp", "End")
    await expect(box(page, "Verdicts")).to_be_focused()
    await press(page, "Space")
    await expect(asked(page)).to_contain_text("2 of 7")
    await page.get_by_role("searchbox").fill("")
    await box(page, "law").focus()
    await press(page, "ArrowLeft")
    await expect(box(page, "Verdicts")).to_have_count(0)
    await press(page, "ArrowRight", "ArrowDown")
    await expect(box(page, "Cases")).to_be_focused()
    await tab_to(page, "Question")
    await page.keyboard.type("what is there?")
    await press(page, "Enter")
    await expect(page.get_by_text("2 passages in")).to_be_visible()


async def test_a_token_is_lent_from_the_failed_answer_which_is_asked_again(owner: Visitor) -> None:
    page = await sources_page(owner)
    archive = server_item(page, "archive")
    await expect(archive).to_contain_text("action required")
    await only(page, "Letters")
    await search(page)
    failed = page.get_by_role("list", name="Sources that did not answer")
    await expect(failed).to_contain_text("token_expired")
    # By keys alone from here on.
    await failed.get_by_role("button", name="Connect").focus()
    await press(page, "Enter")
    dialog = page.get_by_role("dialog", name="Connect archive")
    await expect(dialog).to_contain_text("in memory")
    assert await accessibility_faults(page) == []
    await tab_to(page, "Token")
    await page.keyboard.type("a wrong token")
    await press(page, "Enter")
    await expect(dialog.get_by_role("alert")).to_contain_text("does not accept this token")
    await page.get_by_label("Token", exact=True).fill(TOKEN)
    await press(page, "Enter")
    await expect(dialog).to_have_count(0)
    await expect(page.get_by_text("1 passages in")).to_be_visible()
    await expect(failed).to_have_count(0)
    await expect(archive).to_contain_text(re.compile(r"bearer kept in memory, \d+ min left"))
    await expect(archive).not_to_contain_text("action required")
    assert TOKEN not in await page.content()
    assert TOKEN not in await page.evaluate("JSON.stringify([localStorage, sessionStorage])")
    await archive.get_by_role("button", name="Forget").click()
    await expect(archive).to_contain_text("action required")


async def test_a_token_that_expires_is_asked_for_again(owner: Visitor) -> None:
    page = await sources_page(owner)
    archive = server_item(page, "archive")
    await archive.get_by_role("button", name="Connect").click()

    async def shorten(route: Any) -> None:
        await route.continue_(post_data=json.dumps(route.request.post_data_json | {"ttl_s": 1}))

    await page.route("**/api/rag/connections/archive", shorten)
    await page.get_by_label("Token", exact=True).fill(TOKEN)
    await page.get_by_role("button", name="Connect", exact=True).click()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    # Nobody does anything: the page knows when it ends.
    await expect(archive.get_by_role("button", name="Connect")).to_be_visible()
    await expect(archive).to_contain_text("action required")


async def test_a_refused_source_is_locked(owner: Visitor) -> None:
    page = await sources_page(owner)
    await only(page, "Verdicts")
    await search(page)
    failed = page.get_by_role("list", name="Sources that did not answer")
    await expect(failed).to_contain_text("unauthorized_source")
    verdicts = server_item(page, "law").get_by_role("listitem").filter(has_text="Verdicts")
    await expect(verdicts).to_contain_text("locked")


@pytest.mark.contract("G6-6")
async def test_reports_are_shown_without_rights_and_files_can_be_downloaded(owner: Visitor) -> None:
    owner.expected = REFUSED_BY_THE_CANVAS
    page = await sources_page(owner)
    await search(page)
    report = page.frame_locator("iframe[title='Report tides.html']")
    heading = report.get_by_role("heading", name="Tides of the year")
    await expect(heading).to_have_css("color", "rgb(0, 128, 0)")
    await expect(page.get_by_text("Its scripts and forms do not work here")).to_be_visible()
    assert await accessibility_faults(page) == []
    address = page.url
    await report.locator("#send").click()
    await report.locator("#run").click()
    assert await heading.is_visible()
    assert page.url == address
    assert "ran" not in [await page.title(), await report.locator("html").evaluate("() => document.title")]

    files = page.get_by_role("region", name="Files of the answer")
    await files.get_by_role("button", name="Show chart.png").click()
    picture = files.get_by_role("img", name="chart.png")
    await expect(picture).to_have_js_property("naturalWidth", 1)
    await files.get_by_role("button", name="Show notes.md").click()
    await expect(files.get_by_role("heading", name="High water")).to_be_visible()
    await expect(files.get_by_role("link")).to_have_count(0)
    await files.get_by_role("button", name="Hide notes.md").click()
    await expect(files.get_by_role("heading")).to_have_count(0)
    for name, content in (("chart.png", PIXEL), ("raw.bin", bytes(range(256)))):
        async with page.expect_download() as download:
            await files.get_by_role("button", name=f"Download {name}").click()
        saved = await download.value
        assert saved.suggested_filename == name
        assert Path(await saved.path()).read_bytes() == content
    await page.get_by_role("button", name="Answer", exact=True).click()
    await expect(page.get_by_text("that answers.")).to_be_visible()


async def test_an_answer_on_the_start_page_has_the_files_of_its_servers(owner: Visitor) -> None:
    owner.expected = REFUSED_BY_THE_CANVAS
    page = await owner.open("/console/ask?src=notes:harbour")
    question = page.get_by_role("textbox", name="Question")
    await question.fill("tides of the year")
    await question.press("Enter")
    # The display of the server opens the report, in a frame without rights.
    report = page.frame_locator("iframe[title='Report tides.html']")
    await expect(report.get_by_role("heading", name="Tides of the year")).to_be_visible()
    await page.get_by_role("button", name="Show chart.png").click()
    await expect(page.get_by_role("img", name="chart.png")).to_be_visible()
    assert await accessibility_faults(page) == []
    # Threads keep the answer, and no files.
    await page.reload()
    await expect(page.get_by_text("Threads do not keep the 4 files of this answer")).to_be_visible()


async def test_marks_that_turn_text_around_are_visible_in_names(owner: Visitor) -> None:
    page = await owner.open("/console/ask")
    await page.get_by_role("button", name="Sources").click()
    await expect(page.get_by_role("menuitemcheckbox").filter(has_text="⟨U+202E⟩")).to_be_visible()
    page = await sources_page(owner)
    await expect(page.get_by_text("⟨U+202E⟩").first).to_be_visible()


async def test_names_of_a_hostile_server_are_text(owner: Visitor) -> None:
    page = await sources_page(owner)
    await expect(page.get_by_role("checkbox", name=EVIL, exact=True)).to_be_visible()
    await expect(page.locator("img")).to_have_count(0)
    await expect(server_item(page, EVIL)).to_contain_text(f"{EVIL} bold")
    assert await page.title() == "Sources · Armarium"


async def test_servers_that_fail_say_why_and_all_is_accessible_in_both_themes(owner: Visitor) -> None:
    page = await sources_page(owner)
    broken = server_item(page, "broken")
    await expect(broken).to_contain_text("unavailable")
    # Why, or that it is not asked now because it failed before.
    await expect(broken).to_contain_text(re.compile(r"status 3|calls are rejected"))
    await expect(broken.get_by_role("button", name="Try again")).to_be_visible()
    tools = page.get_by_role("region", name="Servers with tools for agents")
    await expect(tools).to_contain_text("gadgets")
    await expect(tools).to_contain_text("connected")
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await accessibility_faults(page) == []


async def test_the_page_follows_the_files_of_the_servers(owner: Visitor, servers: Path) -> None:
    page = await sources_page(owner)
    files = {file: file.read_text() for file in (servers / "overrides").iterdir()}
    try:
        for file in files:
            file.write_text("{}")
        await expect(page.get_by_role("heading", name="No sources")).to_be_visible()
        assert await accessibility_faults(page) == []
    finally:
        for file, content in files.items():
            file.write_text(content)
    await expect(asked(page)).to_contain_text("of 7 sources")


async def test_a_server_that_cannot_be_asked_is_a_problem_with_a_way_on(owner: Visitor) -> None:
    owner.expected = r"^503 from GET|status of 503"
    page = await owner.context.new_page()
    failing = json.dumps({"error": {"code": "BUSY", "message": "too much to do", "hint": "wait", "retryable": True}})
    await page.route("**/api/config", lambda route: route.fulfill(status=503, body=failing))
    await page.goto(f"{owner.address}/console/sources")
    await expect(page.get_by_role("alert")).to_contain_text("too much to do")
    assert await accessibility_faults(page) == []
    await page.unroute("**/api/config")
    await page.get_by_role("button", name="Try again").first.click()
    await expect(asked(page)).to_contain_text("of 7 sources")


async def test_a_narrow_screen_has_everything(owner: Visitor) -> None:
    page = await sources_page(owner)
    await page.set_viewport_size({"width": 320, "height": 640})
    await expect(page.get_by_role("button", name="Try the ticked sources")).to_be_visible()
    is_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not await page.evaluate(is_wide)
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Try the ticked sources").click()
    await expect(page.get_by_role("textbox", name="Question")).to_be_visible()
    assert not await page.evaluate(is_wide)
    await page.get_by_role("button", name="Back to RAG providers").click()
    await expect(box(page, "Tides")).to_be_visible()
