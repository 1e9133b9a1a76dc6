"""`meta.sqlite`: changes are atomic, and chunks that do not change keep their ids."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.corpus.errors import IndexVersionMismatch, IngestionFailed, StoreCorrupt
from armarium.capabilities.corpus.storage import database
from armarium.capabilities.corpus.storage.database import SQL
from armarium.capabilities.corpus.storage.prepared import Prepared, PreparedChunk, Representation
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.sql import queries
from armarium.foundation.sqlite import Mode, connect
from armarium.retrieval.spans import LineSpan


@pytest.fixture
def storage(tmp_path: Path):
    opened = Storage(tmp_path / "meta.sqlite")
    yield opened
    opened.close()


def chunk(text: str, line: int = 1) -> PreparedChunk:
    digest = blake2b(text.encode(), digest_size=16).digest()
    return PreparedChunk(text, "", digest, "text", "lines", line, line)


def document(rel_path: str, *texts: str, **facts: object) -> Prepared:
    chunks = [chunk(text, line) for line, text in enumerate(texts, 1)]
    representation = Representation("raw_text", "\0".join(texts), chunks, {"title": None})
    prepared = Prepared(rel_path, "md", 10, 5_000_000_000, "hash", "ok", representations=[representation])
    return replace(prepared, **facts)


def record(storage: Storage, prepared: Prepared):
    with storage.documents.changing() as changes:
        return changes.record(prepared)


def test_every_statement_fits_the_schema(storage: Storage, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "meta.sqlite")
    for name, statement in queries(SQL).items():
        holes = {"prefix": "", "limit": 1, "offset": 0, "model": "", "kind": "", "state": "", "after": ""}
        # `:` also stands in a pattern.
        named = re.search(r":[a-z]", re.sub(r"--[^\n]*|'[^']*'", "", statement))
        parameters = holes if named else [None] * statement.count("?")
        assert connection.execute(f"EXPLAIN {statement}", parameters) is not None, name
    connection.close()


def test_a_chunk_that_stays_keeps_its_id_and_moves_to_its_new_line(storage: Storage) -> None:
    first = record(storage, document("a.md", "one", "two"))
    second = record(storage, document("a.md", "new", "one", "two", content_hash="other"))
    assert [chunk_id for chunk_id, _ in first.added] == [1, 2]
    assert [(chunk_id, chunk.text) for chunk_id, chunk in second.added] == [(3, "new")]
    assert second.deleted == []
    assert {each.text: each.span for each in storage.chunks.by_id([1, 2, 3]).values()} == {
        "new": LineSpan(1, 1),
        "one": LineSpan(2, 2),
        "two": LineSpan(3, 3),
    }


def test_a_chunk_that_is_gone_is_not_found_any_more(storage: Storage) -> None:
    record(storage, document("a.md", "one", "two"))
    assert record(storage, document("a.md", "two")).deleted == [1]
    assert set(storage.chunks.by_id([1, 2])) == {2}


def test_an_unchanged_representation_is_left_alone(storage: Storage) -> None:
    record(storage, document("a.md", "one"))
    again = record(storage, document("a.md", "one", mtime_ns=9_000_000_000))
    assert (again.added, again.deleted, again.representations) == ([], [], 0)


def test_a_buried_document_takes_its_chunks_along_and_may_come_back(storage: Storage) -> None:
    record(storage, document("a.md", "one"))
    with storage.documents.changing() as changes:
        gone = changes.delete("a.md")
    assert gone is not None
    assert gone.deleted == [1]
    assert storage.counts()[:3] == (0, 0, 0)
    assert [chunk_id for chunk_id, _ in record(storage, document("a.md", "one")).added] == [2]
    assert storage.counts()[:3] == (1, 1, 1)


def test_what_fails_within_a_transaction_leaves_nothing_behind(storage: Storage) -> None:
    def fail_after_recording() -> None:
        with storage.documents.changing() as changes:
            changes.record(document("a.md", "one"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_after_recording()
    assert storage.counts().documents == 0
    assert [chunk_id for chunk_id, _ in record(storage, document("b.md", "two")).added] == [1]


def test_ids_are_never_used_twice_even_by_another_process(storage: Storage, tmp_path: Path) -> None:
    record(storage, document("a.md", "one", "two"))
    record(storage, document("a.md"))
    storage.close()
    reopened = Storage(tmp_path / "meta.sqlite")
    assert [chunk_id for chunk_id, _ in record(reopened, document("b.md", "three")).added] == [3]
    reopened.close()


def test_a_vector_is_kept_by_the_text_it_is_of(storage: Storage) -> None:
    record(storage, document("a.md", "same"))
    (pending,) = storage.embeddings.pending(0, 10)
    storage.embeddings.put("model", [(pending.text_hash, b"vector")], [pending.chunk_id])
    record(storage, document("b.md", "same"))
    (other,) = storage.embeddings.pending(0, 10)
    assert storage.embeddings.of_text("model", other.text_hash) == b"vector"
    assert storage.embeddings.of_text("another model", other.text_hash) is None


def test_a_directory_with_wildcards_in_its_name_buries_only_itself(storage: Storage) -> None:
    for path in ("a_b/x.md", "axb/x.md", "a%/x.md"):
        record(storage, document(path, path))
    assert storage.documents.paths_below("a_b") == ["a_b/x.md"]
    assert storage.documents.paths_below("a%") == ["a%/x.md"]


def test_another_format_says_what_to_run(storage: Storage, tmp_path: Path) -> None:
    storage.notes.put("index_format_version", "0")
    storage.close()
    with pytest.raises(IndexVersionMismatch) as refused:
        Storage(tmp_path / "meta.sqlite")
    assert "dir2mcp reindex" in (refused.value.hint or "")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE settings SET value = '7' WHERE key = 'index_format_version'",
        "UPDATE settings SET value = char(0) || char(0) WHERE key LIKE 'index_format_version%'",
        "DELETE FROM settings WHERE key = 'index_format_version'",
    ],
)
def test_a_damaged_format_is_no_other_format(storage: Storage, tmp_path: Path, damage: str) -> None:
    storage.close()
    with closing(sqlite3.connect(tmp_path / "meta.sqlite")) as database, database:
        database.execute(damage)
    with pytest.raises(StoreCorrupt):
        Storage(tmp_path / "meta.sqlite")


def test_a_file_that_is_no_database_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "meta.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreCorrupt):
        Storage(tmp_path / "meta.sqlite")


def test_purging_forgets_what_is_deleted_and_keeps_the_rest(storage: Storage) -> None:
    record(storage, document("a.md", "one", "two"))
    record(storage, document("a.md", "two"))
    assert storage.dead_share() == 0.5
    storage.purge()
    assert storage.dead_share() == 0.0
    assert set(storage.chunks.by_id([1, 2])) == {2}


def test_what_is_buried_tells_how_many_vectors_go_with_it(storage: Storage) -> None:
    record(storage, document("a.md", "one", "two", "three"))
    one, two, _ = storage.embeddings.pending(0, 10)
    assert storage.embeddings.put("model", [(one.text_hash, b"v"), (two.text_hash, b"v")], [1, 2]) == 2
    assert record(storage, document("a.md", "two", "three")).deleted_embedded == 1
    with storage.documents.changing() as changes:
        gone = changes.delete("a.md")
    assert gone is not None
    assert (len(gone.deleted), gone.deleted_embedded) == (2, 1)


def test_a_chunk_that_was_buried_while_its_vector_was_made_does_not_count(storage: Storage) -> None:
    record(storage, document("a.md", "one", "two"))
    record(storage, document("a.md", "two"))
    assert storage.embeddings.put("model", [], [1, 2]) == 1
    assert storage.counts().embedded == 1


@pytest.mark.parametrize("statement", ["recording", "noting"])
def test_a_disk_that_is_full_is_no_corrupt_store(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    storage.close()

    def connect_to_a_full_disk(file: Path, mode: Mode) -> sqlite3.Connection:
        connection = connect(file, mode)
        connection.execute("PRAGMA max_page_count = 1")  # as small as the file is
        return connection

    monkeypatch.setattr(database, "connect", connect_to_a_full_disk)
    storage = Storage(tmp_path / "meta.sqlite")
    long = "long " * 10_000
    writes: dict[str, Callable[[], object]] = {
        "recording": lambda: record(storage, document("a.md", long)),
        "noting": lambda: storage.notes.put("key", long),
    }
    with pytest.raises(IngestionFailed) as refused:
        writes[statement]()
    assert refused.value.code == "INGESTION_FAILED"
    assert storage.counts().documents == 0
    storage.close()


def test_what_is_wiped_is_in_no_file_of_the_database(storage: Storage, tmp_path: Path) -> None:
    for number in range(40):
        record(storage, document(f"{number}.md", *(f"canary {number} {line} " * 40 for line in range(20))))
    record(storage, document("kept.md", "what stays"))
    for number in range(40):
        with storage.documents.changing() as changes:
            changes.delete(f"{number}.md")
    assert storage.wipe()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"canary" not in kept
    assert b"what stays" in kept


def test_a_database_that_may_not_be_written_is_read_and_left_alone(storage: Storage, tmp_path: Path) -> None:
    record(storage, document("a.md", "one"))
    storage.close()
    before = sorted(tmp_path.iterdir())
    reading = Storage(tmp_path / "meta.sqlite", read_only=True)
    assert reading.counts().chunks == 1
    assert sorted(tmp_path.iterdir()) == before
    with pytest.raises(IngestionFailed):
        reading.notes.put("key", "value")
    reading.close()


@given(versions=st.lists(st.lists(st.sampled_from("abcde"), max_size=6), max_size=6))
def test_whatever_versions_a_document_goes_through_its_last_one_is_what_is_found(
    versions: list[list[str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    storage = Storage(tmp_path_factory.mktemp("state") / "meta.sqlite")
    seen: set[int] = set()
    try:
        for texts in versions:
            added = {chunk_id for chunk_id, _ in record(storage, document("a.md", *texts)).added}
            assert not added & seen
            seen |= added
            found = storage.chunks.by_id(list(seen)).values()
            assert sorted(each.text for each in found) == sorted(texts)
            assert {(each.text, each.span) for each in found} == {
                (text, LineSpan(line, line)) for line, text in enumerate(texts, 1)
            }
    finally:
        storage.close()


def test_a_process_that_takes_over_goes_on_where_the_other_ended(storage: Storage, tmp_path: Path) -> None:
    waiting = Storage(tmp_path / "meta.sqlite")
    before = waiting.version()
    record(storage, document("a.md", "one", "two"))
    assert waiting.version() != before
    storage.close()
    assert [chunk_id for chunk_id, _ in record(waiting, document("b.md", "three")).added] == [3]
    waiting.close()
