"""The page Ask with a chat model that streams: answers as they are written, stopped, failing, and after a log-out."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from emulators import OpenAIEmulator, Refused, Stalled
from support.browser import Visit, Visitor, accessibility_faults, press, session_of
from support.console_corpus import until_searchable, write_searchable
from support.server import ServerProcess
from support.waiting import eventually

HORN = "How often does the horn sound in fog?"


@pytest.fixture(scope="module")
def model() -> Iterator[OpenAIEmulator]:
    with OpenAIEmulator("a-key") as emulator:
        yield emulator


@pytest.fixture(autouse=True)
def well(model: OpenAIEmulator) -> Iterator[None]:
    """Each test leaves the model as it was."""
    yield
    model.faults.clear()
    model.left.clear()
    model.invents_citations = False


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("work") / "lighthouse"
    write_searchable(root)
    return root


@pytest.fixture(scope="module")
def settings(directory: Path, model: OpenAIEmulator) -> dict[str, Any]:
    chat = {"base_url": model.url, "api_key": "a-key", "chat_model": "llama3.2"}
    local = {"embedding": {"provider": "local"}, "ingest": {"watch": False}}
    return {"corpus": {"root": str(directory), "chat": {"provider": "openai"}, "openai": chat, **local}}


@pytest.fixture
async def reader(server: ServerProcess, state_dir: Path, owner: Visitor) -> Visitor:
    await until_searchable(server.url, state_dir)
    return owner


@pytest.fixture
def key(server: ServerProcess, state_dir: Path) -> str:
    return (state_dir / "secret.token").read_text().strip()


@pytest.fixture
async def holder(server: ServerProcess, state_dir: Path, visit: Visit, key: str) -> AsyncGenerator[Visitor]:
    """A person who logged in with the key."""
    await until_searchable(server.url, state_dir)
    async with visit(storage_state=await session_of(server.url, key=key)) as person:
        yield person


def answer(page: Page) -> Locator:
    return page.get_by_role("article").last


async def begin(page: Page, question: str) -> None:
    field = page.get_by_role("textbox", name=re.compile("uestion$"))
    await field.fill(question)
    await field.press("Enter")


async def test_a_streamed_answer_has_chips_and_no_invented_citations(reader: Visitor, model: OpenAIEmulator) -> None:
    model.invents_citations = True
    page = await reader.open("/console/ask")
    await begin(page, HORN)
    await expect(answer(page)).to_contain_text("Written by llama3.2")
    await expect(answer(page)).to_contain_text("(1 citation without a matching excerpt removed.)")
    await expect(answer(page)).not_to_contain_text("invented.md")
    chips = answer(page).get_by_role("button", name=re.compile("^Citation"))
    await expect(chips).to_have_text(["1", "2", "3"])
    await press(page, "2")
    await expect(page.get_by_role("region", name="Passage").get_by_text(re.compile(r"2 of \d+"))).to_be_visible()
    assert await accessibility_faults(page) == []


async def test_a_stopped_answer_keeps_what_was_written_and_ends_the_request(
    reader: Visitor, model: OpenAIEmulator
) -> None:
    model.faults.append(Stalled(on="/chat/completions", after_events=12))
    page = await reader.open("/console/ask")
    await begin(page, HORN)
    await expect(answer(page)).to_contain_text("It says")
    assert await accessibility_faults(page) == []
    await press(page, "Escape")
    await expect(answer(page)).to_contain_text("The answer is not complete.")
    await expect(answer(page)).to_contain_text("It says")
    await eventually(model.left.is_set, what="the server hangs up on the model")
    # The question stays in the thread without an answer.
    await page.reload()
    await expect(page.get_by_role("heading", name=HORN, level=2)).to_be_visible()
    await answer(page).get_by_role("button", name="Ask again").click()
    await expect(answer(page)).to_contain_text("Written by llama3.2")


async def test_while_the_answer_is_written_its_passages_open(reader: Visitor, model: OpenAIEmulator) -> None:
    model.faults.append(Stalled(on="/chat/completions", after_events=18))
    page = await reader.open("/console/ask")
    await begin(page, HORN)
    await answer(page).get_by_role("button", name=re.compile("^Citation 1:")).click()
    await expect(page.get_by_role("region", name="Passage").get_by_text(re.compile(r"1 of \d+"))).to_be_visible()
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await page.get_by_role("button", name="Stop").click()
    await expect(answer(page)).to_contain_text("The answer is not complete.")


async def test_when_the_model_fails_the_best_sentences_are_shown(reader: Visitor, model: OpenAIEmulator) -> None:
    model.faults += [Refused(status=401, on="/chat/completions")] * 6
    page = await reader.open("/console/ask")
    await begin(page, HORN)
    await expect(answer(page)).to_contain_text("The chat model failed")
    await expect(answer(page)).to_contain_text("every two minutes")
    await expect(answer(page)).to_contain_text("Made of the best sentences")
    await expect(page.get_by_text("a-key")).to_have_count(0)


async def test_a_session_that_ends_during_an_answer_loses_nothing(
    holder: Visitor, model: OpenAIEmulator, server: ServerProcess, key: str
) -> None:
    model.faults.append(Stalled(on="/chat/completions", after_events=12))
    page = await holder.open("/console/ask")
    await begin(page, HORN)
    await expect(answer(page)).to_contain_text("It says")
    stored = await holder.context.storage_state()
    (cookie,) = stored.get("cookies", [])
    proof = await page.evaluate("localStorage.getItem('armarium.proof')")
    headers = {"cookie": f"{cookie.get('name')}={cookie.get('value')}", "x-armarium-proof": proof}
    async with httpx.AsyncClient(base_url=server.url, headers=headers) as elsewhere:
        assert (await elsewhere.delete("/api/sessions")).is_success
    # The answer ends with the session. What has arrived stays.
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(answer(page)).to_contain_text("It says")
    await begin(page, "and what does it run on?")
    dialog = page.get_by_role("dialog", name="Log in again")
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Key").fill(key)
    await dialog.get_by_role("button", name="Log in").click()
    await expect(dialog).to_be_hidden()
    # The question was neither lost nor has it to be written again.
    await expect(answer(page)).to_contain_text("Written by llama3.2")
    await expect(page.get_by_role("heading", name="and what does it run on?")).to_be_visible()
