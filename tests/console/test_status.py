"""The Status page: what runs, how indexing goes, which files failed, and metrics over time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from support.browser import Visitor, accessibility_faults


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    served = tmp_path_factory.mktemp("workspace")
    (served / "notes.md").write_text("# Harbour\n\nShips leave at high tide.\n")
    (served / "broken.pdf").write_bytes(b"%PDF-1.4\nthis is not one\n")
    return served


@pytest.fixture(scope="module")
def settings(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    state = tmp_path_factory.mktemp("corpus")
    return {"corpus": {"root": str(directory), "state_dir": str(state)}}


async def test_progress_and_failed_files_are_shown_with_a_way_to_try_again(owner: Visitor) -> None:
    page = await owner.open("/console/status")
    await expect(page.get_by_role("heading", name="Index")).to_contain_text("complete")
    files = page.get_by_role("grid", name="Files that are not in the index")
    await expect(files.get_by_role("row").filter(has_text="broken.pdf")).to_have_count(1)
    await expect(page.get_by_role("progressbar", name="Found by words")).to_be_visible()
    await files.get_by_role("button", name="Try again").click()
    await expect(page.get_by_text("The file is indexed again")).to_be_visible()
    assert await accessibility_faults(page) == []


async def test_plots_say_in_words_what_they_show(owner: Visitor) -> None:
    page = await owner.open("/console/status?window=24h")
    await expect(page.get_by_role("tab", name="24 hours")).to_have_attribute("aria-selected", "true")
    await page.get_by_role("tab", name="1 hour").click()
    memory = page.get_by_role("img", name="Memory: now")
    await expect(memory).to_have_attribute("aria-label", re.compile(r"Memory: now [\d.]+ MB"))
    await expect(memory.locator("canvas")).to_have_count(1)
    await expect(page.get_by_role("img", name=re.compile("^Calls: now"))).to_be_visible()


async def test_the_page_in_the_dark_on_a_small_screen(owner: Visitor) -> None:
    page = await owner.open("/console/status")
    await expect(page.get_by_text("corpus ready")).to_be_visible()
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size({"width": 320, "height": 640})
    assert await accessibility_faults(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth") <= 320
