"""FileIO: the tree over roots and projects, folders, and everything that is done with files there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect

from armarium.surfaces.console.links import OwnerLinks
from support.browser import Visit, Visitor, accessibility_faults, press, session_of, tab_to
from support.server import ServerProcess

HOSTILE = [
    b"<img src=x onerror=document.title=1>.txt",
    b"tab\there\nline.txt",
    b"caf\xe9.txt",
    "\u202egpj.exe".encode(),
    "\u05e9\u05dc\u05d5\u05dd.md".encode(),
    b"a" * 251 + b".txt",
    b"caf\\xe9.txt",
    b"100% #1?&b=2.txt",
]
SHOWN = [
    "<img src=x onerror=document.title=1>.txt",
    "tab⟨U+0009⟩here⟨U+000A⟩line.txt",
    "caf\\xe9.txt",
    "⟨U+202E⟩gpj.exe",
    "\u05e9\u05dc\u05d5\u05dd.md",
    "a" * 251 + ".txt",
    "caf\\x5cxe9.txt",
    "100% #1?&b=2.txt",
]
MANY = 10_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    served = tmp_path_factory.mktemp("workspace")
    for folder in ("docs", "src", "hostile", "many", "work", "empty"):
        (served / folder).mkdir()
    (served / "docs/harbour.md").write_text("# Harbour\n\nShips leave at high tide.\n")
    (served / "docs/rope.md").write_text("Bring a rope.\n")
    (served / "src/app.py").write_text("def main() -> None:\n    print('ships')\n")
    for name in HOSTILE:
        Path(os.fsdecode(os.fsencode(served / "hostile") + b"/" + name)).write_bytes(b"content of " + name)
    for number in range(MANY):
        (served / f"many/file {number:05}.txt").touch()
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
        {"name": "listed", "path": str(archive), "allowed_tools": ["list_folder", "stat_file"]},
    ]
    return {"sandbox": {"roots": roots}, "store": {}}


@pytest.fixture(scope="module")
def api(server: ServerProcess, state_dir: Path) -> Iterator[httpx.Client]:
    """Another client of the same server."""
    token = (state_dir / "secret.token").read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


def store(api: httpx.Client, project: str, path: str, text: str) -> None:
    answer = api.put(f"/api/store/{project}/file", params={"path": path}, json={"content": text})
    assert answer.status_code == 200, answer.text


def entries(page: Page) -> Locator:
    return page.get_by_role("grid", name="Entries of")


def row(page: Page, name: str) -> Locator:
    return entries(page).get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def count_of_entries(page: Page) -> Locator:
    return page.locator("footer").get_by_role("status")


async def open_folder(person: Visitor, path: str) -> Page:
    page = await person.open(f"/console/files/{path}")
    await expect(count_of_entries(page)).to_contain_text("entr")
    return page


async def action(page: Page, name: str) -> Locator:
    """An item of the menu of actions, which is open then."""
    await page.get_by_role("button", name="Actions").click()
    return page.get_by_role("menuitem", name=name)


async def test_one_tree_leads_to_all_roots_and_projects(owner: Visitor, api: httpx.Client) -> None:
    store(api, "notes", "/plans/may.md", "Sail in May.\n")
    page = await owner.open("/console/files")
    await expect(page.get_by_role("heading", level=1)).to_have_text("FileIO")
    tree = page.get_by_role("tree", name="Roots and projects")
    await expect(tree.get_by_role("treeitem", name="archive read-only")).to_be_visible()
    await tree.get_by_role("treeitem", name="workspace").click()
    await tree.get_by_role("treeitem", name="docs").click()
    await expect(row(page, "harbour.md")).to_be_visible()
    await tree.get_by_role("treeitem", name="notes").click()
    await tree.get_by_role("treeitem", name="plans").click()
    await tree.get_by_role("treeitem", name="may.md").click()
    await expect(page).to_have_url(f"{owner.address}/console/file/store/notes/plans/may.md")
    await expect(page.get_by_text("Sail in May.")).to_be_visible()
    await expect(tree.get_by_role("treeitem", name="may.md")).to_have_attribute("aria-selected", "true")


async def test_a_folder_of_ten_thousand_files_has_few_rows_and_is_filtered(owner: Visitor) -> None:
    listed: list[str] = []
    owner.context.on("request", lambda request: listed.append(request.url) if "path=many" in request.url else None)
    page = await open_folder(owner, "root/workspace/many")
    await expect(count_of_entries(page)).to_have_text("10,000 entries")
    rows = entries(page).get_by_role("row")
    assert await rows.count() < 200
    await tab_to(page, "Entries of many")
    await press(page, "End")
    await expect(entries(page).locator("[aria-rowindex='10001']")).to_contain_text("file 09999.txt")
    assert await rows.count() < 200
    await press(page, "/")
    await page.keyboard.type("0420*.txt")
    await expect(count_of_entries(page)).to_have_text("0 of 10,000 entries")
    await expect(page.get_by_role("heading", name="No name matches")).to_be_visible()
    await page.get_by_role("textbox", name="Filter the entries").fill("*0420?.txt")
    await expect(count_of_entries(page)).to_have_text("10 of 10,000 entries")
    await page.get_by_role("button", name="Sort: Name").click()
    await page.get_by_role("menuitemcheckbox", name="Descending").click()
    await expect(entries(page).locator("[aria-rowindex='2']")).to_contain_text("file 04209.txt")
    assert len(listed) == 1
    await page.reload()
    await expect(entries(page).locator("[aria-rowindex='2']")).to_contain_text("file 04209.txt")


async def test_the_tree_shows_ten_thousand_files_in_few_rows(owner: Visitor) -> None:
    page = await open_folder(owner, "root/workspace/many")
    tree = page.get_by_role("tree")
    await tree.get_by_role("treeitem", name="many").click()
    await expect(tree.get_by_role("treeitem", name="file 00000.txt")).to_be_attached()
    assert await tree.get_by_role("treeitem").count() < 200
    assert await accessibility_faults(page) == []


@pytest.mark.soak
async def test_hostile_names_are_shown_as_text_and_can_be_used(owner: Visitor, directory: Path) -> None:
    page = await open_folder(owner, "root/workspace/hostile")
    title = await page.title()
    for name in SHOWN:
        await expect(row(page, name)).to_be_visible()
    for name, raw in zip(SHOWN, HOSTILE, strict=True):
        await row(page, name).get_by_role("link").click()
        start = "content of " + raw.decode("utf-8", "replace")[:3]
        await expect(page.get_by_role("textbox", name=name)).to_contain_text(start)
        if raw == b"caf\xe9.txt":
            # Its content is no UTF-8 either: a save would destroy it.
            await expect(page.get_by_text("Not all of this file is UTF-8")).to_be_visible()
            await expect(page.get_by_role("button", name="Edit")).to_have_attribute("aria-disabled", "true")
        await page.get_by_role("tab", name="About").click()
        await expect(page.get_by_text("root://workspace/hostile/")).to_be_visible()
        await page.go_back()
        await expect(row(page, name)).to_be_visible()
    assert await page.title() == title
    assert await accessibility_faults(page) == []
    await row(page, "caf\\xe9.txt").get_by_role("gridcell").last.click()
    await press(page, "F2")
    await page.get_by_label("New name").fill("<b>tea.txt")
    await press(page, "Enter")
    await expect(row(page, "<b>tea.txt")).to_be_visible()
    names = os.listdir(os.fsencode(directory / "hostile"))
    assert b"<b>tea.txt" in names
    assert b"caf\xe9.txt" not in names


async def test_files_are_made_renamed_copied_moved_and_deleted_by_keys(owner: Visitor, directory: Path) -> None:
    work = directory / "work"
    page = await open_folder(owner, "root/workspace/work")
    await press(page, "N")
    await page.keyboard.type("drafts")
    await press(page, "Enter")
    await expect(row(page, "drafts")).to_be_visible()
    assert (work / "drafts").is_dir()

    await press(page, "n")
    await page.keyboard.type("a.md")
    await press(page, "Enter")
    await expect(page.get_by_role("button", name="Stop editing")).to_be_visible()
    await expect(page).to_have_url(f"{owner.address}/console/file/root/workspace/work/a.md")
    await page.get_by_role("tablist").focus()
    await press(page, "Backspace")
    await expect(row(page, "a.md")).to_be_visible()

    await tab_to(page, "Entries of work")
    await press(page, "End", "F2")
    await page.keyboard.type("b")
    await press(page, "Enter")
    await expect(row(page, "b.md")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert (work / "b.md").exists()
    assert not (work / "a.md").exists()

    await press(page, "c")
    await page.get_by_label("Folder", exact=True).fill("work/drafts/deep")
    await press(page, "Enter")
    await expect(page.get_by_text("Copied “b.md”")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    assert (work / "drafts/deep/b.md").exists()

    await press(page, "m")
    await page.get_by_label("Folder", exact=True).fill("work/drafts/deep")
    await press(page, "Enter")
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("alert")).to_contain_text("exists there already")
    await dialog.get_by_role("button", name="Replace").press("Enter")
    await expect(row(page, "b.md")).to_have_count(0)
    assert not (work / "b.md").exists()

    await press(page, "Home", " ", "Delete")
    await expect(dialog).to_contain_text("everything in it")
    assert await accessibility_faults(page) == []
    await dialog.get_by_role("button", name="Delete").press("Enter")
    await expect(page.get_by_role("heading", name="This folder is empty")).to_be_visible()
    assert not (work / "drafts").exists()


@pytest.mark.soak
async def test_several_marked_files_are_moved_and_deleted(owner: Visitor, directory: Path) -> None:
    source = directory / "several"
    source.mkdir()
    for name in ("1.txt", "2.txt", "3.txt", "4.txt"):
        (source / name).write_text(name)
    page = await open_folder(owner, "root/workspace/several")
    for name in ("1.txt", "3.txt"):
        await row(page, name).get_by_role("checkbox").check()
    await expect(count_of_entries(page)).to_have_text("4 entries, 2 marked")
    await page.get_by_role("button", name="Move").click()
    await page.get_by_label("Folder", exact=True).fill("several/moved")
    await page.get_by_role("dialog").get_by_role("button", name="Move").click()
    await expect(page.get_by_text("Moved 2 entries")).to_be_visible()
    assert sorted(path.name for path in (source / "moved").iterdir()) == ["1.txt", "3.txt"]
    await press(page, "Control+A")
    await expect(count_of_entries(page)).to_have_text("3 entries, 3 marked")
    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="This folder is empty")).to_be_visible()
    assert list(source.iterdir()) == []


async def test_a_rename_never_replaces_a_file_without_a_question(owner: Visitor, directory: Path) -> None:
    folder = directory / "taken"
    folder.mkdir()
    (folder / "one.txt").write_text("one")
    (folder / "two.txt").write_text("two")
    page = await open_folder(owner, "root/workspace/taken")
    await row(page, "one.txt").get_by_role("gridcell").last.click()
    await press(page, "F2")
    await page.get_by_label("New name").fill("two.txt")
    await press(page, "Enter")
    await expect(page.get_by_role("alert")).to_contain_text("exists there already")
    assert (folder / "two.txt").read_text() == "two"
    await page.get_by_role("button", name="Replace it").click()
    await expect(row(page, "one.txt")).to_have_count(0)
    assert (folder / "two.txt").read_text() == "one"
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_a_binary_file_is_uploaded_and_downloaded_again(owner: Visitor, directory: Path) -> None:
    content = bytes(range(256)) * 4000
    page = await open_folder(owner, "root/workspace/empty")
    file = {"name": "data.bin", "mimeType": "application/octet-stream", "buffer": content}
    await page.locator("input[type=file]").set_input_files(file)  # pyright: ignore[reportArgumentType]
    uploads = page.get_by_role("region", name="Uploads")
    await expect(uploads.get_by_text("uploaded", exact=True)).to_be_visible()
    await expect(row(page, "data.bin")).to_be_visible()
    assert (directory / "empty/data.bin").read_bytes() == content

    other = {"name": "data.bin", "mimeType": "application/octet-stream", "buffer": b"other"}
    await page.locator("input[type=file]").set_input_files(other)  # pyright: ignore[reportArgumentType]
    await expect(uploads.get_by_text("exists already")).to_be_visible()
    assert await accessibility_faults(page) == []
    await uploads.get_by_role("button", name="Keep both").click()
    await expect(row(page, "data (2).bin")).to_be_visible()
    assert (directory / "empty/data.bin").read_bytes() == content
    await page.locator("input[type=file]").set_input_files(other)  # pyright: ignore[reportArgumentType]
    await uploads.get_by_role("button", name="Replace").click()
    await expect(uploads.get_by_text("uploaded", exact=True)).to_have_count(3)
    assert (directory / "empty/data.bin").read_bytes() == b"other"

    await row(page, "data (2).bin").get_by_role("gridcell").last.click()
    async with page.expect_download() as waiting:
        await press(page, "d")
    download = await waiting.value
    assert download.suggested_filename == "data (2).bin"
    assert Path(await download.path()).read_bytes() == b"other"


async def test_files_are_dropped_and_an_upload_is_cancelled(owner: Visitor, directory: Path) -> None:
    page = await open_folder(owner, "root/workspace/src")
    transfer = await page.evaluate_handle(
        "() => { const t = new DataTransfer(); t.items.add(new File(['dropped'], 'drop.txt')); return t; }"
    )
    await entries(page).dispatch_event("drop", {"dataTransfer": transfer})
    await expect(row(page, "drop.txt")).to_be_visible()
    assert (directory / "src/drop.txt").read_text() == "dropped"

    # An upload whose answer never comes.
    await page.route("**/api/raw?**never**", lambda route: None)
    file = {"name": "never.bin", "mimeType": "application/octet-stream", "buffer": b"x"}
    await page.locator("input[type=file]").set_input_files(file)  # pyright: ignore[reportArgumentType]
    uploads = page.get_by_role("region", name="Uploads")
    await uploads.get_by_role("button", name="Cancel").click()
    await expect(uploads.get_by_text("cancelled")).to_be_visible()
    assert not (directory / "src/never.bin").exists()


async def test_a_read_only_root_says_why_nothing_can_be_changed(owner: Visitor, archive: Path) -> None:
    page = await open_folder(owner, "root/archive")
    await expect(page.get_by_text("read-only", exact=True)).to_be_visible()
    await page.get_by_role("button", name="New", exact=True).click()
    for name in ("New file", "New folder", "Upload"):
        item = page.get_by_role("menuitem", name=name)
        await expect(item).to_have_attribute("aria-disabled", "true")
        await expect(item).to_contain_text("the root archive is read-only")
    await press(page, "Escape")
    await row(page, "old.txt").get_by_role("gridcell").last.click()
    await press(page, "Delete")
    await expect(page.get_by_text("Delete: the root archive is read-only")).to_be_visible()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    item = await action(page, "Download")
    await expect(item).not_to_have_attribute("aria-disabled", "true")
    assert (archive / "old.txt").exists()


async def test_a_root_that_only_lists_says_which_tool_is_missing(owner: Visitor) -> None:
    page = await open_folder(owner, "root/listed")
    await row(page, "old.txt").get_by_role("gridcell").last.click()
    await expect(await action(page, "Download")).to_contain_text("the root listed does not allow read_file")
    await press(page, "Escape")
    await page.goto(f"{owner.address}/console/files/root/listed?view=search&q=x")
    await expect(page.get_by_text("the root listed does not allow grep")).to_be_visible()


async def test_a_denied_write_shows_the_words_of_the_server(owner: Visitor, directory: Path) -> None:
    page = await open_folder(owner, "root/workspace/docs")
    await press(page, "n")
    await page.keyboard.type(".envrc")
    await press(page, "Enter")
    await expect(page.get_by_role("alert")).to_contain_text("WRITE_DENIED")
    assert not (directory / "docs/.envrc").exists()


@pytest.mark.contract("S5.4-1")
async def test_the_seven_operations_of_a_project(owner: Visitor, api: httpx.Client) -> None:
    page = await owner.open("/console/files")
    # write: a project begins with its first file
    await page.get_by_role("button", name="New project").click()
    await page.get_by_label("Project", exact=True).fill("voyage")
    await page.get_by_label("First file").fill("log/first.md")
    await page.get_by_role("button", name="Create").click()
    editor = page.get_by_role("textbox", name="first.md")
    await expect(page.get_by_role("button", name="Stop editing")).to_be_visible()
    await editor.click()
    await page.keyboard.type("Wind from the north.")
    await press(page, "Control+s")
    await expect(page.get_by_text("Saved")).to_be_visible()
    # stat
    await page.get_by_role("tab", name="About").click()
    await expect(page.get_by_text("store://voyage/log/first.md")).to_be_visible()
    # list, rename
    page = await open_folder(owner, "store/voyage/log")
    await row(page, "first.md").get_by_role("gridcell").last.click()
    await press(page, "F2")
    await page.get_by_label("New name").fill("second.md")
    await press(page, "Enter")
    await expect(row(page, "second.md")).to_be_visible()
    # search
    await press(page, "s")
    await expect(page.get_by_role("textbox", name="Search for")).to_be_focused()
    await page.keyboard.type("north")

    async def found() -> None:
        await press(page, "Enter")
        await expect(page.get_by_role("grid", name="Results")).to_contain_text("Wind from the north")

    await _until_indexed(api, "voyage")
    await found()
    # read: the passage is marked
    await page.get_by_role("grid", name="Results").get_by_role("link").click()
    await expect(page.get_by_text("Wind from the north.")).to_be_visible()
    # delete, and back again
    await press(page, "Backspace")
    await row(page, "second.md").get_by_role("gridcell").last.click()
    await press(page, "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(page.get_by_role("heading", name="This folder is empty")).to_be_visible()
    await (await action(page, "Deleted files")).click()
    await expect(page.get_by_role("grid", name="Deleted files")).to_contain_text("/log/second.md")
    assert await accessibility_faults(page) == []
    await tab_to(page, "Deleted files")
    await press(page, "R")
    await expect(page.get_by_text("Restored “/log/second.md”")).to_be_visible()
    read = api.get("/api/store/voyage/file", params={"path": "/log/second.md"}).json()
    assert read["content"] == "Wind from the north."


async def _until_indexed(api: httpx.Client, project: str) -> None:
    import anyio

    with anyio.fail_after(120):
        while True:
            [facts] = [each for each in api.get("/api/store").json()["projects"] if each["project"] == project]
            if facts["pending"] == 0:
                return
            await anyio.sleep(0.2)


async def test_a_project_lists_more_than_a_page_and_deletes_can_be_undone(owner: Visitor, api: httpx.Client) -> None:
    for number in range(60):
        store(api, "large", f"/{number:04}.md", "x")

    async def fewer(route: Route) -> None:
        await route.continue_(url=route.request.url.replace("limit=1000", "limit=25"))

    await owner.context.route("**/api/store/large/files?**", fewer)
    page = await open_folder(owner, "store/large")
    await tab_to(page, "Entries of large")
    await press(page, "End")
    await expect(count_of_entries(page)).to_have_text("60 entries")
    await press(page, "End", "Delete")
    await page.get_by_role("dialog").get_by_role("button", name="Delete").press("Enter")
    await expect(count_of_entries(page)).to_have_text("59 entries")
    await page.get_by_role("button", name="Undo").click()
    await expect(count_of_entries(page)).to_have_text("60 entries")


async def test_texts_are_copied_from_a_root_into_a_project(owner: Visitor, api: httpx.Client) -> None:
    store(api, "notes", "/plans/may.md", "Sail in May.\n")
    page = await open_folder(owner, "root/workspace/docs")
    await row(page, "rope.md").get_by_role("gridcell").last.click()
    await press(page, "c")
    await page.get_by_label("Into").select_option(label="notes (project)")
    await page.get_by_label("Folder", exact=True).fill("copied")
    await press(page, "Enter")
    await expect(page.get_by_text("Copied “rope.md”")).to_be_visible()
    read = api.get("/api/store/notes/file", params={"path": "/copied/rope.md"}).json()
    assert read["content"] == "Bring a rope.\n"


@pytest.mark.soak
async def test_names_and_contents_are_searched(owner: Visitor) -> None:
    page = await open_folder(owner, "root/workspace")
    await press(page, "s")
    await expect(page.get_by_role("textbox", name="Search for")).to_be_focused()
    await page.keyboard.type("SHIPS")
    await press(page, "Enter")
    results = page.get_by_role("grid", name="Results")
    await expect(results).to_contain_text("docs/harbour.md:3")
    await expect(results).to_contain_text("src/app.py:2")
    assert await accessibility_faults(page) == []
    await page.get_by_role("checkbox", name="exact case").check()
    await expect(page.get_by_role("heading", name="Nothing found")).to_be_visible()
    await page.get_by_role("checkbox", name="exact case").uncheck()
    await tab_to(page, "Results")
    await press(page, "Home", "Enter")
    await expect(page).to_have_url(f"{owner.address}/console/file/root/workspace/docs/harbour.md?L=3")
    await expect(page.locator(".cm-cited")).to_contain_text("Ships leave at high tide.")
    await page.go_back()
    await page.get_by_role("radio", name="in names").check()
    await page.get_by_role("textbox", name="Search for").fill("HARB")
    await press(page, "Enter")
    await expect(results.get_by_role("row")).to_have_count(2)
    await expect(results).to_contain_text("docs/harbour.md")


async def test_files_of_roots_and_projects_are_found_by_their_names(
    owner: Visitor, api: httpx.Client, directory: Path
) -> None:
    (directory / "src/lantern.py").write_text("")
    store(api, "notes", "/plans/lantern.md", "Trim the wick.\n")
    page = await owner.open("/console/activity")
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    await press(page, "Control+k")
    await page.keyboard.type("lantern")
    options = page.get_by_role("listbox", name="Found").get_by_role("option")
    await expect(options).to_have_count(2)
    await expect(options.nth(0)).to_contain_text("lantern.py workspace/src")
    await expect(options.nth(1)).to_contain_text("lantern.md notes/plans")
    assert await accessibility_faults(page) == []
    await press(page, "ArrowDown", "Enter")
    await expect(page).to_have_url(f"{owner.address}/console/file/store/notes/plans/lantern.md")


async def test_what_others_change_appears_by_itself(owner: Visitor, api: httpx.Client) -> None:
    page = await open_folder(owner, "root/workspace/docs")
    await expect(row(page, "rope.md")).to_be_visible()
    answer = api.post("/api/sandbox/workspace/file", params={"path": "docs/new.md"}, json={"content": "new"})
    assert answer.status_code == 201
    await expect(row(page, "new.md")).to_be_visible()


async def test_a_folder_that_cannot_be_listed_shows_the_problem(owner: Visitor) -> None:
    page = await owner.open("/console/files/root/workspace/nothing/here")
    await expect(page.get_by_role("alert")).to_contain_text("NOT_FOUND")
    await expect(page.get_by_text("loading…")).to_have_count(0)
    await page.goto(f"{owner.address}/console/files/root/unknown")
    await expect(page.get_by_role("alert")).to_contain_text("UNKNOWN_ROOT")
    assert await accessibility_faults(page) == []


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_folders_are_accessible_in_both_themes_on_every_width(
    visit: Visit, server: ServerProcess, state_dir: Path, api: httpx.Client, scheme: Any, width: int
) -> None:
    store(api, "notes", "/plans/may.md", "Sail in May.\n")
    session = await session_of(server.url, code=OwnerLinks(state_dir).create())
    async with visit(color_scheme=scheme, viewport={"width": width, "height": 640}, storage_state=session) as person:
        page = await person.open("/console/files")
        for path, ready in [
            ("files", page.get_by_role("heading", name="Roots")),
            ("files/root/workspace", row(page, "docs")),
            ("files/root/workspace/hostile", row(page, SHOWN[0])),
            ("files/store/notes", row(page, "plans")),
            ("files/root/workspace?view=search&q=ships", page.get_by_role("grid", name="Results")),
            ("files/nowhere", page.get_by_role("heading", name="This address names no place")),
        ]:
            await page.goto(f"{person.address}/console/{path}")
            await expect(ready).to_be_visible()
            assert await accessibility_faults(page) == [], path
            wide = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
            assert not wide, f"{path} must be scrolled sideways"
