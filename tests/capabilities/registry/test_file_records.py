"""File records: moves, removals, languages, limits and lookup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.registry.changes.file_records import language_of
from armarium.capabilities.registry.errors import NotFound, ValidationError
from armarium.capabilities.registry.service import Registry
from support.registry_calls import ACTOR, all_files, file_at, found, is_removed, scanned, skipped, summary


async def test_a_renamed_file_keeps_id_findings_and_history(registry: Registry) -> None:
    await scanned(registry, found("old/a.py"), found("old/deep/b.py"), found("older/c.py"))
    before = await file_at(registry, "old/a.py")
    assert await registry.record_moved("old", "new", ACTOR) == 2
    after = await file_at(registry, "new/a.py")
    assert (after["id"], after["summary"], after["first_seen"]) == (
        before["id"],
        before["summary"],
        before["first_seen"],
    )
    assert [file["path"] for file in await all_files(registry)] == ["new/a.py", "new/deep/b.py", "older/c.py"]
    newest = (await registry.timeline(after["id"]))["results"][0]
    assert newest["type"] == "file_metadata_update"
    assert newest["data"] == {"field": "path", "old_value": "old/a.py", "new_value": "new/a.py", "actor": ACTOR}
    assert (await scanned(registry, found("new/a.py")))["findings_unchanged"] == 1


async def test_moving_a_file_onto_another_preserves_both_records(registry: Registry) -> None:
    await scanned(registry, found("a.py"), found("b.py", "R2"))
    moving, replaced = await file_at(registry, "a.py"), await file_at(registry, "b.py")
    assert await registry.record_moved("a.py", "b.py", ACTOR) == 1
    assert (await file_at(registry, "b.py"))["id"] == moving["id"]
    assert await is_removed(registry, replaced["id"])
    assert (await registry.get_file(replaced["id"]))["summary"] == summary(1, 0)
    assert (await registry.register_file("b.py", ACTOR))["id"] == moving["id"]


async def test_a_removed_file_remains_registered_and_is_restored_with_its_id(registry: Registry) -> None:
    await scanned(registry, found("src/a.py"), found("src/b.py"))
    before = await file_at(registry, "src/a.py")
    assert await registry.record_removed("src", ACTOR) == 2
    assert await registry.record_removed("src", ACTOR) == 0
    assert await all_files(registry) == []
    assert await is_removed(registry, before["id"])
    assert (await registry.get_file(before["id"]))["summary"] == summary(1, 0)
    events = (await registry.timeline(before["id"]))["results"]
    assert [(event["type"], event["data"].get("field")) for event in events[:2]] == [
        ("file_metadata_update", "removed"),
        ("finding_closed", None),
    ]
    await registry.record_changed(["src/a.py", "src/new.py"], ACTOR)
    back = await file_at(registry, "src/a.py")
    assert (back["id"], back["summary"]) == (before["id"], summary(1, 0))
    assert not await is_removed(registry, back["id"])
    assert (await scanned(registry, found("src/a.py")))["findings_reopened"] == 1


async def test_changes_outside_the_project_are_ignored_and_the_others_recorded(
    registry: Registry, project: Path
) -> None:
    (project / "src").mkdir()
    await registry.record_changed(["a.py", "src", "../outside.py", "b.py"], ACTOR)
    assert [file["path"] for file in await all_files(registry)] == ["a.py", "b.py"]


async def test_a_late_report_does_not_bring_back_a_file_that_was_removed(registry: Registry, project: Path) -> None:
    await scanned(registry, found("a.py"))
    gone = await file_at(registry, "a.py")
    await registry.record_removed("a.py", ACTOR)
    late = await scanned(registry, found("a.py"))
    assert (skipped(late), late["findings_reopened"], late["files"]) == ({"file_removed": 1}, 0, 0)
    assert await all_files(registry) == []
    (project / "a.py").write_text("it is back\n")
    back = await scanned(registry, found("a.py"))
    assert (skipped(back), back["findings_reopened"]) == ({}, 1)
    assert (await file_at(registry, "a.py"))["id"] == gone["id"]


async def test_a_renamed_file_gets_the_language_of_its_new_name_unless_one_was_given(registry: Registry) -> None:
    guessed = await registry.register_file("a.py", ACTOR)
    said = await registry.register_file("b.py", ACTOR, language="starlark")
    await registry.record_moved("a.py", "a.go", ACTOR)
    await registry.record_moved("b.py", "b.go", ACTOR)
    assert (await file_at(registry, "a.go"))["language"] == "go"
    assert (await file_at(registry, "b.go"))["language"] == "starlark"
    fields = [event["data"]["field"] for event in (await registry.timeline(guessed["id"]))["results"]]
    assert sorted(fields) == ["language", "path"]
    assert [event["data"]["field"] for event in (await registry.timeline(said["id"]))["results"]] == ["path"]


@pytest.mark.parametrize(
    "more",
    [
        {"language": "x" * 201},
        {"language": "two\nlines"},
        {"file_type": "x" * 201},
        {"file_type": "\x1b[31m"},
        {"metadata": {"x": "y" * 70_000}},
    ],
)
async def test_fields_of_a_file_have_limits(registry: Registry, more: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        await registry.register_file("a.py", ACTOR, **more)
    assert await all_files(registry) == []


async def test_a_file_is_found_by_any_spelling_of_its_path_and_by_its_id(registry: Registry, project: Path) -> None:
    await registry.register_file("src/a.py", ACTOR)
    await registry.record_removed("src/a.py", ACTOR)
    await registry.register_file("b.py", ACTOR)
    await registry.record_moved("b.py", "src/a.py", ACTOR)
    present = await file_at(registry, "src/a.py")
    for name in ("src/a.py", "./src//a.py", f"{project}/src/a.py", (project / "src/a.py").as_uri(), present["id"]):
        assert (await registry.find_file(name))["id"] == present["id"], name
    with pytest.raises(NotFound):
        await registry.find_file("src/b.py")


@pytest.mark.parametrize(
    ("path", "language"),
    [("a.py", "python"), ("x/Dockerfile", "dockerfile"), (".py", ""), ("README", ""), ("a.TSX", "typescript")],
)
def test_languages_are_guessed_from_names(path: str, language: str) -> None:
    assert language_of(path) == language
