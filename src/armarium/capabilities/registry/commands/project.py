"""The registry of a project directory, opened for one command. Calls pass through the host's dispatcher."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sized
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from armarium.capabilities.registry.arguments import ImportOptions
from armarium.capabilities.registry.errors import (
    KNOWN_FILES,
    KNOWN_FINDINGS,
    KNOWN_ISSUES,
    REGISTRY_ERRORS,
    NotFound,
    RegistryUnusable,
)
from armarium.capabilities.registry.lifespan import open_registry
from armarium.capabilities.registry.model import Imported, RegisteredFile, ScanReport
from armarium.capabilities.registry.ownership import require_own_registry
from armarium.capabilities.registry.paths import is_absolute
from armarium.capabilities.registry.reports.formats import read_reports
from armarium.capabilities.registry.reports.sarif_export import to_sarif
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import registry_file
from armarium.capabilities.registry.tools import TOOLS
from armarium.capabilities.registry.values import FindingStatus
from armarium.command_line.host import CommandHost
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool

_CREATE_HINT = "create one: armarium registry import REPORT, armarium registry register FILE, or armarium up"

_HINTS = {
    KNOWN_FILES: "`armarium registry files` lists them, `armarium registry register` registers one",
    KNOWN_FINDINGS: "`armarium registry findings` lists them",
    KNOWN_ISSUES: "`armarium registry issues` lists them, `armarium registry new-issue` creates one",
}
"""The hints of tools, with the commands that do the same."""


class _FileArgs(Args):
    """The file that a command is about, or the report that it reads."""

    file: str


class _ImportArgs(ImportOptions, _FileArgs):
    """The report of `armarium registry import`."""


class _ExportArgs(Args):
    """The findings of `armarium registry export`."""

    status: FindingStatus | None = None
    scan_source: str | None = None


class RegistryProject:
    def __init__(self, host: CommandHost, directory: Path | None = None) -> None:
        """Without a directory, use the nearest registry from the current directory upwards, as git does."""
        self._host = host
        here = Path.cwd()
        self._directory = directory.expanduser().absolute() if directory else _nearest_project(here) or here
        is_below = directory is None and here != self._directory
        self._subdirectory = str(here.relative_to(self._directory)) if is_below else ""
        """The current directory, relative to the project. Paths on the command line are relative to it."""

    async def call(self, tool: str, arguments: Mapping[str, Any], *, file: str | None = None) -> Json:
        """Call a tool. Arguments that are None are omitted; `file` is the path or the id of the file it is about."""
        values = dict(arguments)
        if path := values.get("path"):
            values["path"] = self._project_path(path)
        if file is not None:
            values["file_id"] = await self._file_id(file)
        declared = next(each for each in TOOLS if each.spec.name == tool)
        async with self._opened(read_only=declared.spec.read_only) as registry:
            return await self._run(declared.bind(registry), values)

    async def import_report(
        self,
        data: bytes,
        arguments: Mapping[str, Any],
        on_progress: Callable[[int, int], None],
        baseline: bytes | None = None,
    ) -> Json:
        """Import a scanner's report, all of its scans or none. Progress is the number of findings, and the total. What
        another report, the baseline, has is not new."""
        async with self._opened(read_only=False) as registry:

            async def import_scan_results(call: Call, args: _ImportArgs) -> Imported:
                """Import a report from a file."""
                reports, known = [self._in_project(each) for each in read_reports(data, args)], None
                if baseline is not None:
                    detected = args.model_copy(update={"format": "auto"})
                    known = [self._in_project(each) for each in read_reports(baseline, detected)]
                total = sum(len(report.findings) for report in reports if isinstance(report.findings, Sized))
                actor = call.principal.username
                scans = await registry.scan_all(reports, actor, lambda done: on_progress(done, total), known)
                return {"scans": scans}

            tool = local_tool("import_scan_results", import_scan_results, errors=REGISTRY_ERRORS, subject=("", "file"))
            return await self._run(tool, arguments)

    async def export(self, wanted: Mapping[str, Any]) -> Json:
        async with self._opened(read_only=True) as registry:

            async def export_findings(call: Call, args: _ExportArgs) -> Json:
                """Export findings."""
                return to_sarif(await registry.export_findings(status=args.status, scan_source=args.scan_source))

            tool = local_tool("export_findings", export_findings, read_only=True, errors=REGISTRY_ERRORS)
            return await self._run(tool, wanted)

    def _in_project(self, report: ScanReport) -> ScanReport:
        if not self._subdirectory:
            return report
        findings = [replace(finding, path=self._project_path(finding.path)) for finding in report.findings]
        covered = None if report.covered is None else tuple(map(self._project_path, report.covered))
        prefixes = {self._project_path(prefix): self._project_path(path) for prefix, path in report.prefixes.items()}
        return replace(report, findings=findings, covered=covered, prefixes=prefixes)

    async def _run(self, tool: ToolSpec, values: Mapping[str, Any]) -> Json:
        given = {name: value for name, value in values.items() if value is not None}
        try:
            return await self._host.call("registry", tool, given)
        except ArmariumError as error:
            raise error.with_context(hint=_HINTS.get(error.hint or "", error.hint)) from error

    async def _file_id(self, file: str) -> str:
        """The id of the file with this path or id. The lookup is recorded like the calls of tools."""
        async with self._opened(read_only=True) as registry:

            async def find_file(call: Call, args: _FileArgs) -> RegisteredFile:
                """Find a file by its path or id."""
                for name in dict.fromkeys((self._project_path(args.file), args.file)):
                    with suppress(NotFound):
                        return await registry.find_file(name)
                raise NotFound("no file has this path or this id", hint="armarium registry files lists the known files")

            tool = local_tool("find_file", find_file, read_only=True, errors=REGISTRY_ERRORS, subject=("", "file"))
            return (await self._run(tool, {"file": file}))["id"]

    def _project_path(self, path: str) -> str:
        return f"{self._subdirectory}/{path}" if self._subdirectory and not is_absolute(path) else path

    @asynccontextmanager
    async def _opened(self, *, read_only: bool) -> AsyncGenerator[Registry]:
        """The registry. A command that only reads does not create one."""
        if read_only and self._directory.is_dir() and not registry_file(self._directory).exists():
            raise RegistryUnusable(f"there is no registry in {self._directory}", hint=_CREATE_HINT)
        require_own_registry(registry_file(self._directory), found=True)
        async with open_registry(self._directory, read_only=read_only) as registry:
            yield registry


def _nearest_project(directory: Path) -> Path | None:
    """The nearest directory upwards with a registry of this user; others must not determine where commands write."""
    for candidate in (directory, *directory.parents):
        try:
            if registry_file(candidate).stat().st_uid == os.getuid():
                return candidate
        except OSError:
            continue
    return None
