"""A real browser for the tests of the console: every page that it opens is watched for faults."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, async_playwright

from armarium.surfaces.console.links import OwnerLinks, link

REPOSITORY = Path(__file__).parents[2]
DEADLINE_MS = 60_000
"""How long a page may take for anything. Only a fault takes as long."""

_AXE = REPOSITORY / "web/node_modules/axe-core/axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What the browser itself says of answers such as 401 and 409. The page shows them to the person.
_EXPECTED = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d")
_WATCH = """
document.addEventListener("securitypolicyviolation", (event) =>
  window.__reportFault(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
window.addEventListener("unhandledrejection", (event) => window.__reportFault(`rejection: ${event.reason}`));
"""
_FOCUS = """() => {
  let active = document.activeElement;
  while (active?.shadowRoot?.activeElement) active = active.shadowRoot.activeElement;
  if (!active || active === document.body) return null;
  const box = active.getBoundingClientRect();
  return {
    tag: active.tagName.toLowerCase(),
    role: active.getAttribute("role"),
    isVisible: box.width > 0 && box.height > 0 && getComputedStyle(active).visibility !== "hidden",
  };
}"""


def chromium() -> str | None:
    """The browser that is installed on this machine."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@asynccontextmanager
async def running_browser() -> AsyncGenerator[Browser]:
    """A browser without a window."""
    options = ["--disable-gpu", "--disable-dev-shm-usage"]
    # A browser of root has no sandbox.
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=options, timeout=DEADLINE_MS)
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visitor:
    """A person with a browser: its pages, and the faults that were seen in them."""

    context: BrowserContext
    address: str
    """The origin of the console. Requests to others are faults."""
    faults: list[str] = field(default_factory=list[str])
    expected: str | None = None
    """A regular expression for faults that the test provokes itself."""

    async def open(self, path: str = "/console") -> Page:
        """A new page at this path of the server."""
        page = await self.context.new_page()
        await page.goto(self.address + path)
        return page

    def note(self, fault: str) -> None:
        if self.expected is None or not re.search(self.expected, fault):
            self.faults.append(fault)

    def watch(self, page: Page) -> None:
        page.on("console", self._on_message)
        page.on("pageerror", lambda error: self.note(f"error: {error}"))
        page.on("request", self._on_request)
        page.on("response", self._on_response)

    def _on_message(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not _EXPECTED.match(message.text):
            self.note(f"console: {message.text}")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith((f"{self.address}/", "data:", f"blob:{self.address}/")):
            self.note(f"request to {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 500:
            self.note(f"{response.status} from {response.request.method} {response.url}")


Visit = Callable[..., AbstractAsyncContextManager[Visitor]]
"""Opens an empty browser, with the options of `visitor`."""


@asynccontextmanager
async def visitor(browser: Browser, address: str, **options: Any) -> AsyncGenerator[Visitor]:
    """A person with an empty browser. Fails at the end if a page had a fault."""
    options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
    context = await browser.new_context(**options)
    context.set_default_timeout(DEADLINE_MS)
    person = Visitor(context, address)
    try:
        await context.expose_function("__reportFault", lambda fault: person.note(fault))
        await context.add_init_script(_WATCH)
        context.on("page", person.watch)
        yield person
    finally:
        await context.close()
    assert not person.faults, "\n".join(["a page had faults", *person.faults])


@cache
def _axe() -> str:
    return _AXE.read_text()


async def accessibility_faults(page: Page) -> list[str]:
    """What axe finds on a page: the rule, how often, and an example."""
    await page.evaluate(f"{_axe()};0")
    found: list[dict[str, Any]] = await page.evaluate(
        "(rules) => axe.run(document, { runOnly: rules, resultTypes: ['violations'] }).then((all) => all.violations)",
        _RULES,
    )
    return [f"{each['id']} ({len(each['nodes'])}): {each['help']}: {_example(each)}" for each in found]


def _example(violation: dict[str, Any]) -> str:
    node = violation["nodes"][0]
    return f"{node['html'][:200]} {[check['message'] for check in node['any']][:1]}"


async def sideways(page: Page) -> list[str]:
    """What scrolls sideways: the page, or something in it. Texts and tables that are wide themselves may."""
    return await page.evaluate(_SIDEWAYS)


_SIDEWAYS = """() => [document.documentElement, ...document.querySelectorAll("main, main *, dialog, dialog *")]
  .filter((each) => each.scrollWidth > each.clientWidth + 1)
  .filter((each) => each === document.documentElement || /auto|scroll/.test(getComputedStyle(each).overflowX))
  .filter((each) => !each.matches("pre, pre *, .cm-scroller"))
  .map((each) => `${each.tagName}.${each.className} ${each.scrollWidth} > ${each.clientWidth}`)"""


async def press(page: Page, *keys: str) -> None:
    """Press keys as a person without a mouse does: after each, something visible has the focus."""
    for key in keys:
        await page.keyboard.press(key)
        focused = await page.evaluate(_FOCUS)
        assert focused is None or focused["isVisible"], f"after {key}, the focus is on something invisible: {focused}"


async def tab_to(page: Page, name: str, *, most: int = 60) -> None:
    """Press Tab until an element whose name has this text has the focus."""
    for _ in range(most):
        await press(page, "Tab")
        if await page.evaluate(_HAS_NAME, name):
            return
    raise AssertionError(f"{most} times Tab did not lead to {name!r}")


# The text of an element is its name only if it is a control: the page and a region contain everything.
_HAS_NAME = """(wanted) => {
  const active = document.activeElement;
  const named = "a, button, summary, [role^=menuitem], [role=option], [role=tab], [role=treeitem]";
  const text = active?.matches(named) ? active.textContent : "";
  const name = active?.getAttribute("aria-label") ?? active?.labels?.[0]?.textContent ?? text;
  return name.replace(/\\s+/g, " ").includes(wanted);
}"""


async def log_in(person: Visitor, state_dir: Path) -> None:
    """Log in by a link, as `armarium console` creates it."""
    page = await person.context.new_page()
    await page.goto(link(person.address, OwnerLinks(state_dir).create()))
    await page.get_by_role("navigation", name="Areas").wait_for()
    await page.close()


async def session_of(address: str, **shown: str) -> Any:
    """What a browser keeps of a session that a key or a link opens: the option `storage_state` of a visit."""
    async with httpx.AsyncClient(base_url=address, timeout=DEADLINE_MS / 1000) as client:
        answer = await client.post("/api/session", json=shown)
    assert answer.status_code == 201, answer.text
    [(name, value)] = answer.cookies.items()
    cookie = {"name": name, "value": value, "url": address, "httpOnly": True, "sameSite": "Strict"}
    proof = {"name": "armarium.proof", "value": answer.json()["proof"]}
    return {"cookies": [cookie], "origins": [{"origin": address, "localStorage": [proof]}]}
