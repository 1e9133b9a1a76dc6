"""The Admin page: servers, keys, checks and settings, by mouse and by keys."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from armarium.foundation.security.identity import key_hash
from support.browser import Visitor, accessibility_faults, press, session_of, tab_to
from support.console_gateway import EVIL, TOKEN, write_servers
from support.gateway_server import rag_entry
from support.server import ServerProcess

Json = dict[str, Any]
KEYS = {"ada": ["admin"], "gwen": ["gateway-admins"], "anna": ["users"]}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def settings(servers: Path) -> Json:
    keys = [{"username": name, "groups": groups, "key_sha256": key_hash(name)} for name, groups in KEYS.items()]
    gateway = write_servers(servers) | {"admin_group": "gateway-admins", "own_sources": False}
    return {"gateway": gateway, "security": {"auth": "keys", "keys": keys}}


@pytest.fixture
async def gwen(visit: Any, server: ServerProcess) -> AsyncGenerator[Visitor]:
    """An administrator of the gateway, and of nothing else."""
    async with visit(storage_state=await session_of(server.url, key="gwen")) as person:
        yield person


async def servers_page(person: Visitor, name: str = "") -> Page:
    page = await person.open(f"/console/admin/servers/{name}")
    await expect(grid(page, "Servers").get_by_role("row")).not_to_have_count(1)
    return page


def grid(page: Page, name: str) -> Locator:
    return page.get_by_role("grid", name=name)


def stored(servers: Path, file: str = "rag-mcp.json") -> Json:
    return json.loads((servers / "overrides" / file).read_text())


async def write_json(page: Page, text: str) -> None:
    """Replace the text of the editor."""
    editor = page.get_by_role("textbox", name="Entry as JSON")
    await editor.focus()
    await page.keyboard.press("ControlOrMeta+a")
    await page.keyboard.insert_text(text)


async def test_a_server_is_tested_saved_and_deleted(owner: Visitor, servers: Path) -> None:
    page = await servers_page(owner)
    await page.get_by_role("button", name="Add").click()
    await page.get_by_label("Name", exact=True).fill("fresh")
    entry = rag_entry("lamps", env={"KEY": "secret-of-fresh"})
    await page.get_by_label("groups, one on each line").fill("users\neditors")
    await page.get_by_label("command", exact=True).fill(entry["command"])
    await page.get_by_label("args, one on each line").fill("\n".join(entry["args"]))
    variables = page.get_by_role("group", name="env")
    await variables.get_by_role("button", name="Add").click()
    await variables.get_by_label("Name in env").fill("KEY")
    await variables.get_by_label("Value of KEY").fill("secret-of-fresh")
    # Both are the same object.
    await expect(page.get_by_role("textbox", name="Entry as JSON")).to_contain_text('"KEY": "secret-of-fresh"')
    await page.get_by_role("button", name="Test", exact=True).click()
    result = page.get_by_role("region", name="Result of the test")
    await expect(result).to_contain_text("it works")
    await expect(result).to_contain_text("1 source")
    assert "fresh" not in stored(servers)
    await page.get_by_role("button", name="Save", exact=True).click()
    row = grid(page, "Servers").get_by_role("row").filter(has_text="fresh")
    await expect(row).to_be_visible()
    assert stored(servers)["fresh"]["groups"] == ["users", "editors"]

    # What is masked stays as it was.
    await expect(page.get_by_label("Value of KEY")).to_have_value("********")
    await page.get_by_label("description", exact=True).fill("Lamps of the harbour.")
    await expect(page.get_by_text("not saved", exact=True)).to_be_visible()
    await page.get_by_label("description", exact=True).press("Control+s")
    await expect(page.get_by_text("not saved", exact=True)).to_have_count(0)
    assert stored(servers)["fresh"]["env"] == {"KEY": "secret-of-fresh"}
    assert stored(servers)["fresh"]["description"] == "Lamps of the harbour."
    await page.get_by_role("button", name="Delete…").click()
    await page.get_by_role("button", name="Delete fresh").click()
    await expect(row).to_have_count(0)
    assert "fresh" not in stored(servers)


async def test_mistakes_stand_where_they_are(owner: Visitor, servers: Path) -> None:
    page = await servers_page(owner, "law")
    before = stored(servers)["law"]
    await page.get_by_role("button", name="Add to dataSources").click()
    await page.get_by_role("group", name="dataSources").get_by_label("name", exact=True).fill("Cases")
    await page.get_by_role("button", name="Save", exact=True).click()
    field = page.get_by_label("id (required)")
    await expect(field).to_have_attribute("aria-invalid", "true")
    await expect(field).to_have_accessible_description(re.compile("is required"))
    await expect(page.locator(".cm-mark")).to_have_attribute("title", re.compile("is required"))
    assert await accessibility_faults(page) == []
    await write_json(page, json.dumps(before | {"comand": "x"}))
    await page.get_by_role("button", name="Test", exact=True).click()
    await expect(page.get_by_role("alert").filter(has_text="did you mean `command`?")).to_be_visible()
    await write_json(page, "{")
    await expect(page.get_by_role("alert").filter(has_text="Not valid JSON")).to_be_visible()
    await expect(page.get_by_role("button", name="Save", exact=True)).to_be_disabled()
    # Only by a decision is it lost.
    await grid(page, "Servers").get_by_text("notes", exact=True).click()
    await page.get_by_role("dialog", name="Leave without saving?").get_by_role("button", name="Stay").click()
    await write_json(page, json.dumps(before | {"command": "/bin/sh"}))
    await page.get_by_role("button", name="Test", exact=True).click()
    await expect(page.get_by_role("alert").filter(has_text="gateway.admin_commands")).to_be_visible()
    assert stored(servers)["law"] == before
    await grid(page, "Servers").get_by_text("notes", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Leave").click()
    await expect(page.get_by_role("heading", name="notes", level=2)).to_be_visible()


@pytest.mark.contract("G8-5")
async def test_servers_are_watched_reconnected_and_reloaded_by_keys(gwen: Visitor, servers: Path) -> None:
    page = await servers_page(gwen)
    # The rights are those of the person.
    await expect(page.get_by_role("tab")).to_have_text(["Servers"])
    rows = grid(page, "Servers")
    await rows.focus()
    await press(page, "Home", "j", "k")
    await expect(page.get_by_role("heading", name="archive", level=2)).to_be_visible()
    assert TOKEN not in await page.content()
    await expect(page.get_by_role("textbox", name="Entry as JSON")).to_contain_text("--bearer=********")
    await page.get_by_role("tab", name="Entry").focus()
    await press(page, "ArrowRight")
    await tab_to(page, "Reconnect")
    await press(page, "Enter")
    await expect(page.get_by_text("archive is connected")).to_be_visible()
    await expect(rows.get_by_role("row").filter(has_text="archive")).to_contain_text("connected")
    await page.get_by_role("tab", name="State").focus()
    await press(page, "ArrowRight")
    await expect(page.get_by_role("heading", name="rag_get_raw_results")).to_be_visible()

    # A file with a mistake is told until it is corrected, without a reload of the page.
    file = servers / "overrides/mcp.json"
    content = file.read_text()
    try:
        file.write_text('{"gadgets": {"comand": "x"}}')
        problems = page.get_by_role("alert").filter(has_text="The files have mistakes")
        await expect(problems).to_contain_text("did you mean `command`?")
        assert await accessibility_faults(page) == []
        await rows.focus()
        await press(page, "r")
        await expect(page.get_by_text("did you mean `command`?").nth(1)).to_be_visible()
    finally:
        file.write_text(content)
    await expect(problems).to_have_count(0)
    before = await page.get_by_role("time").first.get_attribute("datetime")
    await press(page, "r")
    await expect(page.get_by_role("time").first).not_to_have_attribute("datetime", before or "")


async def test_a_hostile_server_is_described_as_text(owner: Visitor) -> None:
    page = await servers_page(owner, "bad")
    await expect(page.get_by_label("description", exact=True)).to_have_value(f"{EVIL} bold")
    await page.goto(f"{owner.address}/console/admin/servers/gadgets")
    await page.get_by_role("tab", name="Tools").click()
    await expect(page.get_by_text(re.compile(r"\d+ of \d+ tools"))).to_be_visible()
    await page.get_by_role("searchbox", name="Find a tool").fill("echo")
    await expect(page.get_by_role("heading", name="echo").first).to_be_visible()
    await expect(page.locator("main img")).to_have_count(0)


async def test_an_entry_that_changed_elsewhere_is_not_overwritten_silently(
    owner: Visitor, servers: Path, server: ServerProcess
) -> None:
    page = await servers_page(owner, "law")
    await page.get_by_label("description", exact=True).fill("mine")
    headers = {"authorization": "Bearer gwen"}
    address = f"{server.url}/api/admin/mcp/servers/law"
    shown = httpx.get(address, headers=headers, timeout=60).json()["entry"]
    httpx.put(address, headers=headers, timeout=60, json=shown | {"description": "theirs"}).raise_for_status()
    changed = page.get_by_role("alert").filter(has_text="changed elsewhere")
    await expect(changed).to_be_visible()
    await changed.get_by_role("button").click()
    await expect(page.get_by_label("description", exact=True)).to_have_value("theirs")


async def test_keys_are_made_shown_once_rotated_and_revoked(owner: Visitor, server: ServerProcess) -> None:
    def works(secret: str) -> bool:
        return httpx.get(f"{server.url}/api/session", headers={"authorization": f"Bearer {secret}"}).is_success

    page = await owner.open("/console/admin/keys")
    await grid(page, "Keys").get_by_text("anna").click()
    await expect(page.get_by_text("It is in the settings file")).to_be_visible()
    await expect(page.get_by_role("button", name="Revoke…")).to_have_count(0)
    await page.get_by_role("button", name="Add").click()
    await page.get_by_label("Name of the caller").fill("no name!")
    await page.get_by_label("Groups").fill("users, editors")
    await page.get_by_label("gateway").check()
    dialog = page.get_by_role("dialog", name="Add a key")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_be_visible()
    await page.get_by_label("Name of the caller").fill("agent-7")
    await dialog.get_by_role("button", name="Add", exact=True).click()
    shown = page.get_by_role("dialog", name="The key agent-7")
    first = await shown.get_by_role("code").inner_text()
    assert works(first)
    assert await accessibility_faults(page) == []
    await press(page, "Escape")
    await shown.get_by_role("button", name="I have stored it").click()
    await expect(shown).to_have_count(0)
    assert first not in await page.content()
    row = grid(page, "Keys").get_by_role("row").filter(has_text="agent-7")
    await expect(row).to_contain_text("users, editors")
    await row.click()
    await page.get_by_role("button", name="Rotate…").click()
    await page.get_by_label("The old secret stays valid").select_option("for an hour")
    await page.get_by_role("button", name="Rotate", exact=True).click()
    shown = page.get_by_role("dialog", name="The new secret of agent-7")
    second = await shown.get_by_role("code").inner_text()
    assert second != first
    assert works(first)
    assert works(second)
    await shown.get_by_role("button", name="I have stored it").click()
    await page.get_by_role("button", name="Revoke…").click()
    await page.get_by_role("button", name="Revoke agent-7").click()
    await expect(row).to_have_count(0)
    assert not works(first)
    assert not works(second)


async def test_checks_and_settings_are_listed_and_filtered(owner: Visitor) -> None:
    page = await owner.open("/console/admin/checks")
    await expect(page.get_by_text(re.compile(r"\d+ fail, \d+ warnings, \d+ ok"))).to_be_visible()
    await expect(page.get_by_role("listitem").filter(has_text="gateway servers")).to_be_visible()
    await page.get_by_role("tab", name="Checks").focus()
    await press(page, "ArrowRight", "/")
    await page.keyboard.type("section:security key")
    await press(page, "Enter")
    settings = grid(page, "Settings")
    await expect(settings.get_by_text("security.keys", exact=True)).to_be_visible()
    await expect(settings.get_by_text("server.port", exact=True)).to_have_count(0)
    await settings.get_by_text("security.keys", exact=True).click()
    value = page.get_by_role("region", name="Value")
    await expect(value).to_contain_text("gwen")
    assert key_hash("gwen") not in await page.content()
    await expect(value).to_contain_text("********")
    assert "q=key" in page.url


async def test_who_administers_nothing_has_no_such_page(visit: Any, server: ServerProcess) -> None:
    async with visit(storage_state=await session_of(server.url, key="anna")) as anna:
        page = await anna.open("/console/admin/servers")
        await expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
        await expect(page.get_by_role("link", name="Admin")).to_have_count(0)
    async with visit(storage_state=await session_of(server.url, key="ada")) as ada:
        page = await ada.open("/console/admin/servers")
        await expect(page.get_by_role("tab")).to_have_text(["Keys", "Checks", "Settings"])


async def test_every_tab_is_accessible_in_both_themes_and_on_a_narrow_screen(owner: Visitor) -> None:
    page = await servers_page(owner, "notes")
    await expect(page.get_by_role("textbox", name="Entry as JSON")).to_be_visible()
    is_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    for tab, sign in (("servers/notes", "args"), ("servers", "Reload"), ("keys/anna", "settings file"),
                      ("checks", "open files"), ("settings?setting=server.port", "Port to listen")):  # fmt: skip
        await page.set_viewport_size({"width": 1280, "height": 900})
        await page.goto(f"{owner.address}/console/admin/{tab}")
        await expect(page.get_by_text(sign).first).to_be_visible()
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            assert (tab, await accessibility_faults(page)) == (tab, [])
        await page.set_viewport_size({"width": 320, "height": 640})
        await expect(page.get_by_text(sign).first).to_be_visible()
        assert not await page.evaluate(is_wide), tab
