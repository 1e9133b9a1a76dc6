"""Declares `armarium registry` and its options."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from armarium.capabilities.registry import values
from armarium.command_line.options import AsJson
from armarium.command_line.output import Misuse, show

if TYPE_CHECKING:
    from armarium.capabilities.registry.commands.operations import Operations

# Commands import what they need when they run: a server must start within a second, and most commands need little.

app = typer.Typer(rich_markup_mode=None)

Directory = Annotated[
    Path | None,
    Option(
        "--dir",
        metavar="DIR",
        help="The project. [default: the nearest directory upwards with a registry, or this one]",
    ),
]
File = Annotated[str, Argument(metavar="FILE", help="Path or id of the file.")]
Limit = Annotated[int, Option(metavar="N", help="At most N results.")]
Offset = Annotated[int, Option(metavar="N", help="Skip the first N results.")]
Source = Annotated[str | None, Option(metavar="NAME", help="Only findings of this scanner.")]
OfSeverity = Annotated[values.Severity | None, Option(help="Only files with open findings of this severity.")]
Title = Annotated[str | None, Option(metavar="TEXT", help="Title of the issue, on one line.")]
Body = Annotated[str | None, Option(metavar="TEXT", help="Description of the issue.")]
Priority = Annotated[int | None, Option(metavar="N", help="From 0, the most urgent, to 4.")]
Labels = Annotated[list[str] | None, Option("--label", metavar="WORD", help="Label of the issue; may be repeated.")]
ExternalRef = Annotated[
    str | None,
    Option("--ref", metavar="REF", help="The same issue in another tracker, such as github:owner/repo#12."),
]
IssueId = Annotated[str, Argument(metavar="ISSUE", help="Id of the issue.")]
FindingId = Annotated[str, Argument(metavar="FINDING", help="Id of the finding.")]


def _command(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declare a command on the registry of a project. It gets the operations, and has the flags of all commands."""

    def declare(command: Callable[..., None]) -> Callable[..., None]:
        def run(context: typer.Context, directory: Directory = None, as_json: AsJson = False, **given: Any) -> None:
            from armarium.capabilities.registry.commands.operations import Operations

            command(Operations(context.obj, directory, as_json=as_json), **given)

        context, *flags, _ = signature(run, eval_str=True).parameters.values()
        _, *own = signature(command, locals={"Operations": object}, eval_str=True).parameters.values()
        parameters = [context, *own, *flags]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        setattr(run, "__signature__", Signature(parameters))  # noqa: B010 functions declare no such attribute
        return app.command(name)(run)

    return declare


@app.callback(invoke_without_command=True)
def registry(context: typer.Context) -> None:
    """List and change findings of scanners in files, and the issues linked to them.

    \b
    Begin here:
      ruff check --output-format sarif | armarium registry import - --covers .
      armarium registry files --severity high
      armarium registry file src/app.py
      armarium registry promote FINDING

    The registry is stored in DIR/.armarium; servers and commands may use it at the same time. Without --dir, the
    nearest registry upwards from the current directory is used. Paths are relative to the current directory.
    """
    if context.invoked_subcommand is None:
        show(context.get_help())


@_command("files")
def list_files(
    operations: Operations,
    prefix: Annotated[str | None, Option(metavar="TEXT", help="Only paths with this prefix.")] = None,
    language: Annotated[str | None, Option(metavar="NAME", help="Only files in this language.")] = None,
    severity: OfSeverity = None,
    source: Source = None,
    min_findings: Annotated[int | None, Option(metavar="N", help="Only files with at least N open findings.")] = None,
    sort: Annotated[values.SortField, Option(help="Sort by this.")] = "updated_at",
    direction: Annotated[
        values.Direction | None, Option(help="Sort order. [default: asc for path and language, otherwise desc]")
    ] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> None:
    """List the registered files with the number of open findings in each.

    \b
    armarium registry files --severity critical
    armarium registry files --prefix src/ --sort path --json
    """
    wanted = {"path_prefix": prefix, "language": language, "has_severity": severity, "scan_source": source}
    wanted |= {"min_findings": min_findings, "sort": sort, "direction": direction, "limit": limit, "offset": offset}
    operations.show_list("list_files", wanted)


@_command("file")
def show_file(operations: Operations, file: File) -> None:
    """Show one file with its latest findings and the issues linked to it."""
    operations.show_file(file)


@_command("timeline")
def show_timeline(
    operations: Operations,
    file: File,
    kind: Annotated[values.EventKind | None, Option("--type", help="Only events of this type.")] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> None:
    """List the events of a file, newest first. A moved file keeps its history."""
    wanted = {"event_type": kind, "limit": limit, "offset": offset}
    operations.show_list("get_file_timeline", wanted, file)


@_command("findings")
def list_findings(
    operations: Operations,
    file: Annotated[str | None, Argument(metavar="[FILE]", help="Only findings in this file: its path or id.")] = None,
    status: Annotated[values.FindingStatus | None, Option(help="Only findings with this status.")] = None,
    severity: Annotated[values.Severity | None, Option(help="Only findings of this severity.")] = None,
    source: Source = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> None:
    """List findings with their ids, the most recently changed first."""
    wanted = {"status": status, "severity": severity, "scan_source": source, "limit": limit, "offset": offset}
    operations.show_list("list_findings", wanted, file)


@_command("judge")
def judge_finding(
    operations: Operations,
    finding: FindingId,
    status: Annotated[values.FindingStatus, Argument(help="The new status.")],
) -> None:
    """Set the status of a finding. Later scans do not change a false positive."""
    operations.change("update_finding", {"finding_id": finding, "status": status})


@_command("promote")
def promote_finding(
    operations: Operations,
    finding: FindingId,
    title: Title = None,
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    external_ref: ExternalRef = None,
) -> None:
    """Create an issue from a finding and link it to the file. Idempotent."""
    fields = {"finding_id": finding, "title": title, "body": body, "priority": priority, "external_ref": external_ref}
    operations.change("promote_finding", fields | {"labels": labels or None})


@_command("issues")
def list_issues(
    operations: Operations,
    status: Annotated[values.IssueStatus | None, Option(help="Only issues with this status.")] = None,
    label: Annotated[str | None, Option(metavar="WORD", help="Only issues with this label.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> None:
    """List issues, the most urgent first."""
    wanted = {"status": status, "label": label, "limit": limit, "offset": offset}
    operations.show_list("list_issues", wanted)


@_command("issue")
def show_issue(operations: Operations, issue: IssueId) -> None:
    """Show one issue and the files linked to it."""
    operations.show_issue(issue)


@_command("new-issue")
def create_issue(
    operations: Operations,
    title: Annotated[str, Argument(metavar="TITLE", help="Title of the issue, on one line.")],
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    external_ref: ExternalRef = None,
) -> None:
    """Create an issue. `armarium registry link` links files to it."""
    fields = {"title": title, "body": body, "priority": priority, "external_ref": external_ref}
    operations.change("create_issue", fields | {"labels": labels or None})


@_command("update-issue")
def update_issue(
    operations: Operations,
    issue: IssueId,
    status: Annotated[values.IssueStatus | None, Option(help="The new status.")] = None,
    title: Title = None,
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    no_labels: Annotated[bool, Option("--no-labels", help="Remove all labels.")] = False,
    external_ref: ExternalRef = None,
) -> None:
    """Change the given fields of an issue. Labels replace the earlier ones."""
    if labels and no_labels:
        raise Misuse("--label does not go with --no-labels", hint="--label replaces the earlier labels")
    fields = {"title": title, "body": body, "status": status, "priority": priority, "external_ref": external_ref}
    labels = [] if no_labels else labels or None
    operations.change("update_issue", fields | {"issue_id": issue, "labels": labels})


@_command("link")
def link(
    operations: Operations,
    file: File,
    issue: IssueId,
    kind: Annotated[values.AssocType, Option("--as", help="How the file is related to the issue.")] = "task_for",
) -> None:
    """Link a file to an issue."""
    wanted = {"issue_id": issue, "assoc_type": kind}
    operations.change("add_file_association", wanted, file)


@_command("register")
def register_file(
    operations: Operations,
    path: Annotated[str, Argument(metavar="PATH", help="Relative to DIR; the file need not exist yet.")],
    language: Annotated[
        str | None, Option(metavar="NAME", help="Language of the file. [default: detected from the name]")
    ] = None,
    file_type: Annotated[str | None, Option("--type", metavar="NAME", help="Type of the file.")] = None,
    metadata: Annotated[
        str | None,
        Option(metavar="JSON", help="Further metadata as a JSON object; replaces the earlier metadata."),
    ] = None,
) -> None:
    """Register a file, or change its record, and print its id."""
    from armarium.capabilities.registry.commands.operations import parse_metadata

    wanted = {"path": path, "language": language, "file_type": file_type, "metadata": parse_metadata(metadata)}
    operations.change("register_file", wanted)


@_command("import")
def import_report(
    operations: Operations,
    file: Annotated[Path, Argument(metavar="REPORT", help="Report of a scanner; - is standard input.")],
    form: Annotated[values.ReportFormat, Option("--format", help="Format of the report.")] = "auto",
    source: Annotated[
        str | None, Option(metavar="NAME", help="Name of the scanner. [default: its name in the report]")
    ] = None,
    covers: Annotated[
        list[str] | None,
        Option(metavar="PATH", help="Scanned path; may be repeated. [default: the files in the report]"),
    ] = None,
    category: Annotated[
        str | None,
        Option(metavar="NAME", help="Only findings of the same category are closed. [default: the one in the report]"),
    ] = None,
    maps: Annotated[
        list[str] | None,
        Option("--map", metavar="PREFIX=PATH", help="Where paths of another machine are in DIR; may be repeated."),
    ] = None,
    fail_on: Annotated[
        str | None,
        Option(metavar="SEVERITY[:new]", help="Exit with 3 if the report has an open finding as severe, or a new one."),
    ] = None,
    baseline: Annotated[
        Path | None,
        Option(metavar="FILE", help="With :new, report to compare with. [default: the previous report]"),
    ] = None,
) -> None:
    """Import the report of a scanner: SARIF 2.1.0, gitleaks' JSON, or Armarium's own format. It may be gzipped.

    Earlier findings of the same scanner that are missing in this report are closed as fixed, if they are in scanned
    files: those that the report names, or those below --covers. Findings that occur again are reopened. The report of a
    failed run closes nothing. A report is imported atomically, with all its scanners.

    Absolute paths of another machine are recognised if most of the files exist below DIR; --map names the prefix
    otherwise. A report of which no result is in a file of DIR is refused.

    With --fail-on, the exit code is 3 if the report has an open finding of this severity or a worse one, and 1 if a
    scanner reports that it failed. With :new, only findings count that the previous report of the same scanner and
    category, or FILE, did not have.

    \b
    ruff check --output-format sarif | armarium registry import - --covers .
    bandit -r src -f sarif -o bandit.sarif; armarium registry import bandit.sarif --covers src
    gitleaks dir --report-path leaks.json; armarium registry import leaks.json --covers .
    armarium registry import eslint.sarif.gz --covers . --map /builds/app=. --fail-on high:new
    """
    wanted = {"format": form, "scan_source": source or None, "category": category}
    wanted |= {"paths": covers or None, "map": maps or None}
    operations.import_report(file, wanted, fail_on, baseline)


@_command("export")
def export_findings(
    operations: Operations,
    form: Annotated[Literal["sarif"], Option("--format", help="Format of the output.")] = "sarif",
    status: Annotated[
        values.FindingStatus | None,
        Option(help="Only findings with this status. [default: open and false_positive]"),
    ] = None,
    source: Source = None,
    output: Annotated[Path | None, Option(metavar="FILE", help="File to write. [default: standard output]")] = None,
) -> None:
    """Print findings as SARIF 2.1.0, with a run for each scanner and category. False positives are suppressed results.

    \b
    armarium registry export > findings.sarif
    armarium registry import new.sarif --fail-on high:new --baseline findings.sarif
    """
    operations.export({"status": status, "scan_source": source}, output)
