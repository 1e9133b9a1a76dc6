"""The page Ask over a real directory: questions, citations, passages, threads, and what hostile files can do to it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pypdfium2
import pytest
from playwright.async_api import Locator, Page, Route, expect

from armarium.surfaces.console.links import OwnerLinks
from support.browser import Visit, Visitor, accessibility_faults, press, session_of, tab_to
from support.console_corpus import HOSTILE, HOSTILE_NAME, owners_api, until_searchable, write_searchable
from support.server import ServerProcess

HORN = "How often does the horn sound in fog?"
LENS = "What turns the lens?"
ROTATE = "What does rotate_lens run?"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("work") / "lighthouse"
    write_searchable(root)
    return root


@pytest.fixture(scope="module")
def settings(directory: Path) -> dict[str, Any]:
    return {"corpus": {"root": str(directory), "embedding": {"provider": "local"}}}


@pytest.fixture(scope="module")
async def indexed(server: ServerProcess, state_dir: Path) -> None:
    await until_searchable(server.url, state_dir)


@pytest.fixture
async def reader(indexed: None, owner: Visitor) -> Visitor:
    return owner


def field(page: Page) -> Locator:
    return page.get_by_role("textbox", name=re.compile("uestion$"))


def chip(page: Page, number: int) -> Locator:
    return page.get_by_role("button", name=re.compile(f"^Citation {number}:"))


def passage(page: Page) -> Locator:
    return page.get_by_role("region", name="Passage")


def answers(page: Page) -> Locator:
    return page.get_by_role("article")


async def ask(page: Page, question: str) -> None:
    before = await answers(page).count()
    await field(page).fill(question)
    await field(page).press("Enter")
    await expect(answers(page)).to_have_count(before + 1)
    await expect(answers(page).last).to_have_attribute("aria-busy", "false")


async def test_the_start_page_asks_and_a_citation_opens_its_lines(reader: Visitor) -> None:
    page = await reader.open("/console")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Ask")
    await ask(page, ROTATE)
    await expect(answers(page)).to_contain_text("Made of the best sentences, without a model")
    await expect(answers(page).get_by_role("button", name=re.compile(r"lamp\.py .* words \+ meaning"))).to_be_visible()
    await page.get_by_role("button", name=re.compile("lamp.py, lines 1–")).first.click()
    await expect(passage(page).get_by_role("heading", name="lamp.py")).to_be_focused()
    await expect(page.locator(".cm-cited").first).to_contain_text("class Lamp")
    await expect(page).to_have_url(re.compile(r"t=[0-9a-f]{16}.*p=lamp\.py%3AL1-L"))
    link = passage(page).get_by_role("link", name="Open file")
    await expect(link).to_have_attribute("href", re.compile(r"^/console/file/corpus/lamp\.py\?L=1-\d+$"))
    # The address is all of it: the same again, without asking.
    await page.reload()
    await expect(page.locator(".cm-cited").first).to_contain_text("class Lamp")
    await expect(page.get_by_role("heading", level=2, name=ROTATE)).to_have_count(1)
    await passage(page).get_by_role("button", name="Close").click()
    await expect(passage(page)).to_have_count(0)


async def test_everything_works_by_keys_alone(reader: Visitor) -> None:
    page = await reader.open("/console/ask")
    await tab_to(page, "Question")
    await page.keyboard.type(HORN)
    await press(page, "Enter")
    await expect(page.get_by_role("heading", name=HORN, level=2)).to_be_focused()
    await expect(answers(page)).to_have_attribute("aria-busy", "false")
    await press(page, "1")
    position = passage(page).get_by_text(re.compile(r"1 of \d+"))
    await expect(position).to_be_visible()
    await press(page, "]")
    await expect(passage(page).get_by_text(re.compile(r"2 of \d+"))).to_be_visible()
    await press(page, "[")
    await expect(position).to_be_visible()
    await press(page, "Escape")
    await expect(passage(page)).to_have_count(0)
    await tab_to(page, "Citation 2")
    await press(page, "Enter")
    await expect(passage(page).get_by_text(re.compile(r"2 of \d+"))).to_be_visible()
    await press(page, "Escape")
    await expect(chip(page, 2).first).to_be_focused()
    await press(page, "/")
    await expect(field(page)).to_be_focused()
    await page.keyboard.type("1")
    await expect(passage(page)).to_have_count(0)


async def test_a_page_of_a_pdf_is_an_image_with_rectangles(reader: Visitor) -> None:
    page = await reader.open("/console/ask?type=pdf")
    await ask(page, HORN)
    await chip(page, 1).first.click()
    image = passage(page).get_by_role("img", name="Page 1 of report.pdf")
    await expect(image).to_be_visible()
    assert await image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1200
    boxes = passage(page).locator("rect")
    await expect(boxes).to_have_count(3)
    first, picture = await boxes.first.bounding_box(), await image.bounding_box()
    assert first
    assert picture
    assert picture["y"] < first["y"] < picture["y"] + picture["height"] / 5
    await passage(page).get_by_role("button", name="Page after").click()
    await expect(passage(page).get_by_role("img", name="Page 2 of report.pdf")).to_be_visible()
    await expect(boxes).to_have_count(0)
    assert await accessibility_faults(page) == []


async def test_filters_are_in_the_address_and_kept_with_the_thread(reader: Visitor) -> None:
    page = await reader.open("/console/ask")
    await field(page).fill(LENS)
    await page.get_by_role("textbox", name="Paths").fill("*.py")
    await page.get_by_role("radio", name="Code").check()
    await expect(page).to_have_url(re.compile(r"in=code&path=\*\.py|path=\*\.py&in=code"))
    await field(page).press("Enter")
    await expect(answers(page).get_by_role("listitem").get_by_text("lamp.py").first).to_be_visible()
    await expect(answers(page).get_by_text("handbook.md")).to_have_count(0)
    thread = re.search(r"t=([0-9a-f]+)", page.url)
    assert thread
    await page.goto(f"{reader.address}/console/ask?t={thread[1]}")
    await expect(page.get_by_role("textbox", name="Paths")).to_have_value("*.py")
    await expect(page.get_by_role("radio", name="Code")).to_be_checked()


async def test_a_link_asks_without_keeping_anything(reader: Visitor) -> None:
    page = await reader.open("/console/ask?q=What+turns+the+lens%3F&path=lamp.py&p=lamp.py%3AL2-L3")
    await expect(answers(page)).to_have_attribute("aria-busy", "false")
    await expect(page.locator(".cm-cited").first).to_contain_text("rotate_lens")
    await expect(page.get_by_text("Not kept")).to_be_visible()
    await page.get_by_role("button", name="Ask it in a new thread").click()
    await expect(page).to_have_url(re.compile(r"ask\?.*t=[0-9a-f]{16}"))
    await expect(answers(page)).to_have_count(1)
    await expect(page.get_by_text("Not kept")).to_have_count(0)


async def test_a_follow_up_a_new_name_and_the_end_of_a_thread(reader: Visitor) -> None:
    page = await reader.open("/console/ask")
    await ask(page, HORN)
    await ask(page, "and what does it run on?")
    await expect(answers(page).last).to_contain_text(f"Searched for: {HORN} and what does it run on?")
    await expect(answers(page).last).to_contain_text("compressed air")
    threads = page.get_by_role("list", name="Threads")
    current = threads.locator("[aria-current=true]")
    await expect(current).to_contain_text(HORN)
    await page.reload()
    await expect(answers(page)).to_have_count(2)
    await expect(answers(page).last).to_contain_text("compressed air")
    await page.get_by_role("button", name=f"Actions on {HORN}").first.click()
    await page.get_by_role("menuitem", name="Rename").click()
    await page.get_by_role("textbox", name="Title").fill("Fog </script><b>horn</b>")
    await press(page, "Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Fog </script><b>horn</b>")
    await expect(current).to_contain_text("Fog </script><b>horn</b>")
    await page.get_by_role("button", name="Actions on Fog").click()
    await page.get_by_role("menuitem", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(answers(page)).to_have_count(0)
    await expect(threads.get_by_text("Fog </script>")).to_have_count(0)
    await expect(page).to_have_url(f"{reader.address}/console/ask")


async def test_what_files_contain_is_text_and_never_markup(reader: Visitor) -> None:
    page = await reader.open("/console/ask")
    await ask(page, "What does the hostile smuggler write?")
    await expect(answers(page)).to_contain_text("</script>")
    await expect(answers(page).get_by_text(HOSTILE_NAME).first).to_be_visible()
    await answers(page).get_by_role("button", name=re.compile(re.escape(HOSTILE_NAME))).first.click()
    await expect(passage(page).get_by_role("heading", name=HOSTILE_NAME)).to_be_visible()
    await expect(page.locator(".cm-content")).to_contain_text("alert")
    assert await page.locator("main img, main script, main iframe, a[href^='javascript:']").count() == 0
    assert HOSTILE in "".join(await page.locator(".cm-line").all_inner_texts())
    link = await passage(page).get_by_role("link", name="Open file").get_attribute("href")
    assert link
    assert "<" not in link
    assert await accessibility_faults(page) == []


async def test_a_text_that_moved_is_found_and_one_that_is_gone_is_told(reader: Visitor, directory: Path) -> None:
    file = directory / "tides.md"
    page = await reader.open("/console/ask?path=tides.md")
    await ask(page, "When is the spring tide measured?")
    await chip(page, 1).first.click()
    await expect(page.locator(".cm-cited").last).to_contain_text("new moon")
    before = file.read_text()
    try:
        file.write_text("One more line.\n" * 5 + before)
        await page.reload()
        moved = passage(page).get_by_text("The text moved: it was in lines 1–3, and is in lines 6–8 now.")
        await expect(moved).to_be_visible()
        await expect(page.locator(".cm-cited").last).to_contain_text("new moon")
        await passage(page).get_by_role("button", name="Show lines 1–3").click()
        await expect(page.locator(".cm-cited").first).to_contain_text("One more line.")
        file.write_text("Nothing of it is left.\n")
        await page.reload()
        await expect(passage(page).get_by_text("not near lines 1–3 any more")).to_be_visible()
        await expect(passage(page).locator("blockquote")).to_contain_text("new moon")
        file.unlink()
        await page.reload()
        await expect(passage(page).get_by_role("alert")).to_contain_text("tides.md not found")
    finally:
        file.write_text(before)


async def test_a_recording_is_played_from_the_second_of_the_passage(reader: Visitor) -> None:
    span = {"kind": "time", "start_ms": 65_000, "end_ms": 70_000}
    said = {"chunk_id": 7, "rel_path": "talk.wav", "doc_type": "audio", "snippet": "<i>Silence</i>.", "span": span}
    about = {"question": HORN, "answer": "So [talk.wav@t=01:05-01:10].", "indexing_complete": True}
    whole = about | {"hits": [said | {"score": 0.5}], "citations": [said], "searched_for": HORN}

    async def spoken(route: Route) -> None:
        body = f"event: done\ndata: {json.dumps(whole)}\n\n"
        await route.fulfill(content_type="text/event-stream", body=body)

    page = await reader.open("/console/status")
    await page.route("**/api/corpus/ask", spoken)
    await page.goto(f"{reader.address}/console/ask?q=x")
    await chip(page, 1).click()
    player = page.locator("audio")
    await expect(player).to_have_js_property("currentTime", 65)
    await expect(passage(page).get_by_text("<i>Silence</i>.")).to_be_visible()
    await expect(passage(page).get_by_role("link", name="Open file")).to_have_attribute(
        "href", "/console/file/corpus/talk.wav?t=65-70"
    )
    assert await accessibility_faults(page) == []


async def test_the_findings_of_the_file_are_counted_beside_the_passage(
    reader: Visitor, server: ServerProcess, state_dir: Path
) -> None:
    finding = {"path": "lamp.py", "rule_id": "S1", "severity": "high", "message": "m", "line_start": 2}
    async with owners_api(server.url, state_dir) as http:
        sent = await http.post("/registry/scan-results", json={"scan_source": "t", "findings": [finding]})
        assert sent.is_success, sent.text
    page = await reader.open("/console/ask?path=lamp.py")
    await ask(page, LENS)
    await chip(page, 1).first.click()
    await expect(passage(page).get_by_text("1 high")).to_be_visible()


async def test_many_threads_are_listed_page_by_page(reader: Visitor, server: ServerProcess, state_dir: Path) -> None:
    async with owners_api(server.url, state_dir) as http:
        for number in range(51):
            assert (await http.post("/threads", json={"title": f"thread {number}"})).status_code == 201
    page = await reader.open("/console/ask")
    listed = page.get_by_role("list", name="Threads").get_by_role("listitem")
    await expect(listed).to_have_count(50)
    await page.get_by_role("button", name="Show more").click()
    await expect(listed.get_by_text("thread 0", exact=True)).to_be_visible()
    assert await accessibility_faults(page) == []


async def test_nothing_found_says_the_next_step_and_the_command(reader: Visitor) -> None:
    page = await reader.open("/console/ask?path=no-such-directory/")
    await ask(page, "it's nowhere")
    await expect(page.get_by_role("heading", name="Nothing was found")).to_be_visible()
    await expect(answers(page).locator("code")).to_have_text(
        "dir2mcp ask --path-prefix no-such-directory/ -- 'it'\\''s nowhere'"
    )
    assert await accessibility_faults(page) == []


async def test_while_indexing_is_in_progress_the_page_says_so(reader: Visitor) -> None:
    page = await reader.open("/console/status")
    part = {"done": 63, "total": 100, "per_second": 1.0}
    report = {"job_id": "j", "running": True, "phase": "embed", "lexical": part, "vectors": part | {"done": 6}}
    counts = dict.fromkeys(("scanned", "indexed", "skipped", "deleted", "errors"), 0)

    async def in_progress(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json=await answer.json() | {"indexing": report | counts})

    async def partial(route: Route) -> None:
        answer = await route.fetch()
        text = (await answer.text()).replace('"indexing_complete":true', '"indexing_complete":false')
        await route.fulfill(response=answer, body=text)

    await page.route("**/api/corpus/stats", in_progress)
    await page.route("**/messages", partial)
    await page.goto(f"{reader.address}/console/ask")
    await expect(page.get_by_text("by words 63 %, by meaning 6 %")).to_be_visible()
    await ask(page, HORN)
    await expect(answers(page)).to_contain_text("Indexing is in progress: by words 63 %, by meaning 6 %.")
    await answers(page).get_by_role("button", name="Ask again").first.click()
    await expect(answers(page)).to_have_count(2)
    await expect(answers(page).last).to_have_attribute("aria-busy", "false")
    await expect(answers(page).last).to_contain_text("Indexing is in progress")


async def test_a_thread_that_does_not_exist_and_a_server_that_fails(reader: Visitor) -> None:
    page = await reader.open("/console/ask?t=0123456789abcdef")
    await expect(page.get_by_role("alert")).to_contain_text("THREAD_NOT_FOUND")
    assert await accessibility_faults(page) == []
    reader.expected = r"503 from POST|status of 503"
    failure = {"error": {"code": "INDEX_NOT_READY", "message": "the index is not ready", "retryable": True}}

    async def fail(route: Route) -> None:
        await route.fulfill(status=503, json=failure)

    await page.route("**/messages", fail, times=1)
    await page.goto(f"{reader.address}/console/ask")
    await field(page).fill(HORN)
    await field(page).press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("the index is not ready")
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Try again").click()
    await expect(answers(page).last).to_contain_text("every two minutes")


async def test_an_answer_is_copied_with_its_citations(reader: Visitor) -> None:
    await reader.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await reader.open("/console/ask?path=lamp.py")
    await ask(page, LENS)
    await answers(page).get_by_role("button", name="Copy the answer").click()
    copied: str = await page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith(LENS)
    assert re.search(r"\[1\]\n.*\n\[1\] lamp\.py, lines 1–", copied, re.DOTALL)
    await answers(page).get_by_role("button", name="Copy a link").click()
    await expect(page.get_by_text("Copied").last).to_be_visible()
    link: str = await page.evaluate("navigator.clipboard.readText()")
    assert link == f"{reader.address}/console/ask?q=What+turns+the+lens%3F&path=lamp.py"


async def test_an_answer_is_printed_with_its_citations_and_nothing_else(reader: Visitor) -> None:
    page = await reader.open("/console/ask?path=lamp.py")
    await ask(page, LENS)
    await chip(page, 1).first.click()
    printed = pypdfium2.PdfDocument(await page.pdf())
    words = " ".join(printed[number].get_textpage().get_text_bounded() for number in range(len(printed)))
    printed.close()
    assert LENS in words
    assert re.search(r"1\.\s*lamp\.py, lines 1–\d+\s+class Lamp", words), words
    for hidden in ("Threads", "Follow-up", "Open file", "Passages", "Find", "Types"):
        assert hidden not in words


@pytest.mark.parametrize("width", [320, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_accessible_in_both_themes_on_every_width(
    indexed: None, visit: Visit, server: ServerProcess, state_dir: Path, scheme: Any, width: int
) -> None:
    session = await session_of(server.url, code=OwnerLinks(state_dir).create())
    async with visit(color_scheme=scheme, viewport={"width": width, "height": 700}, storage_state=session) as person:
        page = await person.open("/console/ask")
        await expect(field(page)).to_be_visible()
        assert await accessibility_faults(page) == [], "empty"
        await ask(page, HORN)
        assert await accessibility_faults(page) == [], "answer"
        await chip(page, 2).first.click()
        await expect(page.locator(".cm-cited").first).to_be_visible()
        assert await accessibility_faults(page) == [], "passage"
        wide = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wide, "it must be scrolled sideways"
        if width == 320:
            await page.get_by_role("button", name="Back to Questions").click()
            await expect(answers(page)).to_be_visible()
            await page.get_by_role("button", name="Threads").click()
            await expect(page.get_by_role("list", name="Threads")).to_be_visible()
            assert await accessibility_faults(page) == [], "threads"


async def test_who_may_not_read_the_corpus_does_not_see_the_page(
    indexed: None, server: ServerProcess, reader: Visitor
) -> None:
    page = await reader.open("/console/status")
    async with httpx.AsyncClient(base_url=server.url) as nobody:
        assert (await nobody.post("/api/corpus/ask", json={"question": HORN})).status_code == 401

    async def without_corpus(route: Route) -> None:
        answer = await route.fetch()
        session = await answer.json()
        session["principal"]["capabilities"] = ["registry"]
        await route.fulfill(response=answer, body=json.dumps(session))

    await page.route("**/api/session", without_corpus)
    await page.goto(f"{reader.address}/console/ask")
    await expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    await expect(page.get_by_role("link", name="Ask")).to_have_count(0)
