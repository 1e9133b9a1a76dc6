"""What a project keeps has a limit: files, earlier versions, deleted files and requests, counted exactly. Purging."""

from __future__ import annotations

import asyncio
import random
import secrets
from contextlib import suppress

import asyncpg
import pytest

from armarium.capabilities.store.database.schema import migrations
from armarium.capabilities.store.database.transactions import StoreDatabase
from armarium.capabilities.store.errors import ResourceBusy
from armarium.capabilities.store.files import writes
from armarium.capabilities.store.index.embedders import StoreModels
from armarium.capabilities.store.index.file_index import FileIndex
from armarium.capabilities.store.index.maintenance import Maintenance
from armarium.capabilities.store.model import Scope
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS
from support.postgres import running_postgres
from support.store_calls import Files
from support.stored_files import WordVectors, index_file

TABLES = (
    "mcp_files", "mcp_file_versions", "mcp_file_chunks", "mcp_file_chunk_embeddings", "mcp_file_chunk_bm25",
    "mcp_file_indexed", "mcp_file_index_jobs", "mcp_file_requests",
)  # fmt: skip


async def counted_and_kept(files: Files, project: str = "p") -> tuple[int, int]:
    """The counter of what a project keeps besides its files, and the sum it must equal."""
    [row] = await files.rows(
        """
        SELECT
            coalesce((SELECT kept_bytes FROM mcp_file_projects WHERE apikey_hash = $1 AND project = $2), 0) AS counted,
            (SELECT coalesce(sum(size), 0) FROM mcp_file_versions WHERE apikey_hash = $1 AND project = $2)
            + (SELECT coalesce(sum(size), 0) FROM mcp_files WHERE apikey_hash = $1 AND project = $2 AND deleted)
            + (SELECT 256 * count(*) FROM mcp_file_requests WHERE apikey_hash = $1 AND project = $2) AS kept
        """,
        files.tenant,
        project,
    )
    return row["counted"], row["kept"]


async def rows_of(files: Files) -> dict[str, int]:
    return {table: len(await files.rows(f"SELECT FROM {table}")) for table in TABLES}


@pytest.mark.contract("S8.3-3")
async def test_earlier_versions_and_deleted_files_count(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_project_bytes": 30})
    await files.put("/a", content="x" * 10)
    await files.put("/a", content="y" * 10)
    assert await files.code("write", path="/b", content="z" * 11) == "QUOTA_EXCEEDED"
    await files.ok("write", path="/b", content="z" * 10)
    assert await files.code("write", path="/c", content="1") == "QUOTA_EXCEEDED"
    await files.ok("delete", path="/b")
    assert await files.code("write", path="/c", content="1") == "QUOTA_EXCEEDED"


async def test_the_refusal_says_how_much_is_kept_and_how_to_make_room(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_project_bytes": 30})
    await files.put("/a", content="x" * 10)
    await files.put("/a", content="y" * 12)
    refused = await files.result("write", path="/b", content="z" * 9)
    assert refused["structuredContent"]["code"] == "QUOTA_EXCEEDED"
    assert not refused["structuredContent"]["retryable"]
    for number in ("at most 30 bytes", "12 bytes of files", "10 of earlier versions"):
        assert number in refused["structuredContent"]["message"]
    assert "file_purge" in refused["content"][0]["text"]


async def test_a_version_that_a_write_removes_makes_room_for_it(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_project_bytes": 20, "history": {"versions": 1}})
    for content in "abcdef":
        await files.put("/a", content=content * 10)
    assert await files.code("write", path="/a", content="1") == "QUOTA_EXCEEDED"
    assert await counted_and_kept(files) == (10, 10)


async def test_without_versions_a_file_can_be_replaced_in_a_full_project(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant, {"max_project_bytes": 10, "history": {"versions": 0}})
    for content in "abc":
        await files.put("/a", content=content * 10)
    await files.ok("delete", path="/a")
    assert await counted_and_kept(files) == (10, 10)


async def test_a_project_over_a_new_quota_can_be_read_deleted_and_purged_and_then_written(
    database: StoreDatabase, tenant: str
) -> None:
    before = Files(database, tenant)
    for content in "abc":
        await before.put("/a", "/b", content=content * 10)
    files = Files(database, tenant, {"max_project_bytes": 30})
    assert await files.code("write", path="/a", content="x", mode="TRUNCATE") == "QUOTA_EXCEEDED"
    assert await files.code("restore", path="/a", version=1) == "QUOTA_EXCEEDED"
    assert await files.text("/a") == "c" * 10
    await files.ok("rename", from_path="/b", to_path="/c")
    await files.ok("delete", path="/c")
    assert await files.ok("purge", path="/a") == {"purged_files": 0, "purged_versions": 2, "purged_bytes": 20}
    assert await files.code("write", path="/d", content="x") == "QUOTA_EXCEEDED"
    assert await files.ok("purge", path="") == {"purged_files": 1, "purged_versions": 3, "purged_bytes": 40}
    await files.ok("write", path="/d", content="x" * 20)
    assert await files.text("/a") == "c" * 10


async def test_a_purge_leaves_nothing_of_a_deleted_file(database: StoreDatabase, tenant: str) -> None:
    files, other = Files(database, tenant), Files(database, secrets.token_hex(32))
    index = FileIndex(database, StoreModels(local=WordVectors()))
    for each in (files, other):
        for content in ("one lantern", "two lanterns"):
            await each.put("/d/a", "/d-e", content=content)
        for path in ("/d/a", "/d-e"):
            await index_file(index, Scope(each.tenant, "p"), path)
    before = await rows_of(other)
    assert min(before[table] for table in TABLES[:-1]) > 0
    await files.ok("delete", path="/d", recursive=True)
    assert await files.ok("purge", path="/d") == {"purged_files": 1, "purged_versions": 2, "purged_bytes": 35}
    for table, column in (("mcp_files", "path"), ("mcp_file_versions", "path"), ("mcp_file_chunks", "file_path"),
                          ("mcp_file_index_jobs", "file_path")):  # fmt: skip
        assert {row[column] for row in await files.rows(f"SELECT {column} FROM {table}")} == {"/d-e"}, table
    assert await files.text("/d-e") == "two lanterns"
    assert await files.code("history", path="/d/a") == "NOT_FOUND"
    assert await rows_of(other) == before
    assert await files.ok("purge", path="/d") == {"purged_files": 0, "purged_versions": 0, "purged_bytes": 0}


async def test_a_purge_leaves_jobs_of_current_files_and_of_renames(database: StoreDatabase, tenant: str) -> None:
    files = Files(database, tenant)
    await files.put("/a/b")
    await files.ok("rename", from_path="/a", to_path="/c")
    await files.put("/d")
    await files.ok("delete", path="/d")
    await files.ok("purge", path="")
    assert [job[:2] for job in await files.jobs()] == [("MOVE", "/c")]


async def test_of_a_purged_project_no_row_stays_and_no_version_comes_twice(
    database: StoreDatabase, tenant: str
) -> None:
    files = Files(database, tenant, {"allow_root_wipe": True})
    await files.ok("write", path="/a", content="x", request_id="first")
    for content in "abc":
        await files.put("/a", content=content)
    last = (await files.ok("stat", path="/a"))["version"]
    await files.ok("delete", path="", recursive=True)
    await files.ok("purge", path="")
    assert set((await rows_of(files)).values()) == {0}
    assert await files.rows("SELECT FROM mcp_file_projects WHERE project = 'p'") == []
    assert (await files.ok("write", path="/a", content="x"))["version"] > last
    assert (await files.ok("write", project="another", path="/a", content="x"))["version"] > last


async def test_a_purge_goes_on_after_a_batch(
    database: StoreDatabase, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "ROWS_AT_ONCE", 2)
    files = Files(database, tenant)
    for content in "ab":
        await files.put(*(f"/{number}" for number in range(5)), content=content)
    for number in range(5):
        await files.ok("delete", path=f"/{number}")
    assert await files.ok("purge", path="") == {"purged_files": 5, "purged_versions": 10, "purged_bytes": 15}


@pytest.mark.parametrize("path", ["a", "/a/", "/../a", "//"])
async def test_a_purge_wants_a_path(database: StoreDatabase, tenant: str, path: str) -> None:
    assert await Files(database, tenant).code("purge", path=path) == "INVALID_PATH"


async def test_the_counter_is_right_after_any_changes_at_once(database: StoreDatabase, tenant: str) -> None:
    limits = {"max_project_bytes": 3000, "history": {"versions": 2}, "lock_timeout_ms": 60_000}
    slow = StoreDatabase(database.pool, lock_timeout_ms=60_000, on_lock_wait=lambda seconds: None)
    callers = [Files(slow, tenant, limits) for _ in range(4)]
    maintenance = Maintenance(slow, delete_retention_days=0, history_days=0, batch=3)
    paths = ["/a", "/b", "/d/1", "/d/2", "/d/e/3"]

    async def change(files: Files, chance: random.Random) -> None:
        for number in range(60):
            path, other = chance.choice([*paths, "/d"]), chance.choice([*paths, "/f", "/g/d"])
            content, mode = "ä" * chance.randrange(200), chance.choice(["APPEND", "TRUNCATE"])
            named = {"request_id": secrets.token_hex(8)} if number % 7 == 0 else {}
            match chance.randrange(7):
                case 0:
                    await files.result("delete", path=path, recursive=True, **named)
                case 1:
                    await files.result("rename", from_path=path, to_path=other, overwrite=True, **named)
                case 2:
                    await files.result("restore", path=path, version=chance.randrange(1, 200), **named)
                case 3:
                    await files.result("purge", path=chance.choice(["", "/d", path]))
                case 4:
                    with suppress(ResourceBusy, asyncpg.PostgresError):
                        await maintenance.run_once()
                case _:
                    await files.result("write", path=path, content=content, mode=mode, **named)

    await asyncio.gather(*(change(files, random.Random(seed)) for seed, files in enumerate(callers)))
    counted, real = await callers[0].counted_and_real_bytes()
    assert counted == real
    counted, kept = await counted_and_kept(callers[0])
    assert counted == kept
    codes = {code for files in callers for _, code in files.mutations}
    assert {"ok", "QUOTA_EXCEEDED", "NOT_FOUND"} <= codes
    # RESOURCE_BUSY: maintenance without any retention is in the way of changes, and PostgreSQL ends one of them.
    assert "INTERNAL" not in codes


async def test_a_caller_has_so_many_projects_however_many_are_begun_at_once(
    database: StoreDatabase, tenant: str
) -> None:
    files = Files(database, tenant, {"max_projects": 5})
    started = [files.result("write", project=f"p{number}", path="/a", content="") for number in range(12)]
    codes = [result["structuredContent"].get("code", "ok") for result in await asyncio.gather(*started)]
    assert (codes.count("ok"), codes.count("QUOTA_EXCEEDED")) == (5, 7)
    [known, *_] = [f"p{number}" for number, code in enumerate(codes) if code == "ok"]
    await files.ok("write", project=known, path="/b", content="x")
    refused = await files.result("write", project="more", path="/a", content="x")
    assert "at most 5 projects" in refused["structuredContent"]["message"]
    await files.ok("delete", project=known, path="/b")
    await files.ok("delete", project=known, path="/a")
    await files.ok("purge", project=known, path="")
    await files.ok("write", project="more", path="/a", content="x")
    await Files(database, secrets.token_hex(32), {"max_projects": 5}).put("/a")


def test_what_earlier_releases_kept_is_counted_when_the_schema_is_brought_up_to_date() -> None:
    with running_postgres() as dsn:
        asyncio.run(brought_up_to_date(dsn))


async def brought_up_to_date(dsn: str) -> None:
    earlier = [sql for number, _, sql in migrations() if number < 17]
    [counting] = [sql for number, _, sql in migrations() if number == 17]
    connection = await asyncpg.connect(dsn)
    for sql in earlier:
        await connection.execute(sql.replace("{dimensions}", str(LOCAL_DIMENSIONS)))
    await connection.execute("SET armarium.tenant = '*'")
    tenant = secrets.token_hex(32)
    await connection.execute(f"""
        INSERT INTO mcp_file_projects VALUES ('{tenant}', 'p', 4, 9), ('{tenant}', 'q', 0, 1);
        INSERT INTO mcp_files (apikey_hash, project, path, content, size, deleted, version)
        VALUES ('{tenant}', 'p', '/a', 'text', 4, FALSE, 9), ('{tenant}', 'p', '/b', 'gone!', 5, TRUE, 8);
        INSERT INTO mcp_file_versions (apikey_hash, project, path, version, content, size, written_at)
        VALUES ('{tenant}', 'p', '/a', 7, 'old', 3, now());
        INSERT INTO mcp_file_requests VALUES ('{tenant}', 'p', 'r', repeat('0', 64), '{{}}');
    """)
    await connection.execute("RESET armarium.tenant")
    await connection.execute(counting)
    await connection.execute("SET armarium.tenant = '*'")
    rows = await connection.fetch("SELECT project, bytes, kept_bytes FROM mcp_file_projects ORDER BY project")
    assert [tuple(row) for row in rows] == [("p", 4, 5 + 3 + 256), ("q", 0, 0)]
    # A release that still runs calls the function with its own sixteen arguments.
    [row] = await connection.fetch(
        "SELECT refusal, version, size, waited_s FROM mcp_file_write($1, 'p', '/n', '{}', 'new', 'APPEND', 0, FALSE,"
        " NULL, 100, 10000, 20, TRUE, NULL, 1, 1000)",
        tenant,
    )
    assert (row["refusal"], row["version"], row["size"]) == (None, 10, 3)
    await connection.close()
