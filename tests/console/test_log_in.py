"""Logging in to the console and out of it, in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import httpx
import pytest
from playwright.async_api import Locator, Page, expect

from armarium.surfaces.console.links import OwnerLinks, link
from support.browser import Visit, Visitor, accessibility_faults, log_in, press
from support.server import ServerProcess


def areas(page: Page) -> Locator:
    return page.get_by_role("navigation", name="Areas")


@pytest.fixture(scope="module")
def token(server: ServerProcess, state_dir: Path) -> str:
    return (state_dir / "secret.token").read_text().strip()


async def test_a_key_logs_in_by_keyboard_alone(stranger: Visitor, token: str) -> None:
    page = await stranger.open("/console/activity?tool=grep")
    await expect(page.get_by_role("heading", name="Armarium")).to_be_visible()
    await expect(page.get_by_label("Key", exact=True)).to_be_focused()
    await page.keyboard.type(token)
    await press(page, "Enter")
    await expect(page.get_by_role("heading", name="Activity")).to_be_visible()
    assert page.url.endswith("/console/activity?tool=grep")
    kept = await page.evaluate(
        "JSON.stringify({...localStorage}) + document.cookie + document.documentElement.outerHTML"
    )
    assert token not in kept


async def test_a_wrong_key_is_told_with_what_to_do(stranger: Visitor) -> None:
    page = await stranger.open()
    await page.get_by_label("Key", exact=True).fill("wrong")
    await page.get_by_role("button", name="Log in").click()
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text("this key is not valid")
    await expect(alert).to_contain_text("UNAUTHORIZED")
    await expect(alert.get_by_role("button", name="Copy for the operator")).to_be_visible()
    await expect(page.get_by_label("Key", exact=True)).to_have_value("")
    assert await accessibility_faults(page) == []


async def test_a_link_logs_in_once_and_its_code_leaves_the_address(
    stranger: Visitor, server: ServerProcess, state_dir: Path
) -> None:
    code = OwnerLinks(state_dir).create()
    page = await stranger.context.new_page()
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    await page.goto(link(server.url, code))
    await expect(areas(page)).to_be_visible()
    await expect(page.get_by_role("button", name="Person and preferences")).to_contain_text("owner")
    assert "#" not in page.url
    assert not any(code in url for url in sent)
    await page.go_back()
    assert code not in page.url
    again = httpx.post(f"{server.url}/api/session", json={"code": code}, timeout=60)
    assert again.status_code == 401


async def test_a_used_link_leads_to_the_log_in_with_the_reason(
    stranger: Visitor, server: ServerProcess, state_dir: Path
) -> None:
    code = OwnerLinks(state_dir).create()
    assert httpx.post(f"{server.url}/api/session", json={"code": code}, timeout=60).status_code == 201
    page = await stranger.context.new_page()
    await page.goto(link(server.url, code))
    await expect(page.get_by_role("alert")).to_contain_text("this link is not valid any more")
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()
    assert "#" not in page.url


async def test_a_used_link_opens_the_console_for_whoever_is_logged_in(
    owner: Visitor, server: ServerProcess, state_dir: Path
) -> None:
    code = OwnerLinks(state_dir).create()
    assert httpx.post(f"{server.url}/api/session", json={"code": code}, timeout=60).status_code == 201
    page = await owner.open(f"/console/status#in={code}")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Status")
    assert "#" not in page.url


async def test_logging_out_ends_this_browser(owner: Visitor) -> None:
    page = await owner.open()
    await page.get_by_role("button", name="Person and preferences").click()
    await page.get_by_role("menuitem", name="Log out", exact=True).click()
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()
    assert await page.evaluate("localStorage.getItem('armarium.proof')") is None
    await page.reload()
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()


async def test_logging_out_everywhere_ends_all_browsers_and_what_is_on_the_screen_stays(
    owner: Visitor, visit: Visit, state_dir: Path, token: str
) -> None:
    page = await owner.open("/console/activity")
    await expect(page.get_by_role("search")).to_be_visible()
    async with visit() as elsewhere:
        await log_in(elsewhere, state_dir)
        other = await elsewhere.open()
        await other.get_by_role("button", name="Person and preferences").click()
        await other.get_by_role("menuitem", name="Log out everywhere").click()
        await expect(other.get_by_label("Key", exact=True)).to_be_visible()
    await page.get_by_role("button", name="Result").click()
    await page.get_by_role("menuitemcheckbox", name="success").click()
    dialog = page.get_by_role("dialog", name="Log in again")
    await expect(dialog).to_be_visible()
    await dialog.get_by_label("Key", exact=True).fill(token)
    await dialog.get_by_role("button", name="Log in").click()
    await expect(dialog).to_be_hidden()


class Neighbour(BaseHTTPRequestHandler):
    """Another program of this machine, whose page sets a cookie."""

    planted = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("set-cookie", self.planted)
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>planted</title>")

    def log_message(self, format: str, *args: object) -> None: ...


@contextmanager
def neighbour(cookie: str) -> Iterator[str]:
    """The address of a page on another port, which sets this cookie."""
    handler = type("Planting", (Neighbour,), {"planted": cookie})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()


async def test_another_port_that_sets_the_cookie_of_a_valid_session_locks_nobody_out(
    owner: Visitor, server: ServerProcess, state_dir: Path, token: str
) -> None:
    other = httpx.post(f"{server.url}/api/session", json={"key": token}, timeout=60)
    name, value = next(iter(other.cookies.items()))
    with neighbour(f"{name}={value}; Path=/api") as address:
        owner.expected = f"request to {address}"
        page = await owner.context.new_page()
        await page.goto(address)
        await expect(page).to_have_title("planted")
    page = await owner.open("/console/activity")
    await expect(page.get_by_role("heading", name="Activity")).to_be_visible()
    await expect(page.get_by_role("button", name="Person and preferences")).to_contain_text("owner")
    await page.goto(link(server.url, OwnerLinks(state_dir).create()))
    await expect(areas(page)).to_be_visible()


async def test_the_cookie_without_the_proof_shows_the_log_in(owner: Visitor) -> None:
    """What another port of this machine could steal does not open the console."""
    page = await owner.open()
    await expect(areas(page)).to_be_visible()
    await page.evaluate("localStorage.clear()")
    await page.reload()
    await expect(page.get_by_label("Key", exact=True)).to_be_visible()
