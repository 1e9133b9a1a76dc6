"""The reference pages are what the code says, and `--check` notices when they are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reference.reference_pages import pages
from reference.schema_tables import type_in_words

REPOSITORY = Path(__file__).parents[3]


def reference(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, REPOSITORY / "scripts/write-docs", *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages()


def test_the_pages_in_the_repository_are_not_stale() -> None:
    done = reference("--check")
    assert done.returncode == 0, f"{done.stderr}run `make docs`"


def test_a_page_that_is_stale_or_missing_is_named(tmp_path: Path) -> None:
    assert reference("--directory", tmp_path).returncode == 0
    assert reference("--check", "--directory", tmp_path).returncode == 0
    (tmp_path / "reference/errors.md").unlink()
    with (tmp_path / "reference/cli.md").open("a") as page:
        page.write("by hand\n")
    done = reference("--check", "--directory", tmp_path)
    assert done.returncode == 1
    assert [line.rpartition("/")[2] for line in done.stderr.splitlines()] == [
        "errors.md is stale",
        "cli.md is stale",
        "hint: make docs",
    ]


def test_the_schema_of_the_files_of_servers_is_what_the_command_prints(made: dict[str, str]) -> None:
    command = [sys.executable, "-m", "armarium.surfaces.cli.main", "config", "servers-schema"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(made["servers.schema.json"]) == json.loads(printed)
    assert "dataSources" in printed


def test_every_tool_is_described_with_arguments_and_answer(made: dict[str, str]) -> None:
    described = made["tools.md"]
    assert described.count("\n### ") == 49
    section = described[described.index("### grep") : described.index("### glob")]
    assert "| `context_lines` | integer, 0 to 1000 | `0` |" in section
    assert "| `matches[].line_number` | integer | yes |" in section


def test_of_a_span_only_the_kind_is_sure_because_it_has_several_forms(made: dict[str, str]) -> None:
    section = made["tools.md"].partition("### dir2mcp.search")[2]
    assert "| `hits[].span.kind` | `lines` or `page` or `time` | yes |" in section
    assert "| `hits[].span.page` | integer |  |" in section


def test_every_setting_has_its_default_and_its_meaning(made: dict[str, str]) -> None:
    assert "| `inactivity_timeout` | a duration such as 90s, 30m, 24h, 7d, or off | `24h` |" in made["settings.md"]
    assert "## `sandbox.roots[]`" in made["settings.md"]
    flat, _, dir2mcp = (
        made["settings.md"].partition("# The file of `mcp-filesystem`")[2].partition("# The file `.dir2mcp.yaml`")
    )
    assert "| `enabled` | true or false | `false` |" in flat
    assert "| `session_max_lifetime` | a duration such as 30m, 24h or 1h30m, or 0 for no limit | `0` |" in dir2mcp
    assert "## `rag`" not in dir2mcp, "sections of the corpus are described where the corpus is"
    assert made["settings.md"].count("- '**/id_rsa'") == 1, "a long list is shown once"
    rows = [line for line in made["settings.md"].splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


def test_every_error_has_a_meaning_and_no_code_appears_twice_in_a_section(made: dict[str, str]) -> None:
    for section in made["errors.md"].split("\n## ")[1:]:
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
        assert all(len(row[1]) > 5 for row in rows)
        assert len({row[0] for row in rows}) == len(rows)
    assert "| `PATH_ESCAPES_ROOT` |" in made["errors.md"]
    for owner, code in {"corpus": "INDEX_LOCKED", "models": "MISTRAL_AUTH", "retrieval": "EVAL_SET_UNREADABLE"}.items():
        section = made["errors.md"].partition(f"\n## {owner}\n")[2].partition("\n## ")[0]
        assert f"| `{code}` |" in section


def test_every_command_and_every_executable_is_described(made: dict[str, str]) -> None:
    for heading in ("armarium up", "armarium config print", "armarium install", "mcp-filesystem", "dir2mcp ask"):
        assert f"\n## {heading}\n" in made["cli.md"]


def test_options_that_all_commands_take_are_described_once(made: dict[str, str]) -> None:
    dir2mcp = made["cli.md"].partition("\n## dir2mcp\n")[2]
    assert dir2mcp.count("| `--state-dir PATH` |") == 1
    section = dir2mcp.partition("\n## dir2mcp reindex\n")[2].partition("\n## ")[0]
    assert "It also takes the options of `dir2mcp`." in section


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": "array", "items": {"type": "string"}}, "list of strings"),
        ({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}, "integer, at least 1"),
        ({"type": "integer", "minimum": 0, "maximum": 2**53 - 1}, "integer, at least 0"),
        ({"type": "integer", "maximum": 7}, "integer, at most 7"),
        ({"type": "number", "exclusiveMinimum": 0}, "number, more than 0"),
        ({"enum": ["a", "b"]}, "one of `a`, `b`"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "numbers by name"),
        ({"type": "object", "additionalProperties": False}, "object"),
        ({"$ref": "#/$defs/Thing"}, "object"),
        ({}, "any JSON"),
    ],
)
def test_types_are_said_in_words(schema: dict[str, object], words: str) -> None:
    assert type_in_words(schema, {"Thing": {"type": "object"}}) == words
