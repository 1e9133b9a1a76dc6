"""What `armarium doctor` says about the store, and that looking changes nothing."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from anyio import to_thread

from armarium.capabilities.store import checks as store_checks
from armarium.capabilities.store.checks import check
from armarium.capabilities.store.database.pool import connect
from armarium.capabilities.store.database.schema import migrate
from armarium.capabilities.store.lifespan import open_resources
from armarium.capabilities.store.settings import LOCAL_DIMENSIONS, StoreSettings
from armarium.capability import CheckResult, Facilities
from armarium.foundation.events import Events
from armarium.foundation.telemetry import Metrics
from armarium.providers.local.embedder import LocalEmbedder

PASSWORD = "do-not-show-this"


def found(tmp_path: Path, *, max_body_bytes: int | None = None, **settings: Any) -> dict[str, CheckResult]:
    """The findings by subject."""
    section = StoreSettings.model_validate(settings)
    facilities = Facilities(Events(), tmp_path, max_body_bytes=max_body_bytes)
    return {finding.subject: finding for finding in check(section, facilities)}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else gets."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_without_a_section_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert list(check(None, Facilities(Events(), tmp_path))) == []


def test_a_database_to_be_started_here_is_found_ready_and_nothing_is_made(tmp_path: Path) -> None:
    findings = found(tmp_path / "state")
    assert findings["store database"].state == "ok"
    assert findings["store directory"].message == str(tmp_path / "state" / "postgres")
    assert {finding.state for finding in findings.values()} == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_data_of_another_version_is_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PG_VERSION").write_text("9\n")
    findings = found(tmp_path, data_dir=str(tmp_path))
    assert findings["store database"].state == "fail"
    assert "PostgreSQL 9" in findings["store database"].message


def test_a_directory_that_others_can_write_to_is_found(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres").chmod(0o777)
    assert found(tmp_path)["store directory"].state == "fail"


@pytest.fixture(scope="module")
def fresh_dsn(store_dsn: str) -> str:
    """A migrated database beside the one that all tests fill."""
    return asyncio.run(_fresh(store_dsn))


async def _fresh(dsn: str) -> str:
    above = dsn.replace("//armarium@", "//postgres@")
    await _value(above, "CREATE DATABASE fresh OWNER armarium")
    await _value(above.replace("/armarium?", "/fresh?"), "CREATE EXTENSION vector")
    fresh = dsn.replace("/armarium?", "/fresh?")
    pool = await connect(fresh, size=2)
    await migrate(pool, dimensions=LOCAL_DIMENSIONS)
    await pool.aclose()
    return fresh


async def _with_a_vector(dsn: str, made_with: str) -> None:
    connection = await asyncpg.connect(dsn, server_settings={"armarium.tenant": "*"})
    try:
        await connection.execute(
            "TRUNCATE mcp_files CASCADE;"
            "INSERT INTO mcp_files (apikey_hash, project, path, content, size, version)"
            " VALUES (repeat('0', 64), 'p', '/a', 'hi', 2, 1);"
            "INSERT INTO mcp_file_chunks (apikey_hash, project, file_path, chunk_index, start_byte, end_byte,"
            " chunk_content, content_hash, file_id)"
            " SELECT apikey_hash, project, path, 0, 0, 2, 'hi', repeat('0', 64), id FROM mcp_files"
        )
        await connection.execute(
            "INSERT INTO mcp_file_chunk_embeddings (chunk_id, apikey_hash, project, file_id, embedding, model)"
            " SELECT id, apikey_hash, project, file_id, array_fill(1, ARRAY[$1::int])::vector, $2"
            " FROM mcp_file_chunks",
            LOCAL_DIMENSIONS,
            made_with,
        )
    finally:
        await connection.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_a_root_that_cannot_give_up_its_rights_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(tmp_path)["store account"].state == "ok"
    monkeypatch.setattr(store_checks, "can_leave_root", lambda own, binaries: False)
    finding = found(tmp_path)["store account"]
    assert finding.state == "fail"
    assert "store.dsn" in str(finding.hint)


def test_a_database_elsewhere_that_is_ready_is_found_so(tmp_path: Path, fresh_dsn: str) -> None:
    findings = found(tmp_path, dsn=fresh_dsn)
    assert {"store database", "pgvector", "store role", "store schema"} <= set(findings)
    assert {finding.state for finding in findings.values()} == {"ok"}
    assert findings["store schema"].message == "up to date"


def test_a_role_above_row_security_is_found(tmp_path: Path, store_dsn: str) -> None:
    findings = found(tmp_path, dsn=store_dsn.replace("//armarium@", "//postgres@"))
    assert findings["store role"].state == "warn"


def test_a_database_without_schema_and_vectors_is_found_and_left_so(tmp_path: Path, store_dsn: str) -> None:
    dsn = store_dsn.replace("//armarium@", "//postgres@")
    empty = dsn.replace("/armarium?", "/template1?")
    findings = found(tmp_path, dsn=empty)
    assert findings["pgvector"].state == "warn"
    assert "the next start applies" in findings["store schema"].message
    assert asyncio.run(_value(empty, "SELECT to_regclass('armarium_store_schema')")) is None


def test_vectors_of_another_length_are_found(tmp_path: Path, store_dsn: str) -> None:
    embedding = {"provider": "openai", "dimensions": 7}
    security = {"encryption_keks": {1: "x" * 32}}
    findings = found(tmp_path, dsn=store_dsn, embedding=embedding, security=security)
    assert findings["store schema"].state == "fail"


def test_vectors_of_another_model_are_found(tmp_path: Path, fresh_dsn: str) -> None:
    asyncio.run(_with_a_vector(fresh_dsn, LocalEmbedder.model))
    assert found(tmp_path, dsn=fresh_dsn)["store vectors"].state == "ok"
    asyncio.run(_with_a_vector(fresh_dsn, "another-model"))
    finding = found(tmp_path, dsn=fresh_dsn)["store vectors"]
    assert (finding.state, "another-model" in finding.message) == ("warn", True)
    assert "armarium store reindex" in str(finding.hint)
    assert "store vectors" not in found(tmp_path, dsn=fresh_dsn, search={"enabled": False})
    asyncio.run(_with_a_vector(fresh_dsn, LocalEmbedder.model))


async def test_vectors_in_a_database_that_runs_here_are_looked_at_too(tmp_path: Path) -> None:
    other = {"embedding": {"provider": "openai", "dimensions": 7}, "security": {"encryption_keks": {1: "x" * 32}}}
    async with open_resources(StoreSettings(), tmp_path, Metrics().registry):
        running = await to_thread.run_sync(lambda: found(tmp_path, **other))
        fitting = await to_thread.run_sync(lambda: found(tmp_path))
    assert running["store schema"].state == "fail"
    assert fitting["store schema"].message == "up to date"


@pytest.mark.parametrize(
    ("payload", "body", "said"),
    [(1_000_000, 3_100_000, None), (1_000_000, 2_000_000, "may not fit"), (1_000_000, 1_000_100, "does not fit")],
)
def test_a_write_that_fits_into_no_request_is_found(tmp_path: Path, payload: int, body: int, said: str | None) -> None:
    finding = found(tmp_path, max_payload_bytes=payload, max_body_bytes=body).get("store writes")
    assert (finding and finding.state) == (said and "warn")
    if finding is not None:
        assert str(said) in finding.message
        assert "server.max_body_bytes" in str(finding.hint)


def test_a_database_that_is_not_there_is_found_without_showing_the_password(tmp_path: Path, closed_port: int) -> None:
    findings = found(tmp_path, dsn=f"postgresql://armarium:{PASSWORD}@127.0.0.1:{closed_port}/armarium")
    assert [finding.state for finding in findings.values()] == ["fail"]
    assert PASSWORD not in str(findings)


@pytest.mark.parametrize("dsn", [f"postgresql://a:{PASSWORD}@[::1/x", f"a:{PASSWORD}@somewhere"])
def test_an_address_that_is_none_is_found_without_showing_the_password(tmp_path: Path, dsn: str) -> None:
    findings = found(tmp_path, dsn=dsn)
    assert [finding.state for finding in findings.values()] == ["fail"]
    assert PASSWORD not in str(findings)


@pytest.mark.parametrize("url", ["redis://:{password}@127.0.0.1:{port}/0", "ftp://:{password}@127.0.0.1:{port}"])
def test_a_redis_that_does_not_answer_is_found_without_showing_the_password(
    tmp_path: Path, closed_port: int, url: str
) -> None:
    findings = found(tmp_path, redis_url=url.format(password=PASSWORD, port=closed_port))
    assert findings["redis"].state == "fail"
    assert PASSWORD not in str(findings)


@pytest.mark.parametrize(("workers", "said"), [(2, "only its own workers"), (0, "store.index.workers is 0")])
def test_keys_that_only_one_server_has_are_found(tmp_path: Path, store_dsn: str, workers: int, said: str) -> None:
    asks_callers = {
        "embedding": {"provider": "openai"},
        "security": {"encryption_keks": {1: "x" * 32}},
        "index": {"workers": workers},
    }
    finding = found(tmp_path, dsn=store_dsn, **asks_callers)["redis"]
    assert finding.state == "warn"
    assert said in finding.message
    assert "redis" not in found(tmp_path, dsn=store_dsn, **asks_callers, search={"enabled": False})


def test_missing_packages_are_found_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "redis", None)
    findings = found(tmp_path)
    assert [finding.subject for finding in findings.values()] == ["store packages"]
    assert "redis" in findings["store packages"].message


async def _value(dsn: str, statement: str) -> Any:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()
