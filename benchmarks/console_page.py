"""What `console.py` measures in a browser: the times that the page itself sees, from its own clock."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page

from console_server import FOLDER, QUESTION, ROOT, Served, visiting

Figures = dict[str, float]

_WATCH_FIELD = """
new MutationObserver((_, watching) => {
  if (document.querySelector("main textarea") === null) return;
  window.usable = performance.now();
  watching.disconnect();
}).observe(document, { subtree: true, childList: true });
"""
_LOADED = """() => {
  const loaded = performance.getEntriesByType("resource");
  const kb = (end) => loaded.filter((each) => new URL(each.name).pathname.endsWith(end))
    .reduce((sum, each) => sum + each.encodedBodySize, 0) / 1000;
  const page = performance.getEntriesByType("navigation")[0];
  return {
    scripts_kb: kb(".js"), styles_kb: kb(".css"), page_kb: page.encodedBodySize / 1000,
    paint_ms: performance.getEntriesByName("first-contentful-paint")[0].startTime,
    usable_ms: window.usable ?? NaN,
  };
}"""
# Each frame looks for the rows; the time is that of the frame in which they stand.
_OPEN_FOLDER = """(name) => new Promise((done) => {
  const row = [...document.querySelectorAll("[role=row]")].find((each) => each.textContent.includes(name));
  const began = performance.now();
  row.querySelector("a").click();
  const look = () => {
    const grid = document.querySelector("[role=grid]");
    const rows = document.querySelectorAll("[role=grid] [role=row]");
    if (Number(grid?.getAttribute("aria-rowcount")) > 100 && rows.length > 10) {
      requestAnimationFrame(() => {
        const answers = performance.getEntriesByType("resource").filter((each) => each.startTime >= began - 1);
        const answered = Math.max(began, ...answers.map((each) => each.responseEnd));
        const shown = performance.now();
        done({ shown_ms: shown - answered, opened_ms: shown - began, row_nodes: rows.length });
      });
    } else requestAnimationFrame(look);
  };
  look();
})"""
_SCROLL = """(frames) => new Promise((done) => {
  let scrolled = document.querySelector("[role=grid]");
  while (scrolled.scrollHeight <= scrolled.clientHeight + 5) scrolled = scrolled.parentElement;
  const times = [];
  let last = performance.now();
  const next = (now) => {
    times.push(now - last);
    last = now;
    scrolled.scrollTop += 300;
    if (times.length < frames) return requestAnimationFrame(next);
    times.sort((one, other) => one - other);
    done(times[Math.floor(times.length * 0.95)]);
  };
  requestAnimationFrame(next);
})"""
# From a key to the first frame in which `isThere` holds. Shadow roots are searched, too: the editor is in one.
_WATCH_KEY = """(isThere) => {
  const holds = new Function("find", `return ${isThere}`);
  const find = (selector, root = document) => {
    const found = root.querySelector(selector);
    if (found !== null) return found;
    for (const host of root.querySelectorAll("main *")) {
      const inner = host.shadowRoot?.querySelector(selector);
      if (inner) return inner;
    }
    return null;
  };
  window.measured = new Promise((done) => document.addEventListener("keydown", (event) => {
    const look = () => holds(find) ? done(performance.now() - event.timeStamp) : requestAnimationFrame(look);
    requestAnimationFrame(look);
  }, { capture: true, once: true }));
}"""
_WATCH_CALLS = """() => {
  window.seen = new Map();
  const look = () => {
    for (const found of document.body.innerText.matchAll(/event-\\d+/g))
      if (!window.seen.has(found[0])) window.seen.set(found[0], Date.now());
    requestAnimationFrame(look);
  };
  look();
}"""


async def loaded(context: BrowserContext, address: str) -> Figures:
    """What a browser loads for a page, and when it shows it."""
    page = await context.new_page()
    await page.add_init_script(_WATCH_FIELD)
    await page.goto(address, wait_until="networkidle" if "/console" not in address else "load")
    if "/console" in address:
        await page.wait_for_function("() => window.usable !== undefined")
    await page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
    found: Figures = await page.evaluate(_LOADED)
    await page.close()
    return found


async def first_page(browser: Browser, address: str, session: Any, runs: int) -> dict[str, Figures]:
    """The best of several loads, with an empty cache and with a full one."""
    cold, warm = list[Figures](), list[Figures]()
    for _ in range(runs):
        async with visiting(browser, session) as context:
            cold.append(await loaded(context, address))
            warm.append(await loaded(context, address))
    return {"cold": _best(cold), "warm": _best(warm)}


async def long_list(context: BrowserContext, served: Served, runs: int, frames: int) -> Figures:
    """A folder of many files: shown, scrolled, filtered."""
    found = list[Figures]()
    page = await context.new_page()
    for _ in range(runs):
        await page.goto(f"{served.url}/console/files/root/{ROOT}")
        await page.get_by_role("link", name=FOLDER, exact=True).first.wait_for()
        one: Figures = await page.evaluate(_OPEN_FOLDER, FOLDER)
        one["scroll_p95_ms"] = await page.evaluate(_SCROLL, frames)
        await page.get_by_label("Filter the entries").focus()
        count = await page.locator("[role=grid]").first.get_attribute("aria-rowcount")
        one["filter_ms"] = await _pressed(page, "7", f"find('[role=grid]').getAttribute('aria-rowcount') !== '{count}'")
        found.append(one)
    await page.close()
    return _best(found)


async def citation(context: BrowserContext, served: Served, runs: int) -> Figures:
    """From the key of a citation to its marked lines: for the first time, when the editor is loaded, and later."""
    firsts, laters = list[float](), list[float]()
    for _ in range(runs):
        page = await context.new_page()
        await page.goto(f"{served.url}/console/ask?q={QUESTION.replace(' ', '+')}")
        await page.locator("article[aria-busy=false]").wait_for()
        await page.get_by_role("button", name=re.compile("^Citation 1:")).first.wait_for()
        firsts.append(await _pressed(page, "1", "find('.cm-cited') !== null"))
        for _ in range(3):
            await page.keyboard.press("Escape")
            await page.get_by_role("region", name="Passage").wait_for(state="detached")
            laters.append(await _pressed(page, "1", "find('.cm-cited') !== null"))
        await page.close()
    return {"first_ms": min(firsts), "later_ms": min(laters)}


async def events(context: BrowserContext, served: Served, runs: int) -> float:
    """From the start of a call of a program to its row on the screen, in milliseconds."""
    page = await context.new_page()
    await page.goto(f"{served.url}/console/activity")
    await page.get_by_text("live", exact=True).wait_for()
    await page.evaluate(_WATCH_CALLS)
    times = list[float]()
    async with served.api() as api:
        for number in range(runs):
            began = time.time() * 1000
            await api.get(f"/api/sandbox/{ROOT}/stat", params={"path": f"event-{number}"})
            await page.wait_for_function("(name) => window.seen.has(name)", arg=f"event-{number}")
            times.append(await page.evaluate("(name) => window.seen.get(name)", f"event-{number}") - began)
    await page.close()
    return min(times)


async def tail(context: BrowserContext, served: Served, calls: int) -> tuple[float, float]:
    """Megabytes of the heap before and after so many calls were shown as they came."""
    page = await context.new_page()
    await page.goto(f"{served.url}/console/activity")
    await page.get_by_text("live", exact=True).wait_for()
    before = await _heap_mb(page)
    async with served.api() as api:

        async def call(some: int) -> None:
            for _ in range(some):
                await api.get(f"/api/sandbox/{ROOT}/stat", params={"path": "lamp.py"})

        await asyncio.gather(*(call(calls // 8) for _ in range(8)))
        await api.get(f"/api/sandbox/{ROOT}/stat", params={"path": "the-last-one"})
    await page.get_by_text("the-last-one").first.wait_for()
    after = await _heap_mb(page)
    await page.close()
    return before, after


async def _pressed(page: Page, key: str, is_there: str) -> float:
    await page.evaluate(_WATCH_KEY, is_there)
    await page.keyboard.press(key)
    return await page.evaluate("window.measured")


async def _heap_mb(page: Page) -> float:
    tools = await page.context.new_cdp_session(page)
    await tools.send("HeapProfiler.collectGarbage")
    usage = await tools.send("Runtime.getHeapUsage")
    return usage["usedSize"] / 1e6


def _best(found: list[Figures]) -> Figures:
    return {name: min(each[name] for each in found) for name in found[0]}
