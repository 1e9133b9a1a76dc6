"""Calls of the corpus's tools and of the `dir2mcp` command, and access to what is stored."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from support.client import ToolClient, texts_of
from support.server import installed_command
from support.waiting import eventually

COMMAND_DEADLINE_S = 60.0

Json = dict[str, Any]

WITHOUT_WATCHING = {"DIR2MCP_INGEST__WATCH": "false"}
"""For servers whose files do not change: without a watcher to wait for, they end sooner."""

HANDBOOK = """\
# Handbook

## Lamp

The lamp is lit at dusk by the keeper. Its lens turns once in thirty seconds, so that ships know which light they see.
The wick is trimmed at midnight, and the glass is wiped with spirit whenever salt has dried on it.

## Fog

In fog the horn sounds every two minutes. The horn runs on compressed air from the cellar, where two tanks are kept.
When the tanks are empty the bell is rung by hand, once a minute, until the pump has filled them again.

## Supplies

The supply boat comes on Mondays with oil and bread. In winter it may stay away for weeks, so oil is kept for four.
"""
LAMP = """\
class Lamp:
    def rotate_lens(self, seconds: float) -> None:
        self.motor.run(360 / seconds)
"""


def write_lighthouse(directory: Path) -> None:
    """Write a few files of prose and code to search."""
    directory.mkdir(parents=True)
    (directory / "handbook.md").write_text(HANDBOOK)
    (directory / "lamp.py").write_text(LAMP)
    (directory / "notes.txt").write_text("The harbour master wants a list of all ships by Friday.\n")


async def answer(client: ToolClient, tool: str, **arguments: Any) -> Json:
    """The result of a call that must succeed."""
    result = await client.result(f"dir2mcp.{tool}", arguments)
    assert not result.is_error, result.structured_content
    return result.structured_content or {}


async def refusal(client: ToolClient, tool: str, **arguments: Any) -> Json:
    """The error of a call that must fail."""
    result = await client.result(f"dir2mcp.{tool}", arguments)
    assert result.is_error, result.structured_content
    error: Json = (result.structured_content or {})["error"]
    assert set(error) == {"code", "message", "retryable"}
    (text,) = texts_of(result)
    assert text.startswith(f"ERROR: {error['code']}: ")
    return error


async def hits(client: ToolClient, query: str, **arguments: Any) -> list[Json]:
    """The hits of a search."""
    return (await answer(client, "search", query=query, **arguments))["hits"]


async def paths_found(client: ToolClient, word: str) -> list[str]:
    """The files whose snippets contain a word."""
    return [hit["rel_path"] for hit in await hits(client, word, k=5) if word in hit["snippet"]]


async def until_found(client: ToolClient, word: str, expected: list[str]) -> float:
    """How long it takes until a search for a word finds exactly these files."""
    began = time.monotonic()

    async def is_found() -> bool:
        return await paths_found(client, word) == expected

    await eventually(is_found, what=f"{word} finds {expected}")
    return time.monotonic() - began


async def listed(client: ToolClient) -> list[str]:
    """The paths of all documents."""
    return [file["rel_path"] for file in (await answer(client, "list_files"))["files"]]


async def opened_at(client: ToolClient, hit: Json) -> str:
    """The content that open_file returns for the position of a hit."""
    span = hit["span"]
    where = {name: span[name] for name in ("start_line", "end_line", "page") if name in span}
    return (await answer(client, "open_file", rel_path=hit["rel_path"], **where))["content"]


def shown_part(hit: Json) -> str:
    """The snippet without the marks where it was cut."""
    return hit["snippet"].removeprefix("… ").removesuffix(" …")


def run_dir2mcp(
    command: str, directory: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MISTRAL_", "DIR2MCP_"))}
    return subprocess.run(
        [installed_command("dir2mcp"), command, "--dir", str(directory), "--non-interactive", "--trust", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_DEADLINE_S,
        check=False,
        env={**kept, **(environ or {})},
    )


def rows(state_dir: Path, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
    """Rows of `meta.sqlite`."""
    database = sqlite3.connect(state_dir / "meta.sqlite")
    try:
        return database.execute(statement, parameters).fetchall()
    finally:
        database.close()


def stored_settings(state_dir: Path) -> dict[str, str]:
    """The notes stored with the index."""
    return dict(rows(state_dir, "SELECT key, value FROM settings"))


def everything_in(directory: Path) -> bytes:
    """The content of every file below a directory."""
    return b"\n".join(file.read_bytes() for file in sorted(directory.rglob("*")) if file.is_file())
