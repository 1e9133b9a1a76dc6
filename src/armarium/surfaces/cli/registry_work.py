"""Does what `armarium registry` is asked for, and shows the answers as tables, or as the JSON they are."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import orjson

from armarium.assembly import registry_chores
from armarium.foundation.schema import Json
from armarium.surfaces.cli import registry_tables
from armarium.surfaces.cli.output import Misuse, say, show, show_json

STANDARD = Path("-")
"""Standard input, in place of a file."""

_Answer = TypeVar("_Answer")


def show_list(
    directory: Path | None, tool: str, wanted: Mapping[str, Any], *, file: str | None = None, as_json: bool
) -> None:
    """A page of a list, and how to get the next."""
    page = _run(lambda: _called(directory, tool, wanted, file))
    if as_json:
        show_json(page)
        return
    for line in registry_tables.lines(tool, page["results"]):
        show(line)
    shown = page["offset"] + len(page["results"])
    if page["has_more"]:
        say(f"{page['offset'] + 1} to {shown} of {page['total']}; --offset {shown} shows the next")
    elif not page["results"]:
        say("nothing fits" if not page["total"] else f"there are only {page['total']}")


def show_file(directory: Path | None, file: str, *, as_json: bool) -> None:
    """One file with everything around it."""
    answer = _run(lambda: _called(directory, "get_file", {}, file))
    _shown(answer, registry_tables.file_lines, as_json=as_json)


def show_issue(directory: Path | None, issue_id: str, *, as_json: bool) -> None:
    """One issue with its files."""

    async def ask() -> Json:
        chores = registry_chores(directory)
        issue = await chores.call("get_issue", {"issue_id": issue_id})
        files = await chores.call("get_issue_files", {"issue_id": issue_id})
        return issue | {"files": files["result"]}

    _shown(_run(ask), registry_tables.issue_lines, as_json=as_json)


def change(
    directory: Path | None, tool: str, wanted: Mapping[str, Any], *, file: str | None = None, as_json: bool
) -> None:
    """Change something, and show what it is now."""
    answer = _run(lambda: _called(directory, tool, wanted, file))
    _shown(answer, lambda changed: registry_tables.changed_lines(tool, changed), as_json=as_json)


def issue_fields(
    title: str | None,
    body: str | None,
    priority: int | None,
    labels: Sequence[str] | None,
    external_ref: str | None,
    *,
    no_labels: bool = False,
) -> Json:
    """What a person says of an issue, as the tools take it."""
    if labels and no_labels:
        raise Misuse("--label does not go with --no-labels", hint="labels replace those that were there")
    said = {"title": title, "body": body, "priority": priority, "external_ref": external_ref}
    return said | {"labels": list(labels) if labels else [] if no_labels else None}


def parsed_metadata(text: str | None) -> object:
    """The JSON that was typed; whether it is an object is the tool's to say."""
    if text is None:
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        raise Misuse("--metadata is not JSON", hint="""write an object: --metadata '{"owner": "ada"}'""") from None


def import_report(
    directory: Path | None,
    file: Path,
    form: Literal["auto", "sarif", "gitleaks", "armarium"],
    source: str | None,
    covers: Sequence[str] | None,
    *,
    as_json: bool,
) -> None:
    """Take in a report, with a bar for whoever waits at a terminal."""
    data = _content(file)
    with _progress_bar() as on_progress:
        scans = _run(
            lambda: registry_chores(directory).import_reports(
                data, form, source=source, covered=covers or None, on_progress=on_progress
            )
        )
    if as_json:
        show_json({"scans": scans})
        return
    for scan in scans:
        for line in registry_tables.scan_lines(scan):
            show(line)
        if scan["failed"]:
            say(f"{scan['scan_source']} says that its run failed, so nothing was closed; mend it and scan again")
        elif not scan["files"] and not covers:
            say(f"{scan['scan_source']} names no file, so nothing was closed; --covers says what it looked at")
    if not scans:
        say("the report has no scan in it")


async def _called(directory: Path | None, tool: str, wanted: Mapping[str, Any], file: str | None) -> Json:
    chores = registry_chores(directory)
    about = {} if file is None else {"file_id": await chores.file_id(file)}
    return await chores.call(tool, {**about, **wanted})


def _shown(answer: Json, lines: Callable[[Json], Sequence[str]], *, as_json: bool) -> None:
    if as_json:
        show_json(answer)
        return
    for line in lines(answer):
        show(line)


def _content(file: Path) -> bytes:
    if file == STANDARD:
        if sys.stdin.isatty():
            raise Misuse("there is no report on standard input", hint="pipe one in, or name a file")
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise Misuse(f"{file} cannot be read: {error.strerror}", hint="name the file that the scanner wrote") from error


@contextmanager
def _progress_bar() -> Generator[Callable[[int, int], None]]:
    """Where to say how far it is: a bar on a terminal; a log or a pipe hears only of the end."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Taking findings in", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _run(work: Callable[[], Awaitable[_Answer]]) -> _Answer:
    return anyio.run(work, backend_options={"use_uvloop": True})
