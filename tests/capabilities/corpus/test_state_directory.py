"""The state directory: names and shapes of the contract, one writing process, damage that is reported and repaired."""

from __future__ import annotations

import fcntl
import json
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy
import pytest

from armarium.capabilities.corpus.errors import IndexLocked, IndexNotReady, StoreCorrupt
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.index.ownership import prepare_directory
from armarium.capabilities.corpus.index.state import (
    IndexLock,
    is_being_indexed,
    read_status,
    state_paths,
)
from support.client import connected
from support.corpus import CorpusProcess
from support.corpus_calls import (
    WITHOUT_WATCHING,
    answer,
    hits,
    refusal,
    rows,
    run_dir2mcp,
    stored_settings,
    write_lighthouse,
)
from support.waiting import eventually

DEADLINE_S = 10.0
COLUMNS = {
    "documents": "doc_id rel_path source_type doc_type size_bytes mtime_unix content_hash status error deleted",
    "representations": "rep_id doc_id rep_type rep_hash created_unix meta_json deleted",
    "chunks": "chunk_id rep_id ordinal text text_hash tokens_est index_kind embedding_status embedding_error deleted",
    "spans": "chunk_id span_kind start end extra_json",
    "settings": "key value",
}
SETTINGS = (
    "protocol_version corpus_id index_format_version embed_text_model embed_text_dim embed_code_model embed_code_dim "
    "ocr_model stt_provider stt_model chat_model"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[CorpusProcess]:
    directory = tmp_path_factory.mktemp("state") / "root"
    write_lighthouse(directory)
    with CorpusProcess(directory, environ=WITHOUT_WATCHING) as process:
        process.wait_until_indexed()
        yield process


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose server has ended. To be copied, not changed."""
    directory = tmp_path_factory.mktemp("rest") / "root"
    write_lighthouse(directory)
    with CorpusProcess(directory, environ=WITHOUT_WATCHING) as process:
        process.wait_until_indexed()
    return directory


@pytest.fixture
def ended(at_rest: Path, tmp_path: Path) -> Path:
    """A directory of the test's own whose server has ended."""
    shutil.copytree(at_rest, tmp_path / "root", symlinks=True)
    return tmp_path / "root"


def test_everything_is_where_the_contract_has_it(served: CorpusProcess) -> None:
    state = served.state_dir
    names = {"/".join(file.relative_to(state).parts) for file in state.rglob("*") if file.is_file()}
    assert {
        ".dir2mcp.yaml.snapshot",
        "connection.json",
        "secret.token",
        "meta.sqlite",
        "vectors_text.hnsw",
        "vectors_code.hnsw",
        "corpus.json",
        "locks/index.lock",
    } <= names


def test_the_token_is_one_line_for_its_owner_alone(served: CorpusProcess) -> None:
    token = served.state_dir / "secret.token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(served.state_dir.stat().st_mode) == 0o700
    (line,) = token.read_text().splitlines()
    assert len(line) >= 32
    assert line not in (served.state_dir / "connection.json").read_text()


def test_the_connection_file_is_the_contracts(served: CorpusProcess) -> None:
    assert json.loads((served.state_dir / "connection.json").read_text()) == {
        "transport": "mcp_streamable_http",
        "url": f"{served.url}/mcp",
        "headers": {
            "MCP-Protocol-Version": "2025-11-25",
            "Authorization": "Bearer <token-from-secret.token>",
        },
        "session": {
            "uses_mcp_session_id": True,
            "header_name": "MCP-Session-Id",
            "assigned_on_initialize": True,
        },
    }


async def test_the_summary_is_true(served: CorpusProcess) -> None:
    async with connected(served.url, key=served.token) as client:
        stats = await answer(client, "stats")
    expected = {name: value for name, value in stats["indexing"].items() if name != "mode"}

    def at_rest() -> dict[str, Any] | None:
        summary: dict[str, Any] = json.loads((served.state_dir / "corpus.json").read_text())
        return None if summary["indexing"]["running"] else summary

    summary = await eventually(at_rest)
    assert summary is not None
    assert set(summary) == {"root", "profile", "models", "indexing"}
    assert summary["root"] == str(served.directory)
    assert summary["profile"] == {"doc_counts": {"code": 1, "md": 1, "text": 1}, "code_ratio": 0.33}
    assert summary["models"] == stats["models"]
    assert set(summary["models"]) == {"embed_text", "embed_code", "ocr", "stt_provider", "stt_model", "chat"}
    assert summary["indexing"] == expected | {"complete": True}
    assert expected["running"] is False
    assert (expected["scanned"], expected["indexed"], expected["errors"]) == (3, 3, 0)
    assert (
        expected["chunks_total"]
        == expected["embedded_ok"]
        == rows(served.state_dir, "SELECT count(*) FROM chunks")[0][0]
    )


@pytest.mark.parametrize("table", COLUMNS)
def test_the_tables_have_the_columns_of_the_contract(served: CorpusProcess, table: str) -> None:
    found = {row[1] for row in rows(served.state_dir, f"PRAGMA table_info({table})")}
    assert set(COLUMNS[table].split()) <= found


def test_the_rows_have_the_values_of_the_contract(served: CorpusProcess) -> None:
    state = served.state_dir
    assert rows(state, "SELECT DISTINCT source_type, status, deleted FROM documents") == [("file", "ok", 0)]
    assert rows(state, "SELECT DISTINCT rep_type FROM representations") == [("raw_text",)]
    assert set(rows(state, "SELECT DISTINCT index_kind, embedding_status FROM chunks")) == {
        ("text", "ok"),
        ("code", "ok"),
    }
    assert rows(state, "SELECT DISTINCT span_kind FROM spans") == [("lines",)]
    orphans = "SELECT count(*) FROM chunks LEFT JOIN spans USING (chunk_id) WHERE span_kind IS NULL"
    assert rows(state, orphans) == [(0,)]
    sizes = dict(rows(state, "SELECT rel_path, size_bytes FROM documents"))
    assert sizes == {name: (served.directory / name).stat().st_size for name in sizes}


def test_the_settings_name_format_protocol_and_models(served: CorpusProcess) -> None:
    settings = stored_settings(served.state_dir)
    assert set(SETTINGS.split()) <= set(settings)
    assert settings["protocol_version"] == "2025-11-25"
    assert settings["index_format_version"] == "2"
    assert settings["corpus_id"].startswith("corpus_")


@pytest.mark.parametrize("kind", ["text", "code"])
def test_the_labels_of_the_vectors_are_the_ids_of_the_chunks(served: CorpusProcess, kind: str) -> None:
    # Not at the top: it would be loaded before re2, and then onnxruntime crashes.
    from usearch.index import Index

    index = Index.restore(str(served.state_dir / f"vectors_{kind}.hnsw"))
    assert index is not None
    stored = {row[0] for row in rows(served.state_dir, "SELECT chunk_id FROM chunks WHERE index_kind = ?", [kind])}
    assert set(numpy.asarray(index.keys).tolist()) == stored
    assert index.ndim == int(stored_settings(served.state_dir)[f"embed_{kind}_dim"])


def test_a_second_server_is_told_that_there_is_one_and_the_first_goes_on(served: CorpusProcess) -> None:
    for command in ("up", "reindex"):
        second = run_dir2mcp(command, served.directory, "--json")
        assert second.returncode == 5
        assert "ERROR: INDEX_LOCKED: another process is indexing this directory" in second.stderr
        fatal = json.loads(second.stdout.splitlines()[-1])
        assert (fatal["event"], fatal["data"]["code"]) == ("fatal", "INDEX_LOCKED")
    connection = json.loads((served.state_dir / "connection.json").read_text())
    assert connection["url"] == f"{served.url}/mcp", "clients still find the server that is there"


async def test_a_question_can_be_asked_beside_a_running_server(served: CorpusProcess) -> None:
    asked = run_dir2mcp("ask", served.directory, "--json", "how often does the horn sound?")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["hits"][0]["rel_path"] == "handbook.md"
    async with connected(served.url, key=served.token) as client:
        assert await hits(client, "horn in fog")


async def test_the_state_can_be_kept_elsewhere(tmp_path: Path) -> None:
    write_lighthouse(tmp_path / "root")
    before = sorted((tmp_path / "root").rglob("*"))
    elsewhere = tmp_path / "kept/here"
    with CorpusProcess(tmp_path / "root", "--state-dir", str(elsewhere), environ=WITHOUT_WATCHING) as process:
        process.wait_until_indexed()
        async with connected(process.url, key=process.token) as client:
            assert (await answer(client, "stats"))["state_dir"] == str(elsewhere)
            assert (await hits(client, "horn in fog"))[0]["rel_path"] == "handbook.md"
    assert sorted((tmp_path / "root").rglob("*")) == before
    assert (elsewhere / "meta.sqlite").exists()
    status = run_dir2mcp("status", tmp_path / "root", "--state-dir", str(elsewhere), "--json")
    assert json.loads(status.stdout)["indexing"]["indexed"] == 3


@pytest.mark.parametrize("name", ["kept", "deep/kept", "[a] *odd* name!", "#kept", "!kept", "back\\slash", ".dir2mcp"])
def test_the_state_is_excluded_whatever_it_is_called_and_nothing_else(tmp_path: Path, name: str) -> None:
    exclusion = Exclusion((), state_paths=state_paths(tmp_path, tmp_path / name))
    assert exclusion.excludes_path(f"{name}/secret.token")
    assert exclusion.excludes_path(".dir2mcp/secret.token")
    assert exclusion.excludes_path(".dir2mcp.yaml")
    assert not exclusion.excludes_path(f"other/{name}.md")
    assert not exclusion.excludes_path("a name/secret.md")


def test_a_state_outside_the_root_excludes_nothing_in_it(tmp_path: Path) -> None:
    exclusion = Exclusion((), state_paths=state_paths(tmp_path / "root", tmp_path / "kept"))
    assert not exclusion.excludes_path("kept/notes.md")


async def test_neither_the_state_nor_the_settings_can_be_read_through_the_server(tmp_path: Path) -> None:
    root, state = tmp_path / "root", tmp_path / "root/kept"
    write_lighthouse(root)
    (root / ".dir2mcp.yaml").write_text("version: 1\nopenai:\n  api_key: plainly-written\n")
    unhidden = WITHOUT_WATCHING | {"DIR2MCP_INGEST__GITIGNORE": "false"}
    with CorpusProcess(root, "--state-dir", str(state), environ=unhidden) as process:
        process.wait_until_indexed()
        async with connected(
            process.url, key=process.token, never_said=[process.token or "", "plainly-written"]
        ) as client:
            listed = (await answer(client, "list_files"))["files"]
            assert [file["rel_path"] for file in listed] == ["handbook.md", "lamp.py", "notes.txt"]
            for path in ("kept/secret.token", "kept/.dir2mcp.yaml.snapshot", ".dir2mcp.yaml"):
                assert (await refusal(client, "open_file", rel_path=path))["code"] == "FORBIDDEN"


async def test_what_is_deleted_stays_as_a_tombstone_and_is_never_found(ended: Path) -> None:
    (ended / "handbook.md").unlink()
    with CorpusProcess(ended, environ=WITHOUT_WATCHING) as process:
        assert process.wait_until_indexed()["deleted"] == 1
        async with connected(process.url, key=process.token) as client:
            for query in ("how often does the horn sound in fog", "lamp lens keeper dusk", "supply boat"):
                found = await hits(client, query, index="both", k=50)
                assert {hit["rel_path"] for hit in found} <= {"lamp.py", "notes.txt"}
    gone = {row[0] for row in rows(ended / ".dir2mcp", "SELECT chunk_id FROM chunks WHERE deleted = 1")}
    assert gone
    assert rows(ended / ".dir2mcp", "SELECT rel_path FROM documents WHERE deleted = 1") == [("handbook.md",)]


def put_other_format(state: Path) -> None:
    database = sqlite3.connect(state / "meta.sqlite")
    database.execute("UPDATE settings SET value = '0' WHERE key = 'index_format_version'")
    database.execute("DELETE FROM settings WHERE key = 'index_format_version#'")
    database.commit()
    database.close()


def overwrite(state: Path) -> None:
    (state / "meta.sqlite").write_bytes(b"this is not a database " * 400)


def garble_pages(state: Path) -> None:
    """The header is whole, everything behind the first page is not."""
    content = (state / "meta.sqlite").read_bytes()
    (state / "meta.sqlite").write_bytes(content[:4096] + bytes(len(content) - 4096))


def empty_schema(state: Path) -> None:
    """A database, but not ours."""
    (state / "meta.sqlite").unlink()
    database = sqlite3.connect(state / "meta.sqlite")
    database.execute("CREATE TABLE other (name TEXT)")
    database.close()


async def test_an_index_of_another_format_is_told_and_reindexing_heals_it(ended: Path) -> None:
    state = ended / ".dir2mcp"
    token = (state / "secret.token").read_text()
    put_other_format(state)
    refused = run_dir2mcp("up", ended)
    assert refused.returncode == 5, refused.stderr
    assert "ERROR: INDEX_VERSION_MISMATCH: " in refused.stderr
    assert "run: dir2mcp reindex" in refused.stderr
    assert "Traceback" not in refused.stderr
    healed = run_dir2mcp("reindex", ended)
    assert healed.returncode == 0, healed.stderr
    with CorpusProcess(ended, environ=WITHOUT_WATCHING) as process:
        counts = process.wait_until_indexed()
        assert (counts["indexed"], counts["skipped"]) == (0, 3)
        assert process.token == token.strip()
        async with connected(process.url, key=process.token) as client:
            assert (await hits(client, "how often does the horn sound in fog"))[0]["rel_path"] == "handbook.md"


@pytest.mark.parametrize("damage", [overwrite, garble_pages, empty_schema])
async def test_a_damaged_index_is_told_and_the_next_server_builds_it_anew(
    ended: Path, damage: Callable[[Path], None]
) -> None:
    damage(ended / ".dir2mcp")
    status = run_dir2mcp("status", ended)
    assert status.returncode == 5, status.stderr
    assert "ERROR: STORE_CORRUPT: " in status.stderr
    with CorpusProcess(ended, environ=WITHOUT_WATCHING) as process:
        counts = process.wait_until_indexed()
        assert (counts["scanned"], counts["chunks_total"]) == (3, counts["embedded_ok"])
        async with connected(process.url, key=process.token) as client:
            assert (await hits(client, "how often does the horn sound in fog"))[0]["rel_path"] == "handbook.md"
            stats = await client.result("dir2mcp.stats", {})
            assert "everything is indexed again" in str(stats.content)
        process.wait_for_log("everything is indexed again")
        assert not list((ended / ".dir2mcp").glob("*.damaged*"))
    assert "everything is indexed again" in run_dir2mcp("status", ended).stdout


def test_one_process_at_a_time_may_write(tmp_path: Path) -> None:
    prepare_directory(tmp_path, tmp_path.parent)
    assert not is_being_indexed(tmp_path)
    with IndexLock(tmp_path) as first, IndexLock(tmp_path) as second:
        assert first.try_acquire()
        assert is_being_indexed(tmp_path)
        assert not second.try_acquire()
        assert (first.held, second.held) == (True, False)
        with pytest.raises(IndexLocked):
            second.acquire()
    assert not is_being_indexed(tmp_path)
    with IndexLock(tmp_path) as third:
        third.acquire()
        assert third.held


def test_whoever_looks_whether_there_is_a_server_does_not_keep_one_from_starting(tmp_path: Path) -> None:
    prepare_directory(tmp_path, tmp_path.parent)
    (tmp_path / "locks/index.lock").touch()
    with open(tmp_path / "locks/index.lock") as looking, IndexLock(tmp_path) as lock:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.05, looking.close).start()
        lock.acquire()
        assert lock.held


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"indexing": 7}', '{"indexing": {}}'])
def test_a_summary_that_is_no_summary_is_told(tmp_path: Path, content: str) -> None:
    with pytest.raises(IndexNotReady):
        read_status(tmp_path)
    (tmp_path / "corpus.json").write_text(content)
    with pytest.raises(StoreCorrupt):
        read_status(tmp_path)


def test_a_server_that_was_killed_is_not_reported_as_running(tmp_path: Path) -> None:
    prepare_directory(tmp_path, tmp_path.parent)
    summary: dict[str, Any] = {"root": "/", "indexing": {"running": True, "indexed": 3}}
    (tmp_path / "corpus.json").write_text(json.dumps(summary))
    status = read_status(tmp_path)
    assert (status["serving"], status["indexing"]) == (False, {"running": False, "indexed": 3})
    with IndexLock(tmp_path) as lock:
        lock.acquire()
        assert read_status(tmp_path)["indexing"]["running"] is True
