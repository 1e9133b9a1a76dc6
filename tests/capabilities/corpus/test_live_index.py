"""The index follows edits, deletions and renames in the directory while the server runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from pathlib import Path

import pytest

from support.client import connected
from support.corpus import CorpusProcess
from support.corpus_calls import listed, paths_found, until_found

DEADLINE_S = 30.0


@pytest.fixture
def live(tmp_path: Path) -> Generator[CorpusProcess]:
    (tmp_path / "root/old").mkdir(parents=True)
    (tmp_path / "root/old/a.md").write_text("# Apples\n\nApples are picked in October.\n")
    (tmp_path / "root/b.md").write_text("# Bees\n\nBees sleep in winter.\n")
    with CorpusProcess(tmp_path / "root") as process:
        process.wait_until_indexed()
        yield process


def embeddings(process: CorpusProcess) -> int:
    database = sqlite3.connect(process.state_dir / "meta.sqlite")
    try:
        count: tuple[int] = database.execute("SELECT count(*) FROM embeddings").fetchone()
        return count[0]
    finally:
        database.close()


async def test_an_edit_is_found_and_what_it_replaced_is_not(live: CorpusProcess) -> None:
    async with connected(live.url, key=live.token) as client:
        (live.directory / "b.md").write_text("# Bees\n\nBees dance on clover.\n")
        await until_found(client, "clover", ["b.md"])
        assert await paths_found(client, "winter") == []


async def test_a_new_file_in_a_new_directory_is_found(live: CorpusProcess) -> None:
    async with connected(live.url, key=live.token) as client:
        (live.directory / "new/deep").mkdir(parents=True)
        (live.directory / "new/deep/c.md").write_text("Cherries are red.\n")
        await until_found(client, "Cherries", ["new/deep/c.md"])


async def test_a_deleted_file_disappears_and_a_deleted_directory_with_all_in_it(live: CorpusProcess) -> None:
    async with connected(live.url, key=live.token) as client:
        (live.directory / "b.md").unlink()
        await until_found(client, "winter", [])
        (live.directory / "old/a.md").unlink()
        (live.directory / "old").rmdir()
        await until_found(client, "October", [])
        assert await listed(client) == []


async def test_a_rename_moves_the_document_and_embeds_nothing_again(live: CorpusProcess) -> None:
    before = embeddings(live)
    async with connected(live.url, key=live.token) as client:
        (live.directory / "old").rename(live.directory / "renamed")
        await until_found(client, "October", ["renamed/a.md"])
        assert await listed(client) == ["b.md", "renamed/a.md"]
    assert embeddings(live) == before


async def test_a_file_written_again_with_the_same_content_is_left_alone(live: CorpusProcess) -> None:
    before = embeddings(live)
    seen = len(live.events)
    content = (live.directory / "b.md").read_text()
    (live.directory / "b.md").write_text(content)
    (live.directory / "marker.md").write_text("A marker that comes after it.\n")
    async with connected(live.url, key=live.token) as client:
        await until_found(client, "marker", ["marker.md"])
    counts = live.wait_for("scan_progress", lambda data: not data["running"], since=seen)["data"]
    assert embeddings(live) == before + 1
    assert counts["embedded_ok"] == counts["chunks_total"] == 3


async def test_what_a_new_gitignore_hides_disappears(live: CorpusProcess) -> None:
    async with connected(live.url, key=live.token) as client:
        (live.directory / ".gitignore").write_text("old/\n")
        await until_found(client, "October", [])


async def test_a_secret_that_is_written_into_a_file_takes_the_file_out(live: CorpusProcess) -> None:
    async with connected(live.url, key=live.token) as client:
        (live.directory / "b.md").write_text(
            "winter\naws_secret_access_key = " + "wJalrXUtnFEMI" + "/K7MDENGbPxRfiCYzzzzzzKEY\n"
        )
        await until_found(client, "winter", [])
        files = await client.result("dir2mcp.list_files", {"glob": "b.md"})
        assert (files.structured_content or {})["files"][0]["status"] == "skipped"


async def test_what_is_unchanged_since_the_last_start_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Alders grow by rivers.\n")
    with CorpusProcess(tmp_path) as process:
        assert process.wait_until_indexed()["indexed"] == 1
    (tmp_path / "b.md").write_text("Birches are white.\n")
    with CorpusProcess(tmp_path) as process:
        counts = process.wait_until_indexed()
    assert (counts["scanned"], counts["indexed"], counts["skipped"]) == (2, 1, 1)


async def test_a_start_forgets_what_was_deleted_once_it_is_most_of_the_index(tmp_path: Path) -> None:
    for version in ("first", "second", "third"):
        for number in range(5):
            (tmp_path / f"{number}.md").write_text(f"The {version} text of page {number} is about {version} things.\n")
        with CorpusProcess(tmp_path) as process:
            process.wait_until_indexed()
    database = sqlite3.connect(tmp_path / ".dir2mcp/meta.sqlite")
    assert database.execute("SELECT count(*) FROM chunks WHERE deleted = 1").fetchone() == (10,)
    with CorpusProcess(tmp_path) as process:
        process.wait_until_indexed()
        async with connected(process.url, key=process.token) as client:
            assert sorted(await paths_found(client, "third")) == [f"{number}.md" for number in range(5)]
    assert database.execute("SELECT count(*), sum(deleted) FROM chunks").fetchone() == (5, 0)
    assert database.execute("SELECT count(*) FROM embeddings").fetchone() == (5,)
    database.close()
