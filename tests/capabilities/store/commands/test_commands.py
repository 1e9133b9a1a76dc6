"""`armarium store`: workers, reindexing, export and import."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import stat
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
import yaml

from armarium.foundation.security.identity import key_hash
from support.command_line import DEADLINE_S, Command, CommandLine, InThisProcess
from support.postgres import running_postgres
from support.server import installed_command
from support.trusted import trust
from support.waiting import wait_until

REPOSITORY = Path(__file__).parents[4]
Start = Callable[..., Command]
ADA, BOB, SECOND_BOB = "ada's key", "bob's key", "another key of bob"


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    with running_postgres() as address:
        yield address


@pytest.fixture
def store_config(project: Path, dsn: str, environ: dict[str, str]) -> Iterator[Callable[..., Path]]:
    """Writes armarium.yaml with a store and the given settings; empties the database after the test."""

    def write(store: dict[str, Any] | None = None, **others: Any) -> Path:
        file = project / "armarium.yaml"
        file.write_text(yaml.safe_dump({"store": {"dsn": dsn} | (store or {})} | others))
        trust(project, environ)
        return file

    write()
    yield write
    asked(dsn, "DROP OWNED BY CURRENT_USER CASCADE")


@pytest.fixture
def several_callers(store_config: Callable[..., Path], project: Path) -> None:
    """Ada, and Bob with two keys; their keys are in files."""
    keys = [("ada", ADA), ("bob", BOB), ("bob", SECOND_BOB)]
    known = [{"username": name, "key_sha256": key_hash(key)} for name, key in keys]
    store_config(security={"auth": "keys", "keys": known})
    for name, key in (("ada", ADA), ("bob", BOB), ("nobody", "unknown")):
        (project / f"{name}.key").write_text(key)


def asked(dsn: str, statement: str) -> Any:
    async def ask() -> Any:
        connection = await asyncpg.connect(dsn, server_settings={"armarium.tenant": "*"})
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    return asyncio.run(ask())


def archive(directory: Path, **files: str) -> Path:
    made = directory / "in.tar"
    with tarfile.open(made, "w") as tar:
        for name, content in files.items():
            header = tarfile.TarInfo(f"notes/{name}")
            header.size = len(content.encode())
            tar.addfile(header, io.BytesIO(content.encode()))
    return made


def names_in(file: Path) -> list[str]:
    with tarfile.open(file) as tar:
        return tar.getnames()


pytestmark = pytest.mark.usefixtures("store_config")


def test_a_project_is_imported_and_exported_with_the_servers_token(
    quick: InThisProcess, project: Path, home: Path
) -> None:
    imported = quick("store", "import", archive(project, a="one", b="two"))
    assert (imported.code, imported.stdout) == (0, "")
    assert imported.stderr.splitlines()[-1] == "2 files written, 0 unchanged, 0 skipped"
    exported = quick("store", "export", "out.tar", "--project", "notes", "--json")
    assert exported.json == {"projects": 1, "files": 2, "bytes": 6, "file": "out.tar"}
    assert names_in(project / "out.tar") == ["notes/a", "notes/b"]
    assert stat.S_IMODE((project / "out.tar").stat().st_mode) == 0o600
    assert sorted(entry.name for entry in project.iterdir() if entry.name.startswith(".")) == []


def test_skipped_members_are_reported_and_the_command_fails(quick: InThisProcess, project: Path) -> None:
    outcome = quick("store", "import", archive(project, **{"a": "one", "b c": "two"}), "--json")
    assert outcome.code == 1
    assert (outcome.json["written"], outcome.json["unchanged"]) == (1, 0)
    assert [(each["member"], each["code"]) for each in outcome.json["skipped"]] == [("notes/b c", "INVALID_PATH")]
    again = quick("store", "import", "in.tar")
    assert again.code == 1
    assert "skipped notes/b c" in again.stderr


def test_different_content_is_replaced_only_with_overwrite(quick: InThisProcess, project: Path) -> None:
    assert quick("store", "import", archive(project, a="one")).code == 0
    assert quick("store", "import", archive(project, a="two")).code == 1
    assert quick("store", "import", archive(project, a="two"), "--overwrite").code == 0


def test_archives_can_be_piped(armarium: CommandLine, project: Path) -> None:
    source = archive(project, a="text " * 1000)
    command = installed_command("armarium")
    piped = {"cwd": project, "env": armarium.environ, "capture_output": True, "timeout": DEADLINE_S, "check": False}
    with source.open("rb") as given:
        taken = subprocess.run([command, "store", "import", "-", "--project", "copy"], stdin=given, **piped)
    assert taken.returncode == 0, taken.stderr
    given_out = subprocess.run([command, "store", "export", "-", "--project", "copy", "--json"], **piped)
    assert json.loads(given_out.stderr) == {"projects": 1, "files": 1, "bytes": 5000}
    with tarfile.open(fileobj=io.BytesIO(given_out.stdout)) as tar:
        assert tar.getnames() == ["copy/a"]


def test_a_failed_export_creates_no_file_and_preserves_an_existing_one(quick: InThisProcess, project: Path) -> None:
    (project / "out.tar").write_text("the last one")
    outcome = quick("store", "export", "out.tar", "--project", "nothing")
    assert outcome.code == 1
    assert "no files to export" in outcome.stderr
    assert (project / "out.tar").read_text() == "the last one"
    assert not list(project.glob(".out.tar*"))


def test_an_invalid_archive_is_refused(quick: InThisProcess, project: Path) -> None:
    (project / "junk.tar").write_text("junk " * 500)
    outcome = quick("store", "import", "junk.tar", "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["code"] == "ARCHIVE_UNUSABLE"
    assert quick("store", "import", "missing.tar").code == 2


@pytest.mark.usefixtures("several_callers")
def test_callers_are_identified_by_name_and_by_key(quick: InThisProcess, project: Path) -> None:
    assert quick("store", "import", archive(project, a="ada's"), "--user", "ada").code == 0
    assert quick("store", "import", archive(project, b="bob's"), "--key-file", "bob.key").code == 0
    assert quick("store", "export", "ada.tar", "--project", "*", "--key-file", "ada.key").code == 0
    assert quick("store", "export", "bob.tar", "--project", "*", "--key-file", "bob.key").code == 0
    assert names_in(project / "ada.tar") == ["notes/a"]
    assert names_in(project / "bob.tar") == ["notes/b"]


@pytest.mark.usefixtures("several_callers")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "several callers"),
        (("--user", "bob"), "several keys"),
        (("--user", "eve"), "no caller with this name"),
        (("--key-file", "nobody.key"), "no caller with this key"),
        (("--key-file", "missing.key"), "cannot read"),
        (("--user", "ada", "--key-file", "ada.key"), "exclude each other"),
    ],
)
def test_an_ambiguous_owner_is_refused(quick: InThisProcess, flags: tuple[str, ...], message: str) -> None:
    outcome = quick("store", "export", "out.tar", "--project", "p", *flags)
    assert outcome.code == 2
    assert message in outcome.stderr


def test_the_local_caller_has_its_own_files(quick: InThisProcess, project: Path) -> None:
    assert quick("store", "import", archive(project, a="local"), "--user", "local").code == 0
    assert quick("store", "export", "out.tar", "--project", "notes").code == 1
    assert quick("store", "export", "out.tar", "--project", "notes", "--user", "local").code == 0


def test_the_example_settings_are_valid(quick: InThisProcess) -> None:
    printed = quick("config", "print", "--config", REPOSITORY / "config" / "store.yaml", "--json")
    assert printed.code == 0
    assert printed.json["store"]["embedding"]["provider"] == "local"


def test_commands_need_a_store_section(quick: InThisProcess, project: Path) -> None:
    (project / "armarium.yaml").write_text("server: {port: 0}\n")
    for arguments in (("worker",), ("reindex", "--yes"), ("export", "o.tar", "--project", "p"), ("import", "o.tar")):
        outcome = quick("store", *arguments)
        assert outcome.code == 2
        assert "add a section: store" in outcome.stderr


def test_a_worker_indexes_files_of_other_processes_and_ends_on_a_signal(
    start: Start, quick: InThisProcess, project: Path, dsn: str
) -> None:
    worker = start("store", "worker", "--workers", "1", "--metrics-port", "0", "--json")
    announced = json.loads(worker.stdout.next())
    assert announced["workers"] == 1
    assert quick("store", "import", archive(project, a="Ships leave the harbour.")).code == 0
    wait_until(lambda: asked(dsn, "SELECT count(*) = 1 FROM mcp_file_index_jobs WHERE status = 'done'"))
    assert asked(dsn, "SELECT count(*) FROM mcp_file_chunk_embeddings") == 1
    counted = httpx.get(announced["metrics"], timeout=DEADLINE_S, trust_env=False).text
    assert "mcp_files_index_visibility_lag_ms_count 1.0" in counted
    os.kill(worker.process.pid, signal.SIGTERM)
    assert worker.process.wait(DEADLINE_S) == 0
    assert asked(dsn, "SELECT count(*) FROM mcp_file_index_jobs WHERE status = 'processing'") == 0


def test_a_worker_without_access_to_callers_keys_is_refused(
    quick: InThisProcess, store_config: Callable[..., Path]
) -> None:
    keks = {"encryption_keks": {1: "a key for these tests"}}
    store_config({"embedding": {"provider": "openai"}, "security": keks})
    outcome = quick("store", "worker")
    assert outcome.code == 2
    assert "hint: set store.redis_url" in outcome.stderr
    store_config({"search": {"enabled": False}})
    assert "nothing to index" in quick("store", "worker").stderr


def test_reindexing_is_explained_confirmed_and_done(quick: InThisProcess, project: Path, dsn: str) -> None:
    quick("store", "import", archive(project, a="Ships leave the harbour.", b="Bread."))
    asking = quick("store", "reindex")
    assert asking.code == 2
    assert "The vectors of 2 files of 1 caller are deleted" in asking.stderr
    assert "hint: add --yes" in asking.stderr
    done = quick("store", "reindex", "--yes", "--json")
    assert done.json == {"files": 2, "dimensions": 384, "queued": 2, "failed": 0, "complete": True}
    assert asked(dsn, "SELECT count(*) FROM mcp_file_chunk_embeddings") == 2


def test_with_callers_keys_files_are_reindexed_at_the_next_write(
    quick: InThisProcess, store_config: Callable[..., Path], project: Path, dsn: str
) -> None:
    quick("store", "import", archive(project, a="Ships leave the harbour."))
    embedding = {"provider": "openai", "dimensions": 16}
    store_config({"embedding": embedding, "security": {"encryption_keks": {1: "a key for these tests"}}})
    done = quick("store", "reindex", "--yes")
    assert done.code == 0
    assert "384 dimensions now, and 16" in done.stderr
    assert "at its next write" in done.stderr
    noted = quick("store", "import", archive(project, b="Bread."))
    assert noted.code == 0
    assert "the next write indexes them" in noted.stderr


def test_the_command_without_arguments_prints_help(quick: InThisProcess) -> None:
    shown = quick("store")
    assert shown.code == 0
    assert all(name in shown.stdout for name in ("worker", "reindex", "export", "import"))


def test_an_owner_purges_what_is_kept_of_a_project_and_nobody_elses(
    armarium: CommandLine | InThisProcess, several_callers: None, project: Path, dsn: str
) -> None:
    for content in ("one", "three"):
        made = archive(project, **{"a.md": content})
        for user in (["--user", "ada"], ["--key-file", "bob.key"]):
            assert armarium("store", "import", str(made), "--overwrite", *user).code == 0
    purged = armarium("store", "purge", "--project", "notes", "--user", "ada", "--json")
    assert purged.json == {"purged_files": 0, "purged_versions": 1, "purged_bytes": 3}
    assert asked(dsn, "SELECT string_agg(apikey_hash, ' ') FROM mcp_file_versions") == key_hash(BOB)
    assert asked(dsn, "SELECT count(*) FROM mcp_files") == 2
    again = armarium("store", "purge", "--project", "notes", "--path", "/a.md", "--user", "ada")
    assert (again.code, again.stderr.strip()) == (0, "purged 0 versions and 0 deleted files, 0 bytes")
    wrong = armarium("store", "purge", "--project", "no/project", "--user", "ada")
    assert wrong.code != 0
    assert "INVALID_PATH" in wrong.stderr or "project's name" in wrong.stderr
