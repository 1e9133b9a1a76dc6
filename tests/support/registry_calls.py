"""Calls of the registry's tools, through a client and through the service, for tests."""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import mcp_types as types

from armarium.capabilities.registry.model import FileFilter, ListedFile, ReportEntry, Scanned, ScanReport
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.values import SEVERITIES
from support.client import ToolClient, texts_of
from support.server import ServerProcess, installed_command, write_config

Json = dict[str, Any]
ACTOR = "keeper"

_areas = itertools.count()


@dataclass(frozen=True)
class ServedProject:
    """A running server and its project."""

    server: ServerProcess
    directory: Path

    @classmethod
    @contextmanager
    def started(cls, base: Path) -> Generator[Self]:
        """`armarium serve` with only a registry."""
        directory = base / "Light House"
        directory.mkdir(exist_ok=True)
        config = {
            "state_dir": str(base / "state"),
            "server": {"port": 0},
            "security": {"auth": "none"},
            "registry": {"project": str(directory)},
        }
        command = [installed_command("armarium"), "serve", "--config", str(write_config(base, config))]
        with ServerProcess(command) as server:
            yield cls(server, directory)


class Calls:
    """The calls of one client, in a directory that no other test uses."""

    def __init__(self, client: ToolClient) -> None:
        self.client = client
        self.area = f"area{next(_areas)}"

    async def ok(self, tool: str, /, **arguments: Any) -> Any:
        """The result of a call that must succeed. Text and structured content must be equal."""
        result = await self.client.result(tool, arguments)
        assert not result.is_error, f"{tool} failed: {result.structured_content}"
        (text,) = texts_of(result)
        assert result.structured_content is not None
        answer = json.loads(text)
        assert result.structured_content == ({"result": answer} if isinstance(answer, list) else answer)
        return answer

    async def code(self, tool: str, /, **arguments: Any) -> str:
        """The code of a call that must fail, with the contract's envelope and nothing else."""
        return error_of(await self.client.result(tool, arguments))["code"]

    async def register(self, name: str, **more: Any) -> Json:
        """Register a file in the test's own directory."""
        return await self.ok("register_file", path=f"{self.area}/{name}", **more)

    async def report(self, *found: Json, source: str = "ruff", **more: Any) -> Json:
        """Report findings in the test's own directory."""
        placed = [{"rule_id": "R1", "message": "bad", **each, "path": f"{self.area}/{each['path']}"} for each in found]
        return await self.ok("report_findings", scan_source=source, findings=placed, **more)

    async def listed(self, **arguments: Any) -> Json:
        """The files of the test's own directory."""
        return await self.ok("list_files", **{"path_prefix": f"{self.area}/"} | arguments)

    async def names(self, **arguments: Any) -> list[str]:
        """Their paths in that directory."""
        return [file["path"].removeprefix(f"{self.area}/") for file in (await self.listed(**arguments))["results"]]

    async def findings_of(self, file_id: str) -> list[Json]:
        """The findings of a file."""
        return (await self.ok("list_findings", file_id=file_id))["results"]


def error_of(result: types.CallToolResult) -> Json:
    """The envelope of a failed call."""
    assert result.is_error, f"should have failed, but answered {result.structured_content}"
    error = result.structured_content
    assert error is not None
    assert set(error) == {"error", "code"}
    assert isinstance(error["error"], str)
    assert error["error"]
    (text,) = texts_of(result)
    assert json.loads(text) == error
    return error


def found(path: str, rule: str = "R1", line: int | None = 1, **more: Any) -> ReportEntry:
    """A finding as a report states it."""
    return ReportEntry(path, rule, **{"message": f"{rule} is broken", "line_start": line} | more)


async def scanned(
    registry: Registry, *findings: ReportEntry, source: str = "ruff", covered: tuple[str, ...] | None = None
) -> Scanned:
    """What a scan with these findings changes."""
    return await registry.scan(ScanReport(source, findings, covered), ACTOR)


async def all_files(registry: Registry, wanted: FileFilter | None = None) -> list[ListedFile]:
    """Every file, by path."""
    return (await registry.list_files(wanted or FileFilter(), sort="path", limit=10000))["results"]


async def file_at(registry: Registry, path: str) -> ListedFile:
    """The file at a path."""
    [record] = [file for file in await all_files(registry) if file["path"] == path]
    return record


async def is_removed(registry: Registry, file_id: str) -> bool:
    """Whether the file is removed, by its timeline and by the list."""
    events = (await registry.timeline(file_id, kind="file_metadata_update", limit=10000))["results"]
    removals = [event["data"]["new_value"] for event in events if event["data"]["field"] == "removed"]
    removed = bool(removals) and removals[0]
    assert removed == (file_id not in {file["id"] for file in await all_files(registry)})
    return removed


def summary(total: int, still_open: int, **by_severity: int) -> Json:
    """The counts of a file's findings."""
    counts = dict.fromkeys(SEVERITIES, 0) | by_severity
    return {"total_findings": total, "open_findings": still_open, **counts}


def skipped(outcome: Scanned) -> dict[str, int]:
    """How many findings or scanned paths were skipped, by reason."""
    return {each["reason"]: each["count"] for each in outcome["skipped"]}
