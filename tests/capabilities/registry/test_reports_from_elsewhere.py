"""Reports of other machines: their paths are found in the project, or nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from armarium.capabilities.registry.arguments import ImportOptions
from armarium.capabilities.registry.errors import AllSkipped, ValidationError
from armarium.capabilities.registry.model import Scanned, ScanReport
from armarium.capabilities.registry.reports.formats import read_reports
from armarium.capabilities.registry.service import Registry
from support.registry_calls import ACTOR, all_files, skipped
from support.scanner_reports import sarif, sarif_result, sarif_run


@pytest.fixture
def code(project: Path) -> Path:
    """A project with files."""
    for name in ("setup.py", "src/app.py", "src/lib/util.py", "docs/a b.md"):
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("first = 1\nsecond = 2\nthird = 3\n")
    return project


async def imported(registry: Registry, *paths: str, maps: tuple[str, ...] = (), **run: Any) -> Scanned:
    run_of_paths = sarif_run(*(sarif_result(path) for path in paths), **run)
    [scan] = await registry.scan_all(read_reports(sarif(run_of_paths), ImportOptions(paths=(".",), map=maps)), ACTOR)
    return scan


async def paths_of(registry: Registry) -> list[str]:
    return [each["path"] for each in await all_files(registry) if each["summary"]["open_findings"]]


@pytest.mark.parametrize(
    "prefix",
    [
        "file:///builds/p/",
        "/app/",
        "/",
        "file:///C:/agent/_work/1/s/",
        "C:\\agent\\_work\\1\\s\\",
        "file://localhost/builds/x/",
    ],
)
async def test_where_the_project_was_is_detected(registry: Registry, code: Path, prefix: str) -> None:
    await imported(registry, "src/app.py", "src/lib/util.py", "gone.py")
    names = ["src/app.py", "src/lib/util.py", "gone.py"]
    separated = [name.replace("/", "\\") if "\\" in prefix else name for name in names]
    outside = "/usr/lib/python3/setup.py" if prefix != "/" else "../setup.py"
    elsewhere = await imported(registry, *(prefix + name for name in separated), outside)
    assert (elsewhere["findings_unchanged"], elsewhere["findings_created"], elsewhere["findings_closed"]) == (3, 0, 0)
    assert skipped(elsewhere) == {"outside_project": 1}


async def test_paths_that_fit_in_several_ways_are_not_guessed(registry: Registry, code: Path) -> None:
    with pytest.raises(AllSkipped) as refused:
        await imported(registry, "/one/src/app.py", "/two/src/lib/util.py")
    assert refused.value.code == "all_results_skipped"
    with pytest.raises(AllSkipped):
        await imported(registry, "/usr/lib/setup.py", "/usr/lib/other.py", "/usr/lib/third.py")


async def test_a_report_of_which_everything_is_skipped_changes_nothing(registry: Registry, code: Path) -> None:
    await imported(registry, "src/app.py", "src/lib/util.py")
    for odd in ("/etc/passwd", "../x.py", "https://example.org/x.js"):
        with pytest.raises(AllSkipped) as refused:
            await imported(registry, odd)
        assert refused.value.hint
        assert odd not in refused.value.message
    assert await paths_of(registry) == ["src/app.py", "src/lib/util.py"]
    assert (await imported(registry, "src/app.py"))["findings_closed"] == 1


async def test_a_file_that_skipped_results_may_be_about_is_not_cleaned(registry: Registry, code: Path) -> None:
    await imported(registry, "src/app.py", "src/lib/util.py", "setup.py")
    outcome = await imported(registry, "setup.py", "/one/src/app.py", "/two/src/lib/util.py")
    assert skipped(outcome) == {"outside_project": 2}
    assert outcome["findings_closed"] == 0


async def test_a_scanner_whose_results_are_all_skipped_closes_nothing_beside_another(
    registry: Registry, code: Path
) -> None:
    await imported(registry, "src/app.py", tool="One")
    runs = sarif(sarif_run(sarif_result("/etc/x"), tool="One"), sarif_run(sarif_result("setup.py"), tool="Two"))
    one, two = await registry.scan_all(read_reports(runs, ImportOptions(paths=(".",))), ACTOR)
    assert (one["findings_closed"], skipped(one), two["findings_created"]) == (0, {"outside_project": 1}, 1)


async def test_prefixes_are_mapped_to_directories_of_the_project(registry: Registry, code: Path) -> None:
    maps = ("/ci/build=src", "/ci=.", "file:///ci/build/vendor=docs/", "%PROJ%=src/lib")
    mapped = ["/ci/build/app.py", "file:///ci/setup.py", "/ci/build/vendor/a%20b.md".replace("%20", " ")]
    await imported(registry, *mapped, maps=maps)
    assert await paths_of(registry) == ["docs/a b.md", "setup.py", "src/app.py"]
    result = sarif_result("util.py")
    result["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] = "%PROJ%"
    await registry.scan_all(read_reports(sarif(sarif_run(result)), ImportOptions(map=maps)), ACTOR)
    assert "src/lib/util.py" in await paths_of(registry)
    with pytest.raises(AllSkipped):
        await imported(registry, "/ci/x.py", maps=("/ci=../elsewhere",))


@pytest.mark.parametrize("broken", ["", "=", "=src", "src"])
def test_a_mapping_needs_a_prefix_and_a_path(broken: str) -> None:
    with pytest.raises(ValidationError):
        read_reports(sarif(sarif_run(sarif_result())), ImportOptions(map=(broken,)))


@pytest.mark.parametrize("base", ["%SRCROOT%", "SRCROOT", "ROOTPATH"])
async def test_a_declared_source_root_is_the_project_even_without_its_files(registry: Registry, base: str) -> None:
    result = sarif_result("pkg/new.py")
    result["locations"][0]["physicalLocation"]["artifactLocation"]["uriBaseId"] = base
    run = sarif_run(result, originalUriBaseIds={base: {"uri": "file:///builds/p/"}})
    await registry.scan_all(read_reports(sarif(run), ImportOptions(paths=("/builds/p",))), ACTOR)
    assert await paths_of(registry) == ["pkg/new.py"]


async def test_paths_made_to_confuse_lead_nowhere(registry: Registry, code: Path) -> None:
    deep = "/" + "a/" * 3000 + "src/app.py"
    odd = ["/x/../src/app.py", "/x/src/\u2028app.py", "/x/src/app.py/more", deep, "C:", "file:", "file:///"]
    with pytest.raises(AllSkipped):
        await imported(registry, *odd)
    assert await all_files(registry) == []


@pytest.mark.parametrize(
    ("uri", "defined", "maps", "path"),
    [
        ("%SRCROOT%/src/app.py", {}, (), "src/app.py"),
        ("%SRCROOT%/app.py", {"%SRCROOT%": {"uri": "file:///builds/p/"}}, (), "app.py"),
        ("%SRCROOT%/app.py", {}, ("%SRCROOT%=src",), "src/app.py"),
        # A directory of this name is encoded.
        ("%25SRCROOT%25/app.py", {}, (), "%SRCROOT%/app.py"),
    ],
)
async def test_the_name_of_the_source_root_may_be_in_the_address(
    registry: Registry, code: Path, uri: str, defined: dict[str, Any], maps: tuple[str, ...], path: str
) -> None:
    await imported(registry, quote(path))
    again = await imported(registry, uri, maps=maps, originalUriBaseIds=defined)
    assert (again["findings_unchanged"], again["findings_created"], again["findings_closed"]) == (1, 0, 0)
    assert await paths_of(registry) == [path]


async def test_a_source_root_that_is_defined_by_itself_is_the_project(registry: Registry, code: Path) -> None:
    await imported(registry, "%SRCROOT%/src/app.py", originalUriBaseIds={"%SRCROOT%": {"uri": "%SRCROOT%/"}})
    assert await paths_of(registry) == ["src/app.py"]


@pytest.mark.parametrize("uri", [None, "https://example.org/a.py"])
@pytest.mark.parametrize("paths", [(".",), None])
async def test_a_result_without_a_file_keeps_the_findings_of_its_rule_open(
    registry: Registry, code: Path, uri: str | None, paths: tuple[str, ...] | None
) -> None:
    def report(*results: dict[str, Any]) -> list[ScanReport]:
        return read_reports(sarif(sarif_run(*results)), ImportOptions(paths=paths))

    kept = ["E501", "other\u2028" + 300 * "x"]
    same_file = [sarif_result("src/app.py", ruleId=rule, message={"text": rule}) for rule in [*kept, "F401", "E402"]]
    await registry.scan_all(report(*same_file, sarif_result("setup.py", ruleId="E501")), ACTOR)
    placeless = [sarif_result(uri, ruleId=rule) for rule in kept]
    [scan] = await registry.scan_all(report(*placeless, same_file[2]), ACTOR)
    # Only the finding of another rule is known to be gone.
    assert (scan["findings_closed"], scan["findings_created"], scan["findings_unchanged"]) == (1, 0, 1)
    assert sum(each["count"] for each in scan["skipped"]) == 2
    listed = (await registry.list_findings(status="open"))["results"]
    assert sorted((each["file_path"], each["rule_id"][:5]) for each in listed) == [
        ("setup.py", "E501"),
        ("src/app.py", "E501"),
        ("src/app.py", "F401"),
        ("src/app.py", "other"),
    ]
