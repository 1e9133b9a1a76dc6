"""Runs the commands of `armarium registry`, and prints results as tables or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import orjson

from armarium.capabilities.registry.commands import tables
from armarium.capabilities.registry.commands.project import RegistryProject
from armarium.command_line.host import CommandHost
from armarium.command_line.output import Misuse, say, show, show_json
from armarium.foundation.schema import Json

STANDARD_STREAM = Path("-")
"""Standard input, in place of a file."""

_ResultT = TypeVar("_ResultT")


class Operations:
    """Calls tools in a project, and prints their results. `file` is a path or an id."""

    def __init__(self, host: CommandHost, directory: Path | None, *, as_json: bool) -> None:
        self._project, self._as_json = RegistryProject(host, directory), as_json

    def show_list(self, tool: str, wanted: Mapping[str, Any], file: str | None = None) -> None:
        page = _run(lambda: self._project.call(tool, wanted, file=file))
        self._show(page, lambda shown: tables.lines(tool, shown["results"]))
        if self._as_json:
            return
        end = page["offset"] + len(page["results"])
        if page["has_more"]:
            say(f"{page['offset'] + 1} to {end} of {page['total']}; --offset {end} shows the next")
        elif not page["results"]:
            say("no results" if not page["total"] else f"there are only {page['total']} results")

    def show_file(self, file: str) -> None:
        self._show(_run(lambda: self._project.call("get_file", {}, file=file)), tables.file_lines)

    def show_issue(self, issue_id: str) -> None:
        async def get() -> Json:
            issue = await self._project.call("get_issue", {"issue_id": issue_id})
            files = await self._project.call("get_issue_files", {"issue_id": issue_id})
            return issue | {"files": files["result"]}

        self._show(_run(get), tables.issue_lines)

    def change(self, tool: str, wanted: Mapping[str, Any], file: str | None = None) -> None:
        result = _run(lambda: self._project.call(tool, wanted, file=file))
        self._show(result, lambda changed: tables.changed_lines(tool, changed))

    def import_report(self, file: Path, form: str, source: str | None, covers: Sequence[str] | None) -> None:
        data = _read(file)
        arguments = {"file": str(file), "format": form, "scan_source": source, "paths": covers or None}
        with _progress_bar() as on_progress:
            result = _run(lambda: self._project.import_report(data, arguments, on_progress))
        if self._as_json:
            show_json(result)
            return
        for scan in result["scans"]:
            self._show(scan, tables.scan_lines)
            name = scan["scan_source"]
            if scan["failed"]:
                say(f"{name} reports that its run failed, so no finding was closed; scan again")
            elif not scan["files"] and not covers:
                say(f"{name} names no file, so no finding was closed; name the scanned paths with --covers")
        if not result["scans"]:
            say("the report contains no scan")

    def _show(self, result: Json, lines: Callable[[Json], Sequence[str]]) -> None:
        if self._as_json:
            show_json(result)
            return
        for line in lines(result):
            show(line)


def parse_metadata(text: str | None) -> object:
    """The value of `--metadata`. The tool checks that it is an object."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Misuse("--metadata is not JSON", hint="""write an object: --metadata '{"owner": "ada"}'""") from None


def _read(file: Path) -> bytes:
    if file == STANDARD_STREAM:
        if sys.stdin.isatty():
            raise Misuse("there is no report on standard input", hint="pipe one in, or name a file")
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}", hint="name the file that the scanner wrote") from error


@contextmanager
def _progress_bar() -> Generator[Callable[[int, int], None]]:
    """A listener that displays progress as a bar, at a terminal only."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Importing findings", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _run(work: Callable[[], Awaitable[_ResultT]]) -> _ResultT:
    return anyio.run(work, backend_options={"use_uvloop": True})
