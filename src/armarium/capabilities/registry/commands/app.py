"""Declares `armarium registry` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from armarium.command_line.options import AsJson
from armarium.command_line.output import Misuse, show

if TYPE_CHECKING:
    from armarium.capabilities.registry.commands.operations import Operations

# Commands import what they need when they run: a server must start within a second, and most commands need little.

app = typer.Typer(rich_markup_mode=None)

Severity = Literal["critical", "high", "medium", "low", "info"]
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
OfSeverity = Annotated[Severity | None, Option(help="Only files with open findings of this severity.")]
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


def _operations(context: typer.Context, directory: Path | None, as_json: bool) -> Operations:
    from armarium.capabilities.registry.commands.operations import Operations

    return Operations(context.obj, directory, as_json=as_json)


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


@app.command("files")
def list_files(
    context: typer.Context,
    prefix: Annotated[str | None, Option(metavar="TEXT", help="Only paths with this prefix.")] = None,
    language: Annotated[str | None, Option(metavar="NAME", help="Only files in this language.")] = None,
    severity: OfSeverity = None,
    source: Source = None,
    min_findings: Annotated[int | None, Option(metavar="N", help="Only files with at least N open findings.")] = None,
    sort: Annotated[
        Literal["updated_at", "first_seen", "path", "language"], Option(help="Sort by this.")
    ] = "updated_at",
    direction: Annotated[
        Literal["asc", "desc"] | None,
        Option(help="Sort order. [default: asc for path and language, otherwise desc]"),
    ] = None,
    limit: Limit = 100,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List the registered files with the number of open findings in each.

    \b
    armarium registry files --severity critical
    armarium registry files --prefix src/ --sort path --json
    """
    wanted = {"path_prefix": prefix, "language": language, "has_severity": severity, "scan_source": source}
    wanted |= {"min_findings": min_findings, "sort": sort, "direction": direction, "limit": limit, "offset": offset}
    _operations(context, directory, as_json).show_list("list_files", wanted)


@app.command("file")
def show_file(context: typer.Context, file: File, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show one file with its latest findings and the issues linked to it."""
    _operations(context, directory, as_json).show_file(file)


@app.command("timeline")
def show_timeline(
    context: typer.Context,
    file: File,
    kind: Annotated[
        Literal["finding", "association", "file_metadata_update"] | None,
        Option("--type", help="Only events of this type."),
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List the events of a file, newest first. A moved file keeps its history."""
    wanted = {"event_type": kind, "limit": limit, "offset": offset}
    _operations(context, directory, as_json).show_list("get_file_timeline", wanted, file)


@app.command("findings")
def list_findings(
    context: typer.Context,
    file: Annotated[str | None, Argument(metavar="[FILE]", help="Only findings in this file: its path or id.")] = None,
    status: Annotated[
        Literal["open", "fixed", "false_positive"] | None, Option(help="Only findings with this status.")
    ] = None,
    severity: Annotated[Severity | None, Option(help="Only findings of this severity.")] = None,
    source: Source = None,
    limit: Limit = 100,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List findings with their ids, the most recently changed first."""
    wanted = {"status": status, "severity": severity, "scan_source": source, "limit": limit, "offset": offset}
    _operations(context, directory, as_json).show_list("list_findings", wanted, file)


@app.command("judge")
def judge_finding(
    context: typer.Context,
    finding: FindingId,
    status: Annotated[Literal["false_positive", "fixed", "open"], Argument(help="The new status.")],
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Set the status of a finding. Later scans do not change a false positive."""
    _operations(context, directory, as_json).change("update_finding", {"finding_id": finding, "status": status})


@app.command("promote")
def promote_finding(
    context: typer.Context,
    finding: FindingId,
    title: Title = None,
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    external_ref: ExternalRef = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Create an issue from a finding and link it to the file. Idempotent."""
    fields = {"finding_id": finding, "title": title, "body": body, "priority": priority, "external_ref": external_ref}
    _operations(context, directory, as_json).change("promote_finding", fields | {"labels": labels or None})


@app.command("issues")
def list_issues(
    context: typer.Context,
    status: Annotated[
        Literal["open", "in_progress", "closed"] | None, Option(help="Only issues with this status.")
    ] = None,
    label: Annotated[str | None, Option(metavar="WORD", help="Only issues with this label.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List issues, the most urgent first."""
    wanted = {"status": status, "label": label, "limit": limit, "offset": offset}
    _operations(context, directory, as_json).show_list("list_issues", wanted)


@app.command("issue")
def show_issue(context: typer.Context, issue: IssueId, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show one issue and the files linked to it."""
    _operations(context, directory, as_json).show_issue(issue)


@app.command("new-issue")
def create_issue(
    context: typer.Context,
    title: Annotated[str, Argument(metavar="TITLE", help="Title of the issue, on one line.")],
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    external_ref: ExternalRef = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Create an issue. `armarium registry link` links files to it."""
    fields = {"title": title, "body": body, "priority": priority, "external_ref": external_ref}
    _operations(context, directory, as_json).change("create_issue", fields | {"labels": labels or None})


@app.command("update-issue")
def update_issue(
    context: typer.Context,
    issue: IssueId,
    status: Annotated[Literal["open", "in_progress", "closed"] | None, Option(help="The new status.")] = None,
    title: Title = None,
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    no_labels: Annotated[bool, Option("--no-labels", help="Remove all labels.")] = False,
    external_ref: ExternalRef = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Change the given fields of an issue. Labels replace the earlier ones."""
    if labels and no_labels:
        raise Misuse("--label does not go with --no-labels", hint="--label replaces the earlier labels")
    fields = {"title": title, "body": body, "status": status, "priority": priority, "external_ref": external_ref}
    labels = [] if no_labels else labels or None
    _operations(context, directory, as_json).change("update_issue", fields | {"issue_id": issue, "labels": labels})


@app.command("link")
def link(
    context: typer.Context,
    file: File,
    issue: IssueId,
    kind: Annotated[
        Literal["bug_in", "task_for", "scan_finding", "mentioned_in"],
        Option("--as", help="How the file is related to the issue."),
    ] = "task_for",
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Link a file to an issue."""
    wanted = {"issue_id": issue, "assoc_type": kind}
    _operations(context, directory, as_json).change("add_file_association", wanted, file)


@app.command("register")
def register_file(
    context: typer.Context,
    path: Annotated[str, Argument(metavar="PATH", help="Relative to DIR; the file need not exist yet.")],
    language: Annotated[
        str | None, Option(metavar="NAME", help="Language of the file. [default: detected from the name]")
    ] = None,
    file_type: Annotated[str | None, Option("--type", metavar="NAME", help="Type of the file.")] = None,
    metadata: Annotated[
        str | None,
        Option(metavar="JSON", help="Further metadata as a JSON object; replaces the earlier metadata."),
    ] = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Register a file, or change its record, and print its id."""
    from armarium.capabilities.registry.commands.operations import parse_metadata

    wanted = {"path": path, "language": language, "file_type": file_type, "metadata": parse_metadata(metadata)}
    _operations(context, directory, as_json).change("register_file", wanted)


@app.command("import")
def import_report(
    context: typer.Context,
    file: Annotated[Path, Argument(metavar="REPORT", help="Report of a scanner; - is standard input.")],
    form: Annotated[
        Literal["auto", "sarif", "gitleaks", "armarium"], Option("--format", help="Format of the report.")
    ] = "auto",
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
    directory: Directory = None,
    as_json: AsJson = False,
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
    _operations(context, directory, as_json).import_report(file, wanted, fail_on, baseline)


@app.command("export")
def export_findings(
    context: typer.Context,
    form: Annotated[Literal["sarif"], Option("--format", help="Format of the output.")] = "sarif",
    status: Annotated[
        Literal["open", "fixed", "false_positive"] | None,
        Option(help="Only findings with this status. [default: open and false_positive]"),
    ] = None,
    source: Source = None,
    output: Annotated[Path | None, Option(metavar="FILE", help="File to write. [default: standard output]")] = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Print findings as SARIF 2.1.0, with a run for each scanner and category. False positives are suppressed results.

    \b
    armarium registry export > findings.sarif
    armarium registry import new.sarif --fail-on high:new --baseline findings.sarif
    """
    _operations(context, directory, as_json).export({"status": status, "scan_source": source}, output)
