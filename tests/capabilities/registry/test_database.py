"""The registry's file: statements, permissions, versions, and errors when it cannot be used."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from armarium.capabilities.registry.errors import Busy, RegistryUnusable, Unwritable, ValidationError
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import FindingFilter, ReportEntry, ScanReport
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.storage import file as registry_file
from armarium.capabilities.registry.storage import files
from armarium.capabilities.registry.storage.database import STATEMENTS, RegistryDatabase
from armarium.capabilities.registry.storage.files import DEFAULT_DIRECTIONS
from armarium.capabilities.registry.values import SortField
from support.registry_calls import ACTOR, all_files, file_at, found, scanned

TABLES = "findings n CROSS JOIN files f ON f.no = n.file_no"
PARTS = {"{tables}": TABLES, "{where}": "TRUE", "{index}": "INDEXED BY files_by_path", "{order}": "path"}


@pytest.fixture
def file(project: Path) -> Path:
    return project / ".armarium" / "registry.sqlite"


def every_statement() -> list[str]:
    made: list[str] = []
    for statement in STATEMENTS.values():
        for part, text in PARTS.items():
            statement = statement.replace(part, text)
        made.append(statement)
    return made


@pytest.mark.parametrize("statement", every_statement())
def test_every_statement_can_be_prepared(tmp_path: Path, statement: str) -> None:
    RegistryDatabase(tmp_path / "registry.sqlite").close()
    connection = sqlite3.connect(tmp_path / "registry.sqlite")
    names = {"path", "file_no", "kind", "limit", "offset", "source", "run", "id", "language", "file_type", "metadata",
             "now", "no", "removed_at", "title", "body", "status", "priority", "labels", "external_ref", "created_at",
             "updated_at", "closed_at", "category", "skip", "issue_no", "before"}  # fmt: skip
    values = [None] * statement.count("?") if "?" in statement else dict.fromkeys(names)
    assert connection.execute(f"EXPLAIN {statement}", values).fetchall()
    connection.close()


@pytest.mark.parametrize("sort", DEFAULT_DIRECTIONS)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_is_found_in_its_index_alone_and_in_its_order(tmp_path: Path, sort: SortField, reverse: bool) -> None:
    RegistryDatabase(tmp_path / "registry.sqlite").close()
    connection = sqlite3.connect(tmp_path / "registry.sqlite")
    order = files.order_by(sort, reverse=reverse, few=False)
    plan = connection.execute(
        f"EXPLAIN QUERY PLAN SELECT no FROM files INDEXED BY files_by_{sort} "
        "WHERE removed_at IS NULL AND language = 'x' AND open_findings > 1 AND open_low > 0 AND instr(sources, 'x') "
        f"ORDER BY {order} LIMIT 9"
    ).fetchall()
    connection.close()
    details = " ".join(row[3] for row in plan)
    assert f"USING COVERING INDEX files_by_{sort}" in details
    assert "TEMP B-TREE" not in details


async def test_the_file_belongs_to_its_owner_alone_and_not_to_git(registry: Registry, file: Path) -> None:
    await registry.register_file("a.py", ACTOR)
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in file.parent.glob("registry.sqlite*")} == {0o600}
    assert (file.parent / ".gitignore").read_text() == "*\n"


async def test_records_survive_closing_and_opening_again(project: Path) -> None:
    async with open_registry(project) as registry:
        await scanned(registry, found("a.py"))
        before = await file_at(registry, "a.py")
    async with open_registry(project) as registry:
        assert await file_at(registry, "a.py") == before


async def test_a_registry_that_others_are_writing_is_busy_and_worth_another_try(project: Path, file: Path) -> None:
    async with open_registry(project, busy_timeout_s=0.01) as registry:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy) as refused:
            await registry.register_file("a.py", ACTOR)
        assert (refused.value.code, refused.value.retryable) == ("busy", True)
        assert (await registry.list_issues())["total"] == 0
        other.execute("ROLLBACK")
        other.close()
        assert (await registry.register_file("a.py", ACTOR))["path"] == "a.py"


async def test_a_registry_deleted_under_a_running_server_begins_again_and_loses_nothing_more(
    project: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_registry(project, "tower") as registry:
        await scanned(registry, found("a.py"))
        shutil.rmtree(file.parent)
        made = await registry.register_file("b.py", ACTOR)
        assert made["id"].startswith("tower-f-")
        assert [each["path"] for each in await all_files(registry)] == ["b.py"]
        assert "deleted or replaced" in caplog.text
        file.unlink()
        assert await all_files(registry) == []
        await registry.register_file("c.py", ACTOR)
    async with open_registry(project) as registry:
        assert [each["path"] for each in await all_files(registry)] == ["c.py"]
        assert (await registry.register_file("d.py", ACTOR))["id"].startswith("tower-f-")


async def test_a_change_is_not_written_into_a_registry_that_is_deleted_meanwhile(project: Path, file: Path) -> None:
    def deleting() -> Iterator[ReportEntry]:
        yield found("a.py")
        shutil.rmtree(file.parent)

    async with open_registry(project) as registry:
        with pytest.raises(Busy):
            await registry.scan(ScanReport("ruff", deleting()), ACTOR)
        assert not file.exists()
        assert (await scanned(registry, found("a.py")))["findings_created"] == 1
        assert [each["path"] for each in await all_files(registry)] == ["a.py"]


async def test_a_deleted_project_is_reported_and_not_created_again(project: Path) -> None:
    async with open_registry(project) as registry:
        shutil.rmtree(project)
        with pytest.raises(Unwritable):
            await registry.register_file("a.py", ACTOR)
        with pytest.raises(Unwritable):
            await registry.list_issues()
    assert not project.exists()


async def test_a_registry_opened_for_reading_changes_nothing_and_refuses_changes(project: Path, file: Path) -> None:
    async with open_registry(project) as registry:
        await scanned(registry, found("a.py"))
    before = file.read_bytes()
    async with open_registry(project, "other", read_only=True) as registry:
        assert [each["path"] for each in await all_files(registry)] == ["a.py"]
        with pytest.raises(Unwritable):
            await registry.register_file("b.py", ACTOR)
    assert file.read_bytes() == before


async def test_where_nothing_can_be_written_beside_it_a_registry_is_read_as_it_is(
    project: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_registry(project) as registry:
        await scanned(registry, found("a.py"))
    # As on a read-only disk, SQLite cannot make the index that it wants beside the file.
    file.with_name("registry.sqlite-shm").mkdir()
    monkeypatch.setattr("armarium.capabilities.registry.lifespan.is_writable", lambda file: False)
    async with open_registry(project) as registry:
        assert [each["path"] for each in await all_files(registry)] == ["a.py"]


async def test_a_full_disk_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_registry(project) as registry:
        monkeypatch.setattr(registry_file.sqlite, "is_disk_full", lambda directory: True)

        def failing(self: RegistryDatabase, *arguments: object) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

        monkeypatch.setattr("armarium.capabilities.registry.storage.database.Writer.many", failing)
        with pytest.raises(Unwritable, match="the disk is full"):
            await scanned(registry, found("a.py"))


def make_older(file: Path, version: int) -> None:
    """As earlier programs made it."""
    older = sqlite3.connect(file)
    for kind, name in (
        ("INDEX", "findings_by_severity"),
        ("INDEX", "findings_of_issue"),
        ("TRIGGER", "association_uncounted"),
        ("TABLE", "scans"),
        ("TABLE", "judgements"),
        ("TABLE", "issue_events"),
    ):
        older.execute(f"DROP {kind} {name}")
    for table, column in (
        ("findings", "suppressed"),
        ("findings", "category"),
        ("findings", "context"),
        ("files", "sketch"),
    ):
        older.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    if version == 1:
        make_first(older)
    older.execute(f"PRAGMA user_version = {version}")
    older.commit()
    older.close()


def make_first(older: sqlite3.Connection) -> None:
    for name in ("path", "language", "updated_at", "first_seen"):
        older.execute(f"DROP INDEX files_by_{name}")
        older.execute(f"CREATE INDEX files_by_{name} ON files ({name}, path, no)")
    older.execute("DROP INDEX files_at")


@pytest.mark.parametrize("version", [1, 2])
async def test_a_registry_of_an_earlier_version_becomes_one_of_ours(project: Path, file: Path, version: int) -> None:
    async with open_registry(project) as registry:
        await scanned(registry, found("a.py"))
        [before] = (await registry.list_findings())["results"]
        issue = (await registry.promote_finding(before["id"], ACTOR))["issue"]
    make_older(file, version)
    as_it_was = file.read_bytes()
    async with open_registry(project, read_only=True) as registry:
        [record] = await all_files(registry)
        detail = await registry.get_file(record["id"])
        assert [each["id"] for each in detail["recent_findings"]] == [before["id"]]
        assert detail["recent_findings"] == (await registry.list_findings())["results"]
        assert (await registry.timeline(record["id"]))["total"] == 3
        assert [each["file_path"] for each in await registry.issue_files(issue["id"])] == ["a.py"]
        assert (await registry.list_issues())["results"] == [issue]
        assert (await registry.search_issues())["results"] == [issue]
        assert (await registry.issue_timeline(issue["id"]))["results"] == []
        assert (await registry.search_findings(FindingFilter()))["results"] == detail["recent_findings"]
        assert (await registry.summarise_findings(FindingFilter()))["last_scans"] == []
    assert file.read_bytes() == as_it_was
    async with open_registry(project) as registry:
        assert await all_files(registry) == [record]
        assert (await scanned(registry, found("a.py", suppressed=True)))["findings_updated"] == 1
    made = sqlite3.connect(file)
    assert made.execute("PRAGMA user_version").fetchone() == (5,)
    [(listing,)] = made.execute("SELECT sql FROM sqlite_master WHERE name = 'files_by_updated_at'").fetchall()
    made.close()
    assert "WHERE removed_at IS NULL" in listing


async def test_decisions_made_in_an_earlier_version_are_recovered_from_the_timeline(project: Path, file: Path) -> None:
    rules = ("begun suppressed", "suppressed later", "judged", "judged after a scan", "suppressed after a judgement")
    async with open_registry(project) as registry:
        await scanned(registry, *(found("a.py", rule, suppressed=rule == rules[0]) for rule in rules))
        ids = {finding["rule_id"]: finding["id"] for finding in (await registry.list_findings())["results"]}
        for rule in rules[2:]:
            await registry.update_finding(ids[rule], "false_positive", ACTOR)
        await registry.update_finding(ids[rules[4]], "open", ACTOR)
        await registry.promote_finding(ids[rules[1]], ACTOR)
        await scanned(registry, *(found("a.py", rule, suppressed=True) for rule in rules))
    make_older(file, 2)
    async with open_registry(project) as registry:
        assert (await registry.list_findings(status="false_positive"))["total"] == 5
        await scanned(registry, *(found("a.py", rule) for rule in rules))
        stays = {finding["rule_id"] for finding in (await registry.list_findings(status="false_positive"))["results"]}
    assert stays == {rules[2], rules[3]}


async def test_readers_do_not_wait_for_a_writer(registry: Registry, file: Path) -> None:
    other = sqlite3.connect(file)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()


async def test_an_unpaired_surrogate_is_an_invalid_argument_also_without_a_client(registry: Registry) -> None:
    with pytest.raises(ValidationError):
        await registry.register_file("a.py", ACTOR, language="\ud800")


async def test_a_project_does_not_choose_where_the_registry_is_written(project: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (project / ".armarium").symlink_to(elsewhere)
    with pytest.raises(RegistryUnusable):
        async with open_registry(project):
            pass
    assert list(elsewhere.iterdir()) == []


async def test_every_process_uses_the_stored_prefix_of_ids(project: Path) -> None:
    async with open_registry(project, "tower") as registry:
        first = await registry.register_file("a.py", "keeper")
    async with open_registry(project) as registry:
        second = await registry.register_file("b.py", "keeper")
    assert first["id"].startswith("tower-f-")
    assert second["id"].startswith("tower-f-")
