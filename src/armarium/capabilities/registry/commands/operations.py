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
from armarium.command_line.output import Misuse, say, show, show_json
from armarium.foundation.schema import Json

STANDARD_STREAM = Path("-")
"""Standard input, in place of a file."""

_ResultT = TypeVar("_ResultT")


def show_list(
    project: RegistryProject, tool: str, wanted: Mapping[str, Any], *, file: str | None = None, as_json: bool
) -> None:
    """Print a page of a list, and how to get the next one."""
    page = _run(lambda: project.call(tool, wanted, file=file))
    if as_json:
        show_json(page)
        return
    for line in tables.lines(tool, page["results"]):
        show(line)
    shown = page["offset"] + len(page["results"])
    if page["has_more"]:
        say(f"{page['offset'] + 1} to {shown} of {page['total']}; --offset {shown} shows the next")
    elif not page["results"]:
        say("no results" if not page["total"] else f"there are only {page['total']} results")


def show_file(project: RegistryProject, file: str, *, as_json: bool) -> None:
    """Print one file with its findings and issues."""
    result = _run(lambda: project.call("get_file", {}, file=file))
    _show(result, tables.file_lines, as_json=as_json)


def show_issue(project: RegistryProject, issue_id: str, *, as_json: bool) -> None:
    """Print one issue with its files."""

    async def get() -> Json:
        issue = await project.call("get_issue", {"issue_id": issue_id})
        files = await project.call("get_issue_files", {"issue_id": issue_id})
        return issue | {"files": files["result"]}

    _show(_run(get), tables.issue_lines, as_json=as_json)


def change(
    project: RegistryProject, tool: str, wanted: Mapping[str, Any], *, file: str | None = None, as_json: bool
) -> None:
    """Call a tool that changes something, and print the result."""
    result = _run(lambda: project.call(tool, wanted, file=file))
    _show(result, lambda changed: tables.changed_lines(tool, changed), as_json=as_json)


def issue_fields(
    title: str | None,
    body: str | None,
    priority: int | None,
    labels: Sequence[str] | None,
    external_ref: str | None,
    *,
    no_labels: bool = False,
) -> Json:
    """The options that describe an issue, as arguments of the tools."""
    if labels and no_labels:
        raise Misuse("--label does not go with --no-labels", hint="--label replaces the earlier labels")
    fields = {"title": title, "body": body, "priority": priority, "external_ref": external_ref}
    return fields | {"labels": list(labels) if labels else [] if no_labels else None}


def parse_metadata(text: str | None) -> object:
    """The value of `--metadata`. The tool checks that it is an object."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Misuse("--metadata is not JSON", hint="""write an object: --metadata '{"owner": "ada"}'""") from None


def import_report(
    project: RegistryProject,
    file: Path,
    form: str,
    source: str | None,
    covers: Sequence[str] | None,
    *,
    as_json: bool,
) -> None:
    """Import a report, with a progress bar at a terminal."""
    data = _read(file)
    arguments = {"file": str(file), "format": form, "scan_source": source, "paths": list(covers) if covers else None}
    with _progress_bar() as on_progress:
        scans = _run(lambda: project.import_report(data, arguments, on_progress))["scans"]
    if as_json:
        show_json({"scans": scans})
        return
    for scan in scans:
        for line in tables.scan_lines(scan):
            show(line)
        if scan["failed"]:
            say(f"{scan['scan_source']} reports that its run failed, so no finding was closed; scan again")
        elif not scan["files"] and not covers:
            say(f"{scan['scan_source']} names no file, so no finding was closed; name the scanned paths with --covers")
    if not scans:
        say("the report contains no scan")


def _show(result: Json, lines: Callable[[Json], Sequence[str]], *, as_json: bool) -> None:
    if as_json:
        show_json(result)
        return
    for line in lines(result):
        show(line)


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
