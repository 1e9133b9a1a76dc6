"""Whenever the process is killed, the next one opens the state and ends with the same index as without the kill."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.client import connected
from support.corpus import CorpusProcess

TOPICS = ["harbour", "lighthouse", "rigging", "compass", "tide", "anchor", "galley", "chart", "beacon", "keel"]
QUERIES = ["how is the anchor of the harbour used", "beacon and chart", "galley rules on the keel", "compass tide"]

IndexableChunk = tuple[str, int, str, str, str, int, int]


def write_files(directory: Path, count: int) -> None:
    """Files that all differ, and are about things that can be asked for."""
    chance = random.Random(7)
    directory.mkdir()
    for number in range(count):
        first, second, third = chance.sample(TOPICS, 3)
        (directory / f"{number:04d}-{first}.md").write_text(
            f"# The {first}, number {number}\n\nEvery {first} has a {second} of its own; rule {number} says why.\n\n"
            f"## On the {third}\n\nNobody leaves the {third} without a {first} in reach. Case {number * 17}.\n"
        )


def chunks(state_dir: Path) -> set[IndexableChunk]:
    """Every live chunk with its place, and whether it is embedded."""
    database = sqlite3.connect(state_dir / "meta.sqlite")
    try:
        return set(
            database.execute(
                """SELECT rel_path, ordinal, text, context, embedding_status, start, "end" FROM chunks
                JOIN representations USING (rep_id) JOIN documents USING (doc_id) JOIN spans USING (chunk_id)
                WHERE chunks.deleted = 0 AND documents.deleted = 0"""
            )
        )
    finally:
        database.close()


def embeddings(state_dir: Path) -> int:
    """How many texts were ever embedded."""
    with closing(sqlite3.connect(state_dir / "meta.sqlite")) as database:
        count: tuple[int] = database.execute("SELECT count(*) FROM embeddings").fetchone()
        return count[0]


async def best_hits(process: CorpusProcess) -> list[set[tuple[str, int]]]:
    """What each query finds first."""
    found: list[set[tuple[str, int]]] = []
    async with connected(process.url, key=process.token) as client:
        for query in QUERIES:
            result = await client.result("dir2mcp.search", {"query": query, "k": 3})
            hits: list[dict[str, Any]] = (result.structured_content or {})["hits"]
            found.append({(hit["rel_path"], hit["span"]["start_line"]) for hit in hits})
    return found


async def killed_again_and_again(tmp_path: Path, *, files: int, kills: int) -> None:
    write_files(tmp_path / "undisturbed", files)
    write_files(tmp_path / "disturbed", files)
    with CorpusProcess(tmp_path / "undisturbed") as process:
        process.wait_until_indexed()
        expected_hits = await best_hits(process)
    expected = chunks(tmp_path / "undisturbed/.dir2mcp")
    assert len(expected) >= files
    assert {status for _, _, _, _, status, _, _ in expected} == {"ok"}
    chance = random.Random(11)
    for _ in range(kills):
        process = CorpusProcess(tmp_path / "disturbed")
        time.sleep(chance.uniform(0.0, 2.5))
        process.kill()
    with CorpusProcess(tmp_path / "disturbed") as process:
        process.wait_until_indexed()
        assert await best_hits(process) == expected_hits
    assert chunks(tmp_path / "disturbed/.dir2mcp") == expected


@pytest.mark.timeout(300)
async def test_a_killed_server_resumes_and_finds_the_same(tmp_path: Path) -> None:
    await killed_again_and_again(tmp_path, files=150, kills=5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_fifty_kills_at_random_points_lose_nothing(tmp_path: Path) -> None:
    await killed_again_and_again(tmp_path, files=600, kills=50)


@pytest.mark.parametrize("damage", ["removed", "truncated", "garbled"])
@pytest.mark.timeout(180)
async def test_indexes_that_are_lost_or_damaged_are_rebuilt(tmp_path: Path, damage: str) -> None:
    write_files(tmp_path / "files", 20)
    with CorpusProcess(tmp_path / "files") as process:
        process.wait_until_indexed()
        expected = await best_hits(process)
    state = tmp_path / "files/.dir2mcp"
    embedded = embeddings(state)
    damaged = [state / "vectors_text.hnsw", *(file for file in (state / "words").iterdir() if file.is_file())]
    for file in damaged:
        if damage == "removed":
            file.unlink()
        elif damage == "truncated":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        else:
            file.write_bytes(bytes(byte ^ 0x5A for byte in file.read_bytes()))
    with CorpusProcess(tmp_path / "files") as process:
        process.wait_until_indexed()
        assert await best_hits(process) == expected
    # Made again from what is stored, not by asking the model again.
    assert embeddings(state) == embedded
