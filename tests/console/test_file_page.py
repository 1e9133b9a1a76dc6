"""The page of a file: its content, edits and conflicts, findings, history, and files that are no text."""

from __future__ import annotations

import base64
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect

from armarium.surfaces.console.links import OwnerLinks
from support.browser import Visit, Visitor, accessibility_faults, press, session_of
from support.server import ServerProcess

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    served = tmp_path_factory.mktemp("workspace")
    (served / "src").mkdir()
    (served / "src/app.py").write_text("import os\n\n\ndef main() -> None:\n    os.system('ls')\n")
    (served / "picture.png").write_bytes(PNG)
    (served / "drawing.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10"></svg>')
    with wave.open(str(served / "sound.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 8000)
    (served / "data.bin").write_bytes(bytes(range(256)))
    (served / "report.pdf").write_bytes(b"%PDF-1.4\n")
    (served / ".env").write_text("TOKEN=secret\n")
    (served / "windows.txt").write_bytes(b"one\r\ntwo\r\n")
    (served / "big.log").write_text("".join(f"line {number} {'x' * 40}\n" for number in range(1, 30_001)))
    return served


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = tmp_path_factory.mktemp("archive")
    (kept / "old.txt").write_text("old\n")
    return kept


@pytest.fixture(scope="module")
def settings(directory: Path, archive: Path) -> dict[str, Any]:
    roots: list[dict[str, Any]] = [
        {"name": "workspace", "path": str(directory), "allowed_tools": ["*"]},
        {"name": "archive", "path": str(archive), "allowed_tools": ["*"], "read_only": True},
    ]
    return {"sandbox": {"roots": roots}, "store": {}}


@pytest.fixture(scope="module")
def api(server: ServerProcess, state_dir: Path) -> Iterator[httpx.Client]:
    """Another client of the same server."""
    token = (state_dir / "secret.token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


def editor(page: Page) -> Locator:
    return page.locator(".cm-content").first


async def open_file(person: Visitor, path: str) -> Page:
    page = await person.open(f"/console/file/{path}")
    await expect(page.get_by_role("tab", name="Content")).to_be_visible()
    return page


async def begin_to_edit(person: Visitor, path: str, *, typed: str) -> Page:
    """Open a file and write something at its start, by keys alone."""
    page = await open_file(person, path)
    await expect(page.get_by_role("button", name="Edit")).not_to_have_attribute("aria-disabled", "true")
    await press(page, "e")
    await expect(editor(page)).to_be_focused()
    await press(page, "Control+Home")
    await page.keyboard.type(typed)
    await expect(page.get_by_text("not saved")).to_be_visible()
    return page


def stored(api: httpx.Client, path: str) -> str:
    return api.get("/api/store/notes/file", params={"path": path}).json()["content"]


def store(api: httpx.Client, path: str, text: str) -> int:
    """The version of the file that the project has now. All files of a project share the numbers."""
    answer = api.put("/api/store/notes/file", params={"path": path}, json={"content": text})
    assert answer.status_code == 200, answer.text
    return answer.json()["version"]


async def test_a_passage_is_marked_and_chosen_by_its_line_numbers(owner: Visitor) -> None:
    asked: list[str] = []
    owner.context.on("request", lambda request: asked.append(request.url) if "app.py" in request.url else None)
    page = await open_file(owner, "root/workspace/src/app.py?L=4-5")
    await expect(page.locator(".cm-cited")).to_have_count(2)
    await expect(page.locator(".cm-cited").first).to_contain_text("def main")
    numbers = page.locator(".cm-lineNumbers .cm-gutterElement")
    await numbers.filter(has_text="1").last.click()
    await expect(page).to_have_url(f"{owner.address}/console/file/root/workspace/src/app.py?L=1")
    await numbers.filter(has_text="4").last.click(modifiers=["Shift"])
    await expect(page).to_have_url(f"{owner.address}/console/file/root/workspace/src/app.py?L=1-4")
    await expect(page.locator(".cm-cited")).to_have_count(4)
    # The page itself, its metadata, what is known of it, and its text.
    assert len(asked) == 4


async def test_a_passage_is_marked_also_where_the_colours_are_those_of_the_system(owner: Visitor) -> None:
    page = await open_file(owner, "root/workspace/src/app.py?L=4-5")
    await page.emulate_media(forced_colors="active")
    await expect(page.locator(".cm-cited").first).to_have_css("border-left-width", "3px")
    await expect(page.locator(".cm-cited").first).to_have_css("border-left-style", "solid")


async def test_a_file_is_edited_and_saved_by_keys(owner: Visitor, directory: Path) -> None:
    (directory / "note.md").write_text("tide\n")
    page = await begin_to_edit(owner, "root/workspace/note.md", typed="High ")
    await press(page, "Control+s")
    await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert (directory / "note.md").read_text() == "High tide\n"
    await page.keyboard.type("and low ")
    await press(page, "Control+s")
    await expect(page.get_by_text("not saved")).to_have_count(0)
    assert (directory / "note.md").read_text() == "High and low tide\n"
    await press(page, "Escape", "Tab")
    await page.get_by_role("button", name="Stop editing").press("Enter")
    await expect(page.get_by_role("button", name="Edit")).to_be_visible()


async def test_every_save_names_the_state_that_it_replaces(owner: Visitor, api: httpx.Client, directory: Path) -> None:
    (directory / "state.md").write_text("a\n")
    store(api, "/state.md", "a\n")
    for path, name in [("root/workspace/state.md", "if_match"), ("store/notes/state.md", "if_version")]:
        page = await begin_to_edit(owner, path, typed="b")
        async with page.expect_request(lambda request: request.method == "PUT") as waiting:
            await press(page, "Control+s")
        assert name in (await waiting.value).post_data_json
        await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert stored(api, "/state.md") == "ba\n"


async def test_the_ends_of_lines_are_kept(owner: Visitor, directory: Path) -> None:
    page = await begin_to_edit(owner, "root/workspace/windows.txt", typed="zero\n")
    await press(page, "Control+s")
    await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert (directory / "windows.txt").read_bytes() == b"zero\r\none\r\ntwo\r\n"


async def test_a_second_writer_is_compared_and_overwritten_only_on_purpose(owner: Visitor, directory: Path) -> None:
    (directory / "both.md").write_text("start\n")
    page = await begin_to_edit(owner, "root/workspace/both.md", typed="mine ")
    (directory / "both.md").write_text("theirs\n")
    await press(page, "Control+s")
    conflict = page.get_by_role("alert")
    await expect(conflict).to_contain_text("Changed meanwhile")
    assert (directory / "both.md").read_text() == "theirs\n"
    assert await accessibility_faults(page) == []
    await conflict.get_by_role("button", name="Compare").press("Enter")
    difference = page.get_by_role("group", name="what is there now and your text")
    await expect(difference).to_contain_text("theirs")
    await expect(difference).to_contain_text("mine start")
    await conflict.get_by_role("button", name="Back to my text").press("Enter")
    await expect(editor(page)).to_contain_text("mine start")
    # Somebody is faster once more.
    (directory / "both.md").write_text("theirs again\n")
    await conflict.get_by_role("button", name="Overwrite").press("Enter")
    await expect(conflict).to_contain_text("Changed meanwhile")
    assert (directory / "both.md").read_text() == "theirs again\n"
    await expect(conflict.get_by_role("button", name="Overwrite")).to_be_enabled()
    await conflict.get_by_role("button", name="Overwrite").press("Enter")
    await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert (directory / "both.md").read_text() == "mine start\n"


async def test_a_conflict_in_a_project_is_noticed_before_the_save_and_can_be_reloaded(
    owner: Visitor, api: httpx.Client
) -> None:
    store(api, "/both.md", "start\n")
    page = await begin_to_edit(owner, "store/notes/both.md", typed="mine ")
    store(api, "/both.md", "theirs\n")
    await press(page, "Control+s")
    conflict = page.get_by_role("alert")
    await expect(conflict).to_contain_text("Changed meanwhile by token")
    assert stored(api, "/both.md") == "theirs\n"
    await conflict.get_by_role("button", name="Reload").click()
    await expect(editor(page)).to_contain_text("theirs")
    await page.get_by_role("button", name="Bring it back").click()
    await expect(editor(page)).to_contain_text("mine start")
    await press(page, "Control+s")
    await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert stored(api, "/both.md") == "mine start\n"


async def test_a_file_that_is_removed_meanwhile_can_be_created_again(owner: Visitor, directory: Path) -> None:
    (directory / "gone.md").write_text("start\n")
    page = await begin_to_edit(owner, "root/workspace/gone.md", typed="mine ")
    (directory / "gone.md").unlink()
    await press(page, "Control+s")
    conflict = page.get_by_role("alert")
    await expect(conflict).to_contain_text("Removed meanwhile")
    await conflict.get_by_role("button", name="Create it again").click()
    await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert (directory / "gone.md").read_text() == "mine start\n"


async def test_leaving_with_unsaved_text_asks(owner: Visitor, directory: Path) -> None:
    (directory / "leave.md").write_text("start\n")
    page = await begin_to_edit(owner, "root/workspace/leave.md", typed="mine ")
    await page.get_by_role("tree").get_by_role("treeitem", name="picture.png").click()
    dialog = page.get_by_role("dialog", name="Leave without saving?")
    await dialog.get_by_role("button", name="Stay").click()
    await page.get_by_role("tab", name="About").click()
    await page.get_by_role("tab", name="Content").click()
    await expect(editor(page)).to_contain_text("mine start")
    await page.get_by_role("button", name="Discard").click()
    await page.get_by_role("button", name="Throw away").click()
    await expect(editor(page)).not_to_contain_text("mine")
    await page.get_by_role("tree").get_by_role("treeitem", name="picture.png").click()
    await expect(page).to_have_url(f"{owner.address}/console/file/root/workspace/picture.png")


async def test_text_whose_saving_failed_survives_and_is_offered_again(owner: Visitor, directory: Path) -> None:
    (directory / "keep.md").write_text("start\n")
    page = await begin_to_edit(owner, "root/workspace/keep.md", typed="mine ")

    async def fail(route: Route) -> None:
        await (route.abort() if route.request.method == "PUT" else route.continue_())

    owner.expected = r"net::ERR_FAILED"
    await page.route("**/api/sandbox/workspace/file?**", fail)
    await press(page, "Control+s")
    await expect(page.get_by_role("alert")).to_contain_text("the server cannot be reached")
    await page.close(run_before_unload=False)

    page = await open_file(owner, "root/workspace/keep.md")
    await expect(page.get_by_text("could not be saved")).to_be_visible()
    assert await page.evaluate("Object.keys(localStorage).filter((key) => !key.startsWith('armarium.')).length") == 0
    assert "mine" not in await page.evaluate("JSON.stringify(localStorage)")
    assert await accessibility_faults(page) == []
    await page.get_by_role("button", name="Open it").click()
    await expect(editor(page)).to_contain_text("mine start")
    await press(page, "Control+s")
    await expect(page.get_by_text("Saved", exact=True).last).to_be_visible()
    assert (directory / "keep.md").read_text() == "mine start\n"
    await page.reload()
    await expect(editor(page)).to_contain_text("mine start")
    await expect(page.get_by_text("could not be saved")).to_have_count(0)


async def test_findings_stand_in_the_gutter_and_in_their_tab(owner: Visitor, api: httpx.Client) -> None:
    found = {
        "path": "src/app.py",
        "rule_id": "S605",
        "severity": "high",
        "message": "<b>shell</b>",
        "line_start": 5,
        "line_end": 5,
    }
    report = {"scan_source": "ruff", "findings": [found]}
    assert api.post("/api/registry/scan-results", json=report).status_code == 200
    page = await open_file(owner, "root/workspace/src/app.py")
    await expect(page.locator(".cm-mark-high")).to_have_attribute("title", "high: S605: <b>shell</b>")
    await page.get_by_role("tab", name="Findings").click()
    await expect(page.get_by_text("<b>shell</b>")).to_be_visible()
    assert await accessibility_faults(page) == []
    await page.get_by_role("link", name="line 5").click()
    await expect(page.locator(".cm-cited")).to_contain_text("os.system")


async def test_the_history_of_a_project_file_is_compared_and_restored(owner: Visitor, api: httpx.Client) -> None:
    one, two, _ = (store(api, "/history.md", text) for text in ("dawn\n", "noon\n", "night\n"))
    page = await open_file(owner, "store/notes/history.md")
    await press(page, "3")
    events = page.get_by_role("list", name="What happened")
    await expect(events).to_contain_text("token · file_write")
    await page.get_by_role("checkbox", name=f"Compare version {one}", exact=True).check()
    await page.get_by_role("checkbox", name=f"Compare version {two}", exact=True).check()
    await expect(page).to_have_url(f"{owner.address}/console/file/store/notes/history.md?tab=history&v={one}..{two}")
    difference = page.get_by_role("group", name=f"version {one} and version {two}")
    await expect(difference).to_contain_text("dawn")
    await expect(difference).to_contain_text("noon")
    assert await accessibility_faults(page) == []
    await events.get_by_role("button", name="Restore").last.click()
    dialog = page.get_by_role("dialog", name=f"Restore version {one}?")
    await expect(dialog).to_contain_text("stays in the history")
    await dialog.get_by_role("button", name="Restore").click()
    await expect(page.get_by_text(f"Version {one} is back, as version")).to_be_visible()
    await expect(page.get_by_role("checkbox", name="Compare version")).to_have_count(4)
    assert stored(api, "/history.md") == "dawn\n"


async def test_the_history_of_a_file_in_a_root_has_its_calls(owner: Visitor, api: httpx.Client) -> None:
    parameters = {"path": "called.md"}
    assert api.put("/api/sandbox/workspace/file", params=parameters, json={"content": "a"}).status_code == 200
    refused = api.put("/api/sandbox/workspace/file", params=parameters, json={"content": "b", "if_match": "0" * 64})
    assert refused.status_code == 409
    assert api.get("/api/sandbox/workspace/file", params=parameters).json()["content"] == "a"
    page = await open_file(owner, "root/workspace/called.md?tab=history")
    events = page.get_by_role("list", name="What happened")
    await expect(events).to_contain_text("token wrote it")
    await expect(events).to_contain_text("refused with CONFLICT")
    await expect(events).not_to_contain_text("token read it")
    await page.get_by_role("checkbox", name="reading calls, too").check()
    await expect(events).to_contain_text("token read it")


async def test_a_removed_file_says_so_and_a_deleted_one_is_restored(owner: Visitor, api: httpx.Client) -> None:
    api.put("/api/sandbox/workspace/file", params={"path": "away.md"}, json={"content": "a"})
    api.delete("/api/sandbox/workspace/file", params={"path": "away.md"})
    page = await open_file(owner, "root/workspace/away.md")
    await expect(page.get_by_role("heading", name="Nothing is at this path")).to_be_visible()
    await expect(page.get_by_text("token deleted it on")).to_be_visible()
    assert await accessibility_faults(page) == []

    store(api, "/lost.md", "found again\n")
    api.delete("/api/store/notes/file", params={"path": "/lost.md"})
    await page.goto(f"{owner.address}/console/file/store/notes/lost.md")
    await page.get_by_role("link", name="Its history").click()
    await page.get_by_role("button", name="Restore").click()
    await page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    await expect(page.get_by_text("is back, as version")).to_be_visible()
    assert stored(api, "/lost.md") == "found again\n"


async def test_pictures_and_sound_are_shown_and_other_bytes_are_downloaded(owner: Visitor) -> None:
    page = await open_file(owner, "root/workspace/picture.png")
    picture = page.get_by_role("img", name="Content of picture.png")
    await expect(picture).to_be_visible()
    await page.wait_for_function("() => document.querySelector('main img')?.naturalWidth === 1")
    await expect(page.get_by_role("button", name="Edit")).to_have_attribute("aria-disabled", "true")
    assert await accessibility_faults(page) == []
    await page.goto(f"{owner.address}/console/file/root/workspace/sound.wav")
    await page.wait_for_function("() => document.querySelector('audio')?.duration === 1")
    await page.goto(f"{owner.address}/console/file/root/workspace/drawing.svg")
    await page.wait_for_function("() => document.querySelector('main img')?.naturalWidth === 20")
    await page.goto(f"{owner.address}/console/file/root/workspace/drawing.svg?as=text")
    await expect(editor(page)).to_contain_text("<svg")
    await page.goto(f"{owner.address}/console/file/root/workspace/report.pdf")
    await expect(page.get_by_role("heading", name="Pages of a PDF are shown")).to_be_visible()
    await page.goto(f"{owner.address}/console/file/root/workspace/data.bin")
    await expect(page.get_by_role("heading", name="This file is no text")).to_be_visible()
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Download").click()
    assert Path(await (await waiting.value).path()).read_bytes() == bytes(range(256))


async def test_a_large_file_is_shown_in_parts(owner: Visitor) -> None:
    page = await open_file(owner, "root/workspace/big.log?L=12345-12346")
    await expect(page.get_by_text("Lines 10,001–15,000 of 30,000")).to_be_visible()
    await expect(page.locator("main mark")).to_contain_text("line 12345 ")
    await expect(page.get_by_role("button", name="Edit")).to_have_attribute("aria-disabled", "true")
    await page.get_by_role("button", name="Later").click()
    await expect(page.get_by_text("Lines 15,001–20,000 of 30,000")).to_be_visible()
    await page.get_by_label("Line", exact=True).fill("30000")
    await press(page, "Enter")
    await expect(page.locator("main mark")).to_contain_text("line 30000 ")
    await expect(page.get_by_role("button", name="Later")).to_be_disabled()
    assert await accessibility_faults(page) == []


async def test_credentials_stay_hidden_and_read_only_files_are_not_edited(owner: Visitor) -> None:
    page = await open_file(owner, "root/workspace/.env")
    await expect(page.get_by_role("heading", name="The content is hidden")).to_be_visible()
    await expect(page.get_by_text("TOKEN=secret")).to_have_count(0)
    await page.get_by_role("tab", name="About").click()
    await expect(page.get_by_text("13 B")).to_have_count(2)
    await page.goto(f"{owner.address}/console/file/root/archive/old.txt")
    await expect(editor(page)).to_contain_text("old")
    await press(page, "e")
    await expect(page.get_by_text("Edit: the root archive is read-only")).to_be_visible()
    await expect(page.get_by_role("button", name="Stop editing")).to_have_count(0)


async def test_about_has_the_hash_and_the_owner(owner: Visitor) -> None:
    page = await open_file(owner, "root/workspace/data.bin?tab=about")
    await expect(page.get_by_text("-rw-")).to_be_visible()
    await page.get_by_role("button", name="Compute").click()
    expected = "40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880"
    await expect(page.get_by_text(expected)).to_be_visible()
    assert await accessibility_faults(page) == []


async def test_a_file_is_renamed_and_deleted_from_its_page(owner: Visitor, directory: Path) -> None:
    (directory / "here.md").write_text("a\n")
    page = await open_file(owner, "root/workspace/here.md")
    await expect(editor(page)).to_contain_text("a")
    await press(page, "F2")
    await page.get_by_label("New name").fill("there.md")
    await press(page, "Enter")
    await expect(page).to_have_url(f"{owner.address}/console/file/root/workspace/there.md")
    await expect(editor(page)).to_contain_text("a")
    await expect(page.get_by_role("treeitem", name="there.md")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await press(page, "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page).to_have_url(f"{owner.address}/console/files/root/workspace")
    assert not (directory / "there.md").exists()


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_files_are_accessible_in_both_themes_on_every_width(
    visit: Visit, server: ServerProcess, state_dir: Path, api: httpx.Client, scheme: Any, width: int
) -> None:
    one, two = store(api, "/wide.md", "one\n"), store(api, "/wide.md", "two\n")
    session = await session_of(server.url, code=OwnerLinks(state_dir).create())
    async with visit(color_scheme=scheme, viewport={"width": width, "height": 640}, storage_state=session) as person:
        page = await person.open("/console/file")
        for path, ready in [
            ("root/workspace/src/app.py?L=4-5", page.locator(".cm-cited").first),
            ("root/workspace/src/app.py?tab=findings", page.get_by_role("tabpanel")),
            (f"store/notes/wide.md?tab=history&v={one}..{two}", page.get_by_role("group", name=f"version {one} and")),
            ("root/workspace/src/app.py?tab=about", page.get_by_text("root://workspace/src/app.py")),
            ("root/workspace/nothing.md", page.get_by_role("heading", name="Nothing is at this path")),
            ("root/unknown/a.md", page.get_by_role("alert").first),
        ]:
            await page.goto(f"{person.address}/console/file/{path}")
            await expect(ready).to_be_visible()
            assert await accessibility_faults(page) == [], path
            wide = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not wide, f"{path} must be scrolled sideways"
