"""Runs the commands of `armarium registry`, and prints results as tables or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import orjson
import typer

from armarium.capabilities.registry.commands import tables
from armarium.capabilities.registry.commands.project import RegistryProject
from armarium.capabilities.registry.values import SEVERITIES
from armarium.command_line.host import CommandHost
from armarium.command_line.output import FAILED, Misuse, count, say, show, show_json
from armarium.foundation.schema import Json

SEVERE_FINDINGS = 3
"""The exit code if a report has what `--fail-on` names."""
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

    def import_report(self, file: Path, wanted: Mapping[str, Any], fail_on: str | None, baseline: Path | None) -> None:
        threshold = _threshold(fail_on)
        if baseline is not None and threshold.counts != "new_by_severity":
            raise Misuse("--baseline needs --fail-on SEVERITY:new", hint="name the least severity that fails")
        data, known = _read(file), None if baseline is None else _read(baseline)
        arguments = {"file": str(file), **wanted}
        with _progress_bar() as on_progress:
            result = _run(lambda: self._project.import_report(data, arguments, on_progress, known))
        if self._as_json:
            show_json(result)
        else:
            self._show_scans(result, wanted["paths"])
        self._judge(result, threshold)

    def _judge(self, result: Json, threshold: _Threshold) -> None:
        """Exit with the code that `--fail-on` asks for."""
        failed = [scan["scan_source"] for scan in result["scans"] if scan["failed"]]
        severe = sum(scan[threshold.counts][each] for scan in result["scans"] for each in threshold.severities)
        if severe:
            new = "new " if threshold.counts == "new_by_severity" else ""
            say(f"{count(severe, f'{new}finding')} of severity {' or '.join(threshold.severities)}")
            raise typer.Exit(SEVERE_FINDINGS)
        if threshold.severities and failed:
            say(f"the run of {', '.join(failed)} failed, so its findings are not known")
            raise typer.Exit(FAILED)

    def export(self, wanted: Mapping[str, Any], output: Path | None) -> None:
        log = _run(lambda: self._project.export(wanted))
        if output is None or output == STANDARD_STREAM:
            show_json(log)
            return
        try:
            output.write_bytes(orjson.dumps(log, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        except OSError as error:
            raise Misuse(f"{output} cannot be written: {error.strerror}", hint="name another file") from error

    def _show_scans(self, result: Json, covers: Sequence[str] | None) -> None:
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


@dataclass(frozen=True, slots=True)
class _Threshold:
    """What `--fail-on` counts: findings of these severities, the new ones or all."""

    severities: Sequence[str] = ()
    counts: Literal["open_by_severity", "new_by_severity"] = "open_by_severity"


def _threshold(text: str | None) -> _Threshold:
    if text is None:
        return _Threshold()
    severity, colon, which = text.partition(":")
    if severity not in SEVERITIES or (colon and which != "new"):
        raise Misuse(f"--fail-on takes {', '.join(SEVERITIES)}, and :new", hint="for example --fail-on high:new")
    worse = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return _Threshold(worse, "new_by_severity" if colon else "open_by_severity")


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
