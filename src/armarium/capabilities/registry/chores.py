"""What a person does with a registry besides serving it: ask the same tools, and bring in reports."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Sized
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from armarium.capabilities.registry.answer_shapes import Scanned
from armarium.capabilities.registry.answers import scan_answer
from armarium.capabilities.registry.checks import problem_of
from armarium.capabilities.registry.errors import NotFound, RegistryUnusable
from armarium.capabilities.registry.manifest import described_tools
from armarium.capabilities.registry.model import ReportFormat, ScanReport
from armarium.capabilities.registry.opening import open_registry
from armarium.capabilities.registry.paths import is_absolute
from armarium.capabilities.registry.reports.reading import read_reports
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import registry_file
from armarium.capabilities.registry.tools import registry_tools
from armarium.capability import CheckResult
from armarium.foundation.errors import ArmariumError
from armarium.foundation.identity import LOCAL
from armarium.foundation.schema import Json, SchemaCheck
from armarium.foundation.tools import Call, Relayed

_HINT = "begin one: armarium registry import REPORT, armarium registry register FILE, or armarium up"

_COMMANDS = {
    "list_files": "files",
    "register_file": "register",
    "list_findings": "findings",
    "list_issues": "issues",
    "create_issue": "new-issue",
}
_TOOL = re.compile(rf"\b({'|'.join(_COMMANDS)})\b")


class RegistryChores:
    """The registry of one directory, opened for each thing that is asked of it."""

    def __init__(self, directory: Path | None = None) -> None:
        """Without a directory, the nearest registry from here upwards, as git finds its own; none is begun there."""
        self._below = ""
        """Where we are in the project, which is what paths begin at; "" is the project itself."""
        if directory is not None:
            self._directory = directory.expanduser().absolute()
            return
        here = Path.cwd()
        self._directory = nearest(here) or here
        if self._directory != here:
            self._below = str(here.relative_to(self._directory))

    @property
    def exists(self) -> bool:
        """Whether there is a registry."""
        return registry_file(self._directory).exists()

    def problem(self) -> CheckResult | None:
        """Why the registry cannot be used, if there is one that cannot."""
        file = registry_file(self._directory)
        if file.is_symlink() or file.parent.is_symlink():
            return CheckResult("registry", "fail", f"{file} is a link", "remove it; the registry makes its own files")
        return problem_of(file) if self.exists else None

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Json:
        """What a tool answers, with its arguments checked as for every other caller; None is one that is not given."""
        given = {name: value for name, value in arguments.items() if value is not None}
        if isinstance(given.get("path"), str) and given["path"]:
            given["path"] = self.from_here(given["path"])
        reads = any(each.name == tool and each.read_only for each in described_tools())
        async with self._opened(read_only=reads) as registry:
            wanted = next(each for each in registry_tools(registry) if each.name == tool)
            try:
                SchemaCheck(wanted.input_schema).check(given)
                answer = await wanted.run(Call(LOCAL), given)
            except ArmariumError as error:
                raise _for_a_person(wanted.errors.translate(error)) from error
            assert not isinstance(answer, Relayed), "the registry's own tools answer themselves"
            return answer

    async def file_id(self, file: str) -> str:
        """The id of a file that a person names by its path, or by its id already."""
        async with self._opened(read_only=True) as registry:
            for name in dict.fromkeys((self.from_here(file), file)):
                with suppress(NotFound):
                    return (await registry.find_file(name)).id
        hint = "armarium registry files lists those that are known"
        raise NotFound("no file has this path or this id", hint=hint)

    def from_here(self, path: str) -> str:
        """A path as a person at this place writes it, relative to the project instead: git does so as well."""
        return f"{self._below}/{path}" if self._below and not is_absolute(path) else path

    async def import_reports(
        self,
        data: bytes,
        form: ReportFormat,
        *,
        source: str | None = None,
        covered: Sequence[str] | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Scanned]:
        """Take a report in, of all its scanners or of none. Progress is findings done, of how many."""
        reports = list(map(self._report_from_here, read_reports(data, form, source=source, covered=covered)))
        total = sum(map(_size, reports))
        async with self._opened(read_only=False) as registry:
            outcomes = await registry.scan_all(reports, LOCAL.username, lambda done: on_progress(done, total))
        return list(map(scan_answer, outcomes))

    def _report_from_here(self, report: ScanReport) -> ScanReport:
        if not self._below:
            return report
        findings = [replace(finding, path=self.from_here(finding.path)) for finding in report.findings]
        covered = None if report.covered is None else tuple(map(self.from_here, report.covered))
        return replace(report, findings=findings, covered=covered)

    @asynccontextmanager
    async def _opened(self, *, read_only: bool) -> AsyncGenerator[Registry]:
        """The registry. Whoever only looks does not begin one in whatever directory that is."""
        if read_only and self._directory.is_dir() and not registry_file(self._directory).exists():
            raise RegistryUnusable(f"there is no registry in {self._directory}", hint=_HINT)
        async with open_registry(self._directory, read_only=read_only) as registry:
            yield registry


def _for_a_person(error: ArmariumError) -> ArmariumError:
    """The error with a hint that names commands, where it named tools."""
    if not error.hint:
        return error
    return error.with_context(hint=_TOOL.sub(lambda tool: f"`armarium registry {_COMMANDS[tool[0]]}`", error.hint))


def nearest(here: Path) -> Path | None:
    """The directory from here upwards that has a registry of this user's own; others do not choose what is written."""
    for directory in (here, *here.parents):
        try:
            if registry_file(directory).stat().st_uid == os.getuid():
                return directory
        except OSError:
            continue
    return None


def _size(report: ScanReport) -> int:
    return len(report.findings) if isinstance(report.findings, Sized) else 0
