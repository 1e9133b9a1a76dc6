"""What a person does with a registry besides serving it: ask the same tools, and bring in reports."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Sized
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from armarium.capabilities.registry.answers import Scanned, scan_answer
from armarium.capabilities.registry.entry import described_tools
from armarium.capabilities.registry.errors import NotFound, RegistryUnusable
from armarium.capabilities.registry.model import FileFilter, ScanReport
from armarium.capabilities.registry.reports.reading import ReportFormat, read_reports
from armarium.capabilities.registry.service import Registry, open_registry
from armarium.capabilities.registry.settings import DATABASE_NAME, STATE_DIRECTORY
from armarium.capabilities.registry.tools import registry_tools
from armarium.foundation.errors import ArmariumError
from armarium.foundation.identity import LOCAL
from armarium.foundation.schema import SchemaCheck
from armarium.foundation.tools import Call, Json

_HINT = "begin one: armarium registry import REPORT, armarium registry register FILE, or armarium up"


class RegistryChores:
    """The registry of one directory, opened for each thing that is asked of it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().absolute()

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Json:
        """What a tool answers, with its arguments checked as for every other caller; None is one that is not given."""
        given = {name: value for name, value in arguments.items() if value is not None}
        reads = any(each.name == tool and each.read_only for each in described_tools())
        async with self._opened(make=not reads) as registry:
            wanted = next(each for each in registry_tools(registry) if each.name == tool)
            try:
                SchemaCheck(wanted.input_schema).check(given)
                return await wanted.run(Call(LOCAL), given)
            except ArmariumError as error:
                raise wanted.errors.translate(error) from error

    async def file_id(self, file: str) -> str:
        """The id of a file that a person names by its path, or by its id already."""
        async with self._opened() as registry:
            path = file.removeprefix("./")
            page = await registry.list_files(FileFilter(path_prefix=path), sort="path", direction="asc", limit=1)
            if page.items and page.items[0].path == path:
                return page.items[0].id
            try:
                return (await registry.get_file(file)).file.id
            except NotFound as error:
                hint = "armarium registry files lists those that are known"
                raise NotFound("no file has this path or this id", hint=hint) from error

    async def import_reports(
        self,
        data: bytes,
        form: ReportFormat,
        *,
        source: str | None = None,
        covered: Sequence[str] | None = None,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Scanned]:
        """Take a report in, scanner by scanner: each whole or not at all. Progress is findings done, of how many."""
        reports = read_reports(data, form, source=source, covered=covered)
        total = sum(map(_size, reports))
        done, answers = 0, list[Scanned]()
        async with self._opened(make=True) as registry:
            for report in reports:
                before = done
                outcome = await registry.scan(
                    report, LOCAL.username, lambda count, before=before: on_progress(before + count, total)
                )
                answers.append(scan_answer(outcome))
                done += _size(report)
        return answers

    @asynccontextmanager
    async def _opened(self, *, make: bool = False) -> AsyncGenerator[Registry]:
        """The registry. Whoever only looks does not begin one in whatever directory that is."""
        if not make and self._directory.is_dir() and not (self._directory / STATE_DIRECTORY / DATABASE_NAME).exists():
            raise RegistryUnusable(f"there is no registry in {self._directory}", hint=_HINT)
        async with open_registry(self._directory) as registry:
            yield registry


def _size(report: ScanReport) -> int:
    return len(report.findings) if isinstance(report.findings, Sized) else 0
