"""The page of findings and issues: journeys by mouse and by keys, reports, live changes, and hostile texts."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, Route, expect

from support.browser import Visitor, accessibility_faults, press, tab_to
from support.scanner_reports import sarif_result, sarif_run
from support.server import ServerProcess, installed_command
from support.waiting import eventually

HOSTILE = "<img src=x onerror=\"document.title='ran'\"><script>document.title='ran'</script>"
CODE = "\n".join(["import db", "", *(f"def find_{n}(q):\n    return db.run(f'SELECT {{q}}')" for n in range(40))])


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    served = tmp_path_factory.mktemp("project")
    (served / "src").mkdir()
    (served / "src/db.py").write_text(CODE)
    (served / "src/<b>&.py").write_text(CODE)
    return served


def finding(path: str = "src/db.py", rule: str = "S608", line: int = 4, **more: Any) -> dict[str, Any]:
    message = more.pop("message", f"{rule} in line {line}")
    return {"path": path, "rule_id": rule, "message": message, "severity": "high", "line_start": line} | more


def report(directory: Path, source: str, *findings: dict[str, Any]) -> None:
    """Import a report with the command, as another process does."""
    file = directory.parent / f"{source}.json"
    file.write_text(json.dumps({"scan_source": source, "findings": findings, "paths": ["."]}))
    command = [installed_command("armarium"), "registry", "import", file, "--dir", directory]
    subprocess.run(command, check=True, capture_output=True)


async def findings_of(owner: Visitor, query: str) -> tuple[Page, Locator]:
    page = await owner.open(f"/console/findings?{query}")
    grid = page.get_by_role("grid", name="List of findings")
    await expect(grid).to_be_visible()
    return page, grid


def rows_of(grid: Locator) -> Locator:
    return grid.locator("[role=row][aria-rowindex]:not([aria-rowindex='1'])")


def toasts(page: Page) -> Locator:
    return page.get_by_role("status").or_(page.get_by_role("alert"))


async def is_told(page: Page, text: str) -> None:
    await expect(toasts(page).filter(has_text=text).first).to_be_visible()


async def test_findings_are_judged_by_keys_alone_beside_their_code(
    server: ServerProcess, owner: Visitor, directory: Path
) -> None:
    report(directory, "keys", *(finding(line=line) for line in (4, 6, 8)))
    page, grid = await findings_of(owner, "source=keys&status=open&sort=path")
    await expect(rows_of(grid)).to_have_count(3)
    await tab_to(page, "List of findings")
    await press(page, "Home")
    pane = page.get_by_role("article")
    await expect(pane.get_by_role("heading", level=2)).to_have_text("S608 in line 4")
    await expect(pane.get_by_role("textbox", name="Code of the finding")).to_contain_text("SELECT")
    await press(page, "p")
    await is_told(page, "1 finding set to false positive")
    await expect(rows_of(grid)).to_have_count(2)
    await expect(pane.get_by_role("heading", level=2)).to_have_text("S608 in line 6")
    await tab_to(page, "Reason")
    await page.keyboard.type("only in tests")
    await page.keyboard.press("Shift+Tab")
    await press(page, "f")
    await is_told(page, "1 finding set to fixed")
    await expect(rows_of(grid)).to_have_count(1)
    await press(page, "u")
    await is_told(page, "1 finding restored")
    await expect(rows_of(grid)).to_have_count(2)
    await rows_of(grid).filter(has_text="line 6").click()
    history = pane.get_by_role("listitem")
    await expect(history.first).to_contain_text("undone: open again by owner")
    await expect(history.first).to_contain_text("only in tests")
    await expect(history.nth(1)).to_contain_text("open → fixed")
    await page.goto(f"{owner.address}/console/findings?source=keys&status=false_positive")
    await expect(rows_of(page.get_by_role("grid"))).to_have_count(1)
    # A later report changes nothing about it.
    report(directory, "keys", *(finding(line=line) for line in (4, 6, 8)))
    await page.reload()
    await expect(rows_of(page.get_by_role("grid"))).to_have_count(1)


async def test_all_that_match_are_judged_in_one_request_and_restored(
    server: ServerProcess, owner: Visitor, directory: Path
) -> None:
    report(directory, "many", *(finding(f"lib/f{n}.py", "E501", n + 1, severity="low") for n in range(700)))
    page, grid = await findings_of(owner, "source=many&status=open&path=lib/")
    await expect(grid).to_have_attribute("aria-rowcount", "701")
    assert await rows_of(grid).count() < 200
    await rows_of(grid).nth(1).get_by_role("checkbox").check()
    await rows_of(grid).nth(2).get_by_role("checkbox").check()
    bar = page.get_by_role("toolbar", name="Marked findings")
    await expect(bar).to_contain_text("2 marked")
    await bar.get_by_role("button", name=re.compile("Select all 700")).click()
    await expect(bar).to_contain_text("700 marked")
    requests: list[str] = []
    page.on("request", lambda sent: requests.append(sent.url) if sent.method == "POST" else None)
    await bar.get_by_role("button", name=re.compile("False positive")).click()
    dialog = page.get_by_role("dialog", name="Judge 700 findings")
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    await dialog.get_by_label("Reason").fill("generated code")
    assert await accessibility_faults(page) == []
    await dialog.get_by_role("button", name="Set 700 findings to false positive").click()
    await is_told(page, "700 findings set to false positive")
    assert [each for each in requests if each.endswith("/judge")] == [f"{owner.address}/api/registry/findings/judge"]
    assert len(requests) == 1
    await expect(page.get_by_role("heading", name="No finding matches")).to_be_visible()
    await page.get_by_role("button", name="Undo (u)").click()
    await is_told(page, "700 findings restored")
    await expect(grid).to_have_attribute("aria-rowcount", "701")
    await grid.focus()

    async def last_is_reached() -> bool:
        await press(page, "End")
        return await grid.locator("[aria-rowindex='701']").is_visible()

    await eventually(last_is_reached, what="the last of 700 findings")


@pytest.mark.soak
async def test_what_has_changed_meanwhile_is_not_judged(server: ServerProcess, owner: Visitor, directory: Path) -> None:
    report(directory, "race", finding(line=4), finding(line=6))
    page, grid = await findings_of(owner, "source=race&status=open")
    await expect(rows_of(grid)).to_have_count(2)
    await grid.focus()
    await page.keyboard.press("Control+a")
    await page.keyboard.press("f")
    dialog = page.get_by_role("dialog", name="Judge 2 findings")
    report(directory, "race", finding(line=4), finding(line=6), finding(line=8, severity="critical"))
    await expect(rows_of(grid)).to_have_count(3)
    await dialog.get_by_role("button", name="Set 2 findings to fixed").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("3 findings match now, not 2")
    await page.keyboard.press("Escape")
    await expect(rows_of(grid)).to_have_count(3)


async def test_the_filter_is_in_the_address_and_the_counts_follow_it(
    server: ServerProcess, owner: Visitor, directory: Path
) -> None:
    low = [finding("web/a.py", "E501", line, severity="low") for line in (1, 2, 3)]
    report(directory, "facets", finding("web/a.py"), *low)
    page, grid = await findings_of(owner, "source=facets")
    group = page.get_by_role("group", name="Severity")
    await group.get_by_role("button", name=re.compile("low 3")).click()
    await expect(page).to_have_url(re.compile("severity=low"))
    await expect(rows_of(grid)).to_have_count(3)
    await expect(page.get_by_role("main").get_by_role("status").first).to_contain_text("3 findings of")
    bar = page.get_by_role("textbox", name="Filter the findings")
    await bar.fill("source:facets rule:S608 line")
    await bar.press("Enter")
    await expect(rows_of(grid)).to_have_count(1)
    await expect(page).to_have_url(re.compile(r"rule=S608&q=line"))
    await page.get_by_role("button", name="Rule").click()
    await page.get_by_role("menuitemcheckbox", name=re.compile("E501 3")).click()
    await page.keyboard.press("Escape")
    await expect(rows_of(grid)).to_have_count(4)
    await page.reload()
    await expect(rows_of(grid)).to_have_count(4)


async def test_a_report_that_another_process_imports_appears_by_itself(
    server: ServerProcess, owner: Visitor, directory: Path
) -> None:
    page, grid = await findings_of(owner, "status=open&sort=path")
    await page.goto(f"{owner.address}/console/findings?source=live")
    await expect(page.get_by_role("heading", name="No finding matches")).to_be_visible()
    report(directory, "live", finding(message="seen at once"))
    await expect(rows_of(grid)).to_have_count(1)
    await expect(rows_of(grid)).to_contain_text("seen at once")


async def test_an_issue_is_made_of_a_finding_and_worked_on(
    server: ServerProcess, owner: Visitor, directory: Path
) -> None:
    report(directory, "issues", finding(message="Rotate the key"))
    page, grid = await findings_of(owner, "source=issues")
    await rows_of(grid).click()
    await press(page, "i")
    await page.get_by_role("button", name="Open the issue").click()
    issue = page.get_by_role("article", name=re.compile("Issue "))
    await expect(issue.get_by_role("heading", level=2)).to_have_text("Rotate the key")
    await expect(issue.get_by_role("link", name="Rotate the key")).to_be_visible()
    await issue.get_by_role("button", name="in progress").click()
    await expect(issue.get_by_role("button", name="in progress")).to_have_attribute("aria-pressed", "true")
    await issue.get_by_label("Comment").fill("done at *noon*")
    await issue.get_by_label("Comment").press("Control+Enter")
    await expect(issue.get_by_role("emphasis")).to_have_text("noon")
    await issue.get_by_label("Path of a file to link").fill("docs/new.md")
    await issue.get_by_role("button", name="Link file").click()
    await issue.get_by_role("button", name="Unlink docs/new.md").click()
    await expect(issue.get_by_role("listitem").filter(has_text="unlinked docs/new.md")).to_be_visible()
    await issue.get_by_role("button", name="Edit").click()
    await issue.get_by_label("Title").fill("Rotate both keys")
    await issue.get_by_label("Labels").fill("security, keys")
    await issue.get_by_role("button", name="Save").click()
    await expect(issue.get_by_role("heading", level=2)).to_have_text("Rotate both keys")
    events = issue.get_by_role("listitem").filter(has_text="owner")
    await expect(events.first).to_contain_text("set the title from Rotate the key to Rotate both keys")
    await expect(events.last).to_contain_text("made the issue from a finding")
    await issue.get_by_role("link", name="Rotate the key").click()
    await expect(page.get_by_role("article", name=re.compile("Finding "))).to_be_visible()


async def test_an_issue_is_created_and_found_by_keys_alone(server: ServerProcess, owner: Visitor) -> None:
    page = await owner.open("/console/findings")
    await expect(page.get_by_role("navigation", name="Findings and issues")).to_be_visible()
    await press(page, "2")
    await expect(page.get_by_role("button", name="New issue").first).to_be_visible()
    await press(page, "n")
    await expect(page.get_by_role("dialog", name="New issue")).to_be_visible()
    await tab_to(page, "Title")
    await page.keyboard.type("Paint the lighthouse")
    await press(page, "Enter")
    issue = page.get_by_role("article", name=re.compile("Issue "))
    await expect(issue.get_by_role("heading", level=2)).to_have_text("Paint the lighthouse")
    await press(page, "/")
    await page.keyboard.type(" lighthouse")
    await press(page, "Enter")
    await expect(rows_of(page.get_by_role("grid", name="List of issues"))).to_have_count(1)


async def test_reports_are_imported_by_the_dialog_and_by_dropping_them(
    server: ServerProcess, owner: Visitor, directory: Path
) -> None:
    def sarif(*lines: int) -> str:
        results = [sarif_result("src/db.py", line=line, level="error") for line in lines]
        elsewhere = sarif_result("/elsewhere/a.py", level="error")
        return json.dumps({"version": "2.1.0", "runs": [sarif_run(*results, elsewhere, tool="Dropped")]})

    page = await owner.open("/console/findings")
    await page.get_by_role("button", name="Import…").click()
    dialog = page.get_by_role("dialog", name="Import a scanner's report")
    file = {"name": "scan.sarif", "mimeType": "application/json", "buffer": sarif(4, 6).encode()}
    await dialog.get_by_label("Report", exact=True).set_input_files([file])  # type: ignore[list-item]
    await dialog.get_by_role("button", name="Import", exact=True).click()
    outcome = dialog.get_by_role("status")
    await expect(outcome).to_contain_text("dropped in 1 file")
    await expect(outcome).to_contain_text("skipped: 1 in files outside the project")
    assert await counts(outcome) == {"opened": "2", "closed": "0"}
    assert await accessibility_faults(page) == []
    await dialog.get_by_role("button", name="Show").click()
    await expect(page).to_have_url(re.compile("source=dropped"))
    await expect(rows_of(page.get_by_role("grid"))).to_have_count(2)

    transfer = await page.evaluate_handle(
        """([good, bad]) => {
          const transfer = new DataTransfer();
          transfer.items.add(new File([good], "again.sarif"));
          transfer.items.add(new File([bad], "broken.sarif"));
          return transfer;
        }""",
        [sarif(4), "<xml>"],
    )
    target = page.get_by_role("grid")
    await target.dispatch_event("dragover", {"dataTransfer": transfer})
    await expect(page.get_by_text("Drop a scanner's report here")).to_be_visible()
    await target.dispatch_event("drop", {"dataTransfer": transfer})
    await expect(dialog.get_by_text("again.sarif, broken.sarif")).to_be_visible()
    await dialog.get_by_role("button", name="Import", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_contain_text("it is not JSON")
    assert await counts(outcome) == {"opened": "0", "closed": "1"}


async def counts(outcome: Locator) -> dict[str, str]:
    """Some of the numbers that the import tells."""
    terms = outcome.locator("dl").first.locator("div")
    found = {await each.locator("dt").inner_text(): await each.locator("dd").inner_text() for each in await terms.all()}
    return {name: found[name] for name in ("opened", "closed")}


async def test_hostile_texts_are_texts(server: ServerProcess, owner: Visitor, directory: Path) -> None:
    report(directory, "hostile", finding("src/<b>&.py", HOSTILE[:150], 4, message=HOSTILE, suggestion=HOSTILE))
    page, grid = await findings_of(owner, "source=hostile")
    await rows_of(grid).click()
    pane = page.get_by_role("article")
    await expect(pane.get_by_role("heading", level=2)).to_have_text(HOSTILE)
    await expect(pane.get_by_role("textbox", name="Code of the finding")).to_contain_text("SELECT")
    await press(page, "i")
    await page.get_by_role("button", name="Open the issue").click()
    issue = page.get_by_role("article", name=re.compile("Issue "))
    await issue.get_by_label("Comment").fill(f"{HOSTILE} [x](javascript:alert(1)) ![y](https://example.com/p.png)")
    await issue.get_by_role("button", name="Comment").click()
    await expect(issue.locator(".has-text")).to_contain_text("<script>")
    assert await page.locator("img, .has-text script, a[href^=javascript]").count() == 0
    assert "ran" not in await page.title()


async def test_whoever_may_only_read_is_told_why(server: ServerProcess, owner: Visitor, directory: Path) -> None:
    report(directory, "reader", finding())
    page = await owner.context.new_page()

    async def reader(route: Route) -> None:
        await route.fulfill(json={"roles": ["read"]})

    await page.route("**/api/registry/roles", reader)
    await page.goto(f"{owner.address}/console/findings?source=reader")
    grid = page.get_by_role("grid", name="List of findings")
    await rows_of(grid).click()
    pane = page.get_by_role("article")
    await expect(pane).to_contain_text("Your groups may not judge findings")
    await expect(pane.get_by_role("button", name=re.compile("False positive"))).to_be_disabled()
    await press(page, "p")
    await is_told(page, "Your groups may not judge findings")
    await page.get_by_role("button", name="Import…").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("Your groups may not report findings")
    await expect(dialog.get_by_label("Report", exact=True)).to_be_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_state_has_a_fault_of_accessibility(
    server: ServerProcess, owner: Visitor, directory: Path, scheme: Any
) -> None:
    severities = ("critical", "high", "medium", "low", "info")
    report(directory, "states", *(finding(line=n + 1, severity=each) for n, each in enumerate(severities)))
    page, grid = await findings_of(owner, "source=states")
    await page.emulate_media(color_scheme=scheme)
    await rows_of(grid).first.click()
    await rows_of(grid).nth(1).get_by_role("checkbox").check()
    await expect(page.get_by_role("textbox", name="Code of the finding")).to_contain_text("SELECT")
    found = {"findings": await accessibility_faults(page)}
    await press(page, "i")
    await page.get_by_role("button", name="Open the issue").click()
    await expect(page.get_by_role("article", name=re.compile("Issue "))).to_contain_text("made the issue")
    found["issue"] = await accessibility_faults(page)

    async def empty(route: Route) -> None:
        facets: dict[str, Any] = {name: [] for name in ("severity", "status", "scan_source", "rule_id", "directory")}
        counts = {"total": 0, "all": 0, "last_scans": [], "read_only": False, **facets}
        await route.fulfill(json=counts if "summary" in route.request.url else {"results": [], "next": None})

    async def failing(route: Route) -> None:
        await route.fulfill(status=409, json={"error": "the registry is damaged", "code": "damaged"})

    for name, answer in {"No findings yet": empty, "the registry is damaged": failing}.items():
        await page.route("**/api/registry/summary*", answer)
        await page.route("**/api/registry/findings/search*", answer)
        await page.goto(f"{owner.address}/console/findings")
        await expect(page.get_by_text(name)).to_be_visible()
        found[name] = await accessibility_faults(page)
    assert {name: faults for name, faults in found.items() if faults} == {}


async def test_everything_fits_into_320_pixels(server: ServerProcess, owner: Visitor, directory: Path) -> None:
    report(directory, "narrow", finding(message="a" * 200), finding("b/" * 60 + "c.py", "R" * 90))
    page, grid = await findings_of(owner, "source=narrow")
    await page.set_viewport_size({"width": 320, "height": 640})
    is_wider = "document.documentElement.scrollWidth > innerWidth"
    for row in range(2):
        assert not await page.evaluate(is_wider)
        await rows_of(grid).nth(row).click()
        await expect(page.get_by_role("article")).to_be_visible()
        assert not await page.evaluate(is_wider)
        assert await accessibility_faults(page) == []
        await page.get_by_role("button", name="Back to Findings").click()
    await page.get_by_role("link", name="Issues").click()
    await expect(page.get_by_role("button", name="New issue").first).to_be_visible()
    assert not await page.evaluate(is_wider)
