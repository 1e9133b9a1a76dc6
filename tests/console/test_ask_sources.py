"""The page Ask over several sources: what is ticked is asked, and a source that failed is tried again alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from playwright.async_api import Locator, Page, Route, expect

from support.browser import Visitor, accessibility_faults, press
from support.console_corpus import until_searchable, write_searchable
from support.gateway_server import ALLOWED, rag_entry
from support.server import ServerProcess

HORN = "How often does the horn sound in fog?"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("work") / "lighthouse"
    write_searchable(root)
    return root


@pytest.fixture(scope="module")
def settings(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    config = tmp_path_factory.mktemp("gateway")
    (config / "overrides").mkdir()
    (config / "overrides/rag-mcp.json").write_text(json.dumps({"wiki": rag_entry("law", "tide")}))
    corpus = {"root": str(directory), "embedding": {"provider": "local"}, "ingest": {"watch": False}}
    return {"corpus": corpus, "gateway": {"config_dir": str(config), "watch": False, **ALLOWED}}


@pytest.fixture
async def reader(server: ServerProcess, state_dir: Path, owner: Visitor) -> Visitor:
    await until_searchable(server.url, state_dir)
    return owner


def answer(page: Page) -> Locator:
    return page.get_by_role("article").last


async def ask(page: Page, question: str) -> None:
    field = page.get_by_role("textbox", name=re.compile("uestion$"))
    await field.fill(question)
    await field.press("Enter")
    await expect(answer(page)).to_have_attribute("aria-busy", "false")


async def test_what_is_ticked_is_asked_and_kept_with_the_thread(reader: Visitor) -> None:
    page = await reader.open("/console/ask")
    await page.get_by_role("button", name=re.compile("^Sources")).focus()
    await press(page, "Enter")
    law = page.get_by_role("menuitemcheckbox", name="Law")
    here = page.get_by_role("menuitemcheckbox", name="Armarium")
    await expect(law).to_be_visible()
    if await law.get_attribute("aria-checked") == "false":
        await law.click()
    tide = page.get_by_role("menuitemcheckbox", name="Tide")
    for other in (here, tide):
        if await other.get_attribute("aria-checked") == "true":
            await other.click()
    await expect(law).to_contain_text("at least one source is asked")
    assert await accessibility_faults(page) == []
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(re.compile(r"src=wiki%3Alaw"))
    await expect(page.get_by_role("textbox", name="Paths")).to_be_disabled()
    await ask(page, HORN)
    await expect(answer(page)).to_contain_text("that answers.")
    thread = re.search(r"t=([0-9a-f]+)", page.url)
    assert thread
    await page.goto(f"{reader.address}/console/ask?t={thread[1]}")
    await expect(answer(page)).to_contain_text("that answers.")
    await expect(page).to_have_url(re.compile(r"src=wiki%3Alaw"))


async def test_an_answer_of_several_sources_cites_their_passages(reader: Visitor) -> None:
    page = await reader.open("/console/ask?src=armarium:corpus&src=wiki:tide")
    await ask(page, HORN)
    await answer(page).get_by_role("button", name=re.compile(r"^Citation \d: handbook\.md")).first.click()
    await expect(page.locator(".cm-cited").first).to_be_visible()
    await answer(page).get_by_role("button", name=re.compile("wiki:tide")).click()
    await expect(page.get_by_role("region", name="Passage")).to_contain_text("of tide")
    assert await accessibility_faults(page) == []
    await page.reload()
    await expect(page.get_by_role("region", name="Passage")).to_contain_text("of tide")


async def test_a_question_waits_until_the_sources_are_known(reader: Visitor) -> None:
    page = await reader.open("/console/status")
    released = anyio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.continue_()

    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    await page.route("**/api/config*", hold)
    await page.goto(f"{reader.address}/console/ask?src=wiki:law")
    field = page.get_by_role("textbox", name="Question")
    await field.fill(HORN)
    await field.press("Enter")
    await expect(field).to_have_value("")
    assert asked == []
    released.set()
    await expect(answer(page)).to_contain_text("that answers.")


async def test_a_source_that_failed_is_tried_again_alone(reader: Visitor) -> None:
    page = await reader.open("/console/status")
    failure = {"source": "wiki:law", "server": "wiki", "code": "token_expired", "message": "it took <b>10</b> s"}

    async def failing(route: Route) -> None:
        response = await route.fetch()
        events = (await response.text()).split("\n\n")
        done = json.loads(events[-2].partition("data: ")[2])
        results, about = done["answer"]["results"], done["answer"]["meta_data"]
        results["hits"] = [hit for hit in results["hits"] if hit["resourceId"] != "wiki:law"]
        about["errors"] = [failure]
        events[-2] = f"event: done\ndata: {json.dumps(done)}"
        events.insert(2, f"event: source_failed\ndata: {json.dumps(failure)}")
        await route.fulfill(response=response, body="\n\n".join(events))

    await page.route("**/messages", failing, times=1)
    await page.goto(f"{reader.address}/console/ask?src=armarium:corpus&src=wiki:tide&src=wiki:law")
    await ask(page, HORN)
    await expect(answer(page)).to_contain_text("it took <b>10</b> s")
    assert await accessibility_faults(page) == []
    await answer(page).get_by_role("button", name="Connect…").click()
    await expect(page.get_by_role("dialog", name="Connect wiki")).to_be_visible()
    await page.keyboard.press("Escape")
    searched: list[Any] = []
    page.on("request", lambda request: searched.append(request.post_data_json) if "rag/search" in request.url else None)
    await answer(page).get_by_role("button", name="Try this source again").click()
    await expect(answer(page)).to_contain_text("The answer above was written without them.")
    await expect(answer(page).get_by_text("it took")).to_have_count(0)
    assert searched == [{"query": HORN, "sources": ["wiki:law"]}]
    await answer(page).get_by_role("button", name="Write it again").click()
    await expect(answer(page)).to_have_attribute("aria-busy", "false")
    await expect(answer(page)).to_contain_text("every two minutes")
    await expect(answer(page).get_by_text("written without them")).to_have_count(0)
