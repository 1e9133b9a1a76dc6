"""The program as it is now opens what earlier versions kept on disk, and answers what they answered."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from compatibility.freeze import QUESTIONS, Client, is_settled, wait_until
from support.postgres import postgres_program, running_postgres
from support.server import ServerProcess, installed_command

Json = dict[str, Any]

SAMPLES = sorted(Path(__file__).with_name("samples").glob("*.tar.gz"))
# What may be better, more, or counted anew.
_OWN_BUSINESS = frozenset({"score", "chunk_id", "index_used", "k"})


@dataclass(frozen=True, slots=True)
class Opened:
    """A sample, served by the program as it is now."""

    directory: Path
    server: ServerProcess
    client: Client
    answers: Json


@pytest.fixture(scope="module", params=SAMPLES, ids=[path.name.removesuffix(".tar.gz") for path in SAMPLES])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("frozen")
    with tarfile.open(request.param) as archive:
        archive.extractall(directory, filter="fully_trusted")  # ours, with the modes that the state needs
    return directory


@pytest.fixture(scope="module")
def opened(directory: Path) -> Generator[Opened]:
    with running_postgres() as dsn:
        restore(dsn, directory / "store.sql")
        settings = yaml.safe_load((directory / "armarium.yaml").read_text())
        settings["state_dir"] = str(directory / "state")
        settings["server"]["port"] = 0
        settings["sandbox"]["roots"][0]["path"] = str(directory / "project")
        settings["corpus"]["root"] = settings["registry"]["project"] = str(directory / "project")
        settings["gateway"]["config_dir"] = str(directory / "config")
        settings["store"]["dsn"] = dsn
        config = directory / "moved.yaml"
        config.write_text(yaml.safe_dump(settings))
        with ServerProcess([installed_command("armarium"), "serve", "--config", str(config)]) as server:
            token = (directory / "state" / "secret.token").read_text().strip()
            with Client(server.url, token) as client:
                wait_until(lambda: is_settled(client))
                yield Opened(directory, server, client, json.loads((directory / "answers.json").read_text()))


def restore(dsn: str, dump: Path) -> None:
    """Load a dump as an administrator of the database would."""
    [host] = parse_qs(urlsplit(dsn).query)["host"]
    connection = ["--host", host, "--username", "postgres", "--dbname", "armarium"]
    # What makes the database itself is there already: the extension, and the schema that everybody has.
    command = [str(postgres_program("psql")), *connection, "--quiet", "--no-psqlrc", "--file", str(dump)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PGOPTIONS": "-c search_path=public"}
    )
    problems = [line for line in done.stderr.splitlines() if "ERROR" in line and "already exists" not in line]
    assert problems == []


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_an_earlier_version_kept_is_answered_as_it_was(opened: Opened, question: str) -> None:
    tool, arguments = QUESTIONS[question]
    then, now = opened.answers[question], opened.client.call(tool, arguments)
    if question == "corpus_search":
        then["hits"], now["hits"] = then["hits"][:1], now["hits"][:1]
    assert _kept(then, now) == then


def _kept(then: Any, now: Any) -> Any:
    """What `now` has of what was there `then`: fields may come, and none may go or change."""
    if isinstance(then, dict) and isinstance(now, dict):
        return {
            name: value if name in _OWN_BUSINESS else _kept(value, now.get(name, "missing"))
            for name, value in then.items()
        }
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [_kept(one, other) for one, other in zip(then, now, strict=True)]
    return now


def test_a_judgement_of_then_still_holds(opened: Opened) -> None:
    found = {finding["rule_id"]: finding["status"] for finding in opened.client.call("list_findings", {})["results"]}
    assert found == {"R1": "false_positive", "R2": "open"}


def test_an_earlier_version_of_a_stored_file_can_be_restored(opened: Opened) -> None:
    at = {"project": "notes", "path": "/b/two.md"}
    before = opened.client.call("file_read", at)["content"]
    opened.client.call("file_write", {**at, "content": "new\n", "mode": "TRUNCATE"})
    oldest = min(version["version"] for version in opened.client.call("file_history", at)["versions"])
    restored = opened.client.call("file_restore", {**at, "version": oldest})
    assert "error" not in restored
    assert opened.client.call("file_read", at)["content"] == before


def test_the_calls_of_then_are_in_the_audit_trail(opened: Opened) -> None:
    told = _command(opened.directory, "armarium", "audit", "--config", "moved.yaml", "--json", "--last", "1000")
    tools = [json.loads(line)["tool"] for line in told.splitlines()]
    assert tools.count("report_findings") == 1
    assert tools.count("create_issue") == 1


def test_every_setting_of_then_is_still_one(directory: Path) -> None:
    for file in ("armarium.yaml", "armarium-in-effect.yaml"):
        _command(directory, "armarium", "config", "print", "--config", file)
    _command(directory, "dir2mcp", "--dir", "project", "--config", "dir2mcp-in-effect.yaml", "config", "print")


def test_an_archive_of_then_is_imported(opened: Opened) -> None:
    _command(
        opened.directory, "armarium", "store", "import", "notes.tar", "--project", "again", "--config", "moved.yaml"
    )
    read = opened.client.call("file_read", {"project": "again", "path": "/b/one.md"})
    assert read["content"] == opened.answers["store_read"]["content"]


def _command(directory: Path, name: str, *arguments: str) -> str:
    command = [installed_command(name), *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout
