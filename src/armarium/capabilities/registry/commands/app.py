"""Declares `armarium registry` and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from armarium.command_line.options import AsJson
from armarium.command_line.output import show

# Commands import what they need when they run: a server must be up in a second, and most commands need little.

app = typer.Typer(rich_markup_mode=None)

Severity = Literal["critical", "high", "medium", "low", "info"]
Directory = Annotated[
    Path | None,
    typer.Option("--dir", metavar="DIR", help="The project. [default: the nearest above with a registry, or here]"),
]
File = Annotated[str, typer.Argument(metavar="FILE", help="Path in the project, or the file's id.")]
Limit = Annotated[int, typer.Option(metavar="N", help="Most lines of the list.")]
Offset = Annotated[int, typer.Option(metavar="N", help="Lines to skip, for the next page.")]
Source = Annotated[str | None, typer.Option(metavar="NAME", help="Only what this scanner found.")]
OfSeverity = Annotated[Severity | None, typer.Option(help="Only with open findings like this.")]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="What is to be done, in one line.")]
Body = Annotated[str | None, typer.Option(metavar="TEXT", help="All the rest.")]
Priority = Annotated[int | None, typer.Option(metavar="N", help="0 is the most urgent, 4 the least.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="WORD", help="Word to find it by; may be repeated.")
]
ExternalRef = Annotated[
    str | None, typer.Option("--ref", metavar="REF", help="The same issue elsewhere, as github:owner/repo#12.")
]
IssueId = Annotated[str, typer.Argument(metavar="ISSUE", help="Id of the issue.")]
FindingId = Annotated[str, typer.Argument(metavar="FINDING", help="Id of the finding.")]


@app.callback(invoke_without_command=True)
def registry(context: typer.Context) -> None:
    """See and tell what is known about files: what scanners found, and which issues are about it.

    \b
    Begin here:
      ruff check --output-format sarif | armarium registry import - --covers .
      armarium registry files --severity high
      armarium registry file src/app.py
      armarium registry promote FINDING

    What is known is kept in DIR/.armarium; servers and commands may use it at the same time. Without --dir it is
    looked for from here upwards, and paths begin here.
    """
    if context.invoked_subcommand is None:
        show(context.get_help())


@app.command("files")
def list_files(
    context: typer.Context,
    prefix: Annotated[str | None, typer.Option(metavar="TEXT", help="Only paths that begin like this.")] = None,
    language: Annotated[str | None, typer.Option(metavar="NAME", help="Only files in this language.")] = None,
    severity: OfSeverity = None,
    source: Source = None,
    min_findings: Annotated[int | None, typer.Option(metavar="N", help="Only with so many open findings.")] = None,
    sort: Annotated[
        Literal["updated_at", "first_seen", "path", "language"], typer.Option(help="Order.")
    ] = "updated_at",
    direction: Annotated[
        Literal["asc", "desc"] | None, typer.Option(help="[default: asc for path and language, else desc]")
    ] = None,
    limit: Limit = 100,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List the files that are known, with how many findings are open in each.

    \b
    armarium registry files --severity critical
    armarium registry files --prefix src/ --sort path --json
    """
    from armarium.capabilities.registry.commands import operations

    wanted = {
        "path_prefix": prefix,
        "language": language,
        "has_severity": severity,
        "scan_source": source,
        "min_findings": min_findings,
        "sort": sort,
        "direction": direction,
        "limit": limit,
        "offset": offset,
    }
    operations.show_list(operations.RegistryProject(context.obj, directory), "list_files", wanted, as_json=as_json)


@app.command("file")
def show_file(context: typer.Context, file: File, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show one file: what was last found in it, and which issues are about it."""
    from armarium.capabilities.registry.commands import operations

    operations.show_file(operations.RegistryProject(context.obj, directory), file, as_json=as_json)


@app.command("timeline")
def show_timeline(
    context: typer.Context,
    file: File,
    kind: Annotated[
        Literal["finding", "association", "file_metadata_update"] | None,
        typer.Option("--type", help="Only what happened of this kind."),
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened to a file, newest first. It keeps its history when it is moved."""
    from armarium.capabilities.registry.commands import operations

    wanted = {"event_type": kind, "limit": limit, "offset": offset}
    operations.show_list(
        operations.RegistryProject(context.obj, directory), "get_file_timeline", wanted, file=file, as_json=as_json
    )


@app.command("findings")
def list_findings(
    context: typer.Context,
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="Only in this file: path, or id.")] = None,
    status: Annotated[
        Literal["open", "fixed", "false_positive"] | None, typer.Option(help="Only findings in this state.")
    ] = None,
    severity: Annotated[Severity | None, typer.Option(help="Only findings like this.")] = None,
    source: Source = None,
    limit: Limit = 100,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List findings with their ids, those that changed last first."""
    from armarium.capabilities.registry.commands import operations

    wanted = {"status": status, "severity": severity, "scan_source": source, "limit": limit, "offset": offset}
    operations.show_list(
        operations.RegistryProject(context.obj, directory), "list_findings", wanted, file=file, as_json=as_json
    )


@app.command("judge")
def judge_finding(
    context: typer.Context,
    finding: FindingId,
    status: Annotated[Literal["false_positive", "fixed", "open"], typer.Argument(help="What it is.")],
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Say what a finding is. A false positive stays one, whatever later scans say."""
    from armarium.capabilities.registry.commands import operations

    operations.change(
        operations.RegistryProject(context.obj, directory),
        "update_finding",
        {"finding_id": finding, "status": status},
        as_json=as_json,
    )


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
    """Make an issue of a finding and link it to the file; once is as good as twice."""
    from armarium.capabilities.registry.commands import operations

    said = operations.issue_fields(title, body, priority, labels, external_ref)
    operations.change(
        operations.RegistryProject(context.obj, directory),
        "promote_finding",
        {"finding_id": finding} | said,
        as_json=as_json,
    )


@app.command("issues")
def list_issues(
    context: typer.Context,
    status: Annotated[
        Literal["open", "in_progress", "closed"] | None, typer.Option(help="Only issues that stand like this.")
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="WORD", help="Only issues with this label.")] = None,
    limit: Limit = 100,
    offset: Offset = 0,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """List issues, the most urgent first."""
    from armarium.capabilities.registry.commands import operations

    wanted = {"status": status, "label": label, "limit": limit, "offset": offset}
    operations.show_list(operations.RegistryProject(context.obj, directory), "list_issues", wanted, as_json=as_json)


@app.command("issue")
def show_issue(context: typer.Context, issue: IssueId, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show one issue and the files it is about."""
    from armarium.capabilities.registry.commands import operations

    operations.show_issue(operations.RegistryProject(context.obj, directory), issue, as_json=as_json)


@app.command("new-issue")
def create_issue(
    context: typer.Context,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What is to be done, in one line.")],
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    external_ref: ExternalRef = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Note work to be done; `armarium registry link` says which files it is about."""
    from armarium.capabilities.registry.commands import operations

    said = operations.issue_fields(title, body, priority, labels, external_ref)
    operations.change(operations.RegistryProject(context.obj, directory), "create_issue", said, as_json=as_json)


@app.command("update-issue")
def update_issue(
    context: typer.Context,
    issue: IssueId,
    status: Annotated[
        Literal["open", "in_progress", "closed"] | None, typer.Option(help="Where it stands now.")
    ] = None,
    title: Title = None,
    body: Body = None,
    priority: Priority = None,
    labels: Labels = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Take all labels away.")] = False,
    external_ref: ExternalRef = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Change an issue; what is not given stays, and labels replace those it had."""
    from armarium.capabilities.registry.commands import operations

    said = operations.issue_fields(title, body, priority, labels, external_ref, no_labels=no_labels)
    operations.change(
        operations.RegistryProject(context.obj, directory),
        "update_issue",
        {"issue_id": issue, "status": status} | said,
        as_json=as_json,
    )


@app.command("link")
def link(
    context: typer.Context,
    file: File,
    issue: IssueId,
    kind: Annotated[
        Literal["bug_in", "task_for", "scan_finding", "mentioned_in"],
        typer.Option("--as", help="What the file has to do with the issue."),
    ] = "task_for",
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Link a file with an issue."""
    from armarium.capabilities.registry.commands import operations

    wanted = {"issue_id": issue, "assoc_type": kind}
    operations.change(
        operations.RegistryProject(context.obj, directory), "add_file_association", wanted, file=file, as_json=as_json
    )


@app.command("register")
def register_file(
    context: typer.Context,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Relative to DIR; the file need not exist yet.")],
    language: Annotated[str | None, typer.Option(metavar="NAME", help="[default: guessed from the name]")] = None,
    file_type: Annotated[str | None, typer.Option("--type", metavar="NAME", help="What it is for.")] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="Anything else, as an object; replaces what was known.")
    ] = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Make a file known, or change what is known of it, and get its id."""
    from armarium.capabilities.registry.commands import operations

    more = operations.parsed_metadata(metadata)
    wanted = {"path": path, "language": language, "file_type": file_type, "metadata": more}
    operations.change(operations.RegistryProject(context.obj, directory), "register_file", wanted, as_json=as_json)


@app.command("import")
def import_report(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="REPORT", help="Report of a scanner; - is standard input.")],
    form: Annotated[
        Literal["auto", "sarif", "gitleaks", "armarium"], typer.Option("--format", help="How it is written.")
    ] = "auto",
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose findings. [default: the scanner's name in the report]")
    ] = None,
    covers: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="What was scanned; may be repeated. [default: the files in the report]"),
    ] = None,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Take in what a scanner found: SARIF 2.1.0, gitleaks' JSON, or Armarium's own.

    Findings of an earlier report by the same scanner that are not in this one close as fixed, where it looked: in the
    files that the report names, or wherever --covers says. Those that come back open again. A run that says it failed
    closes nothing. A report comes in whole, with all its scanners, or not at all.

    \b
    ruff check --output-format sarif | armarium registry import - --covers .
    bandit -r src -f sarif -o bandit.sarif; armarium registry import bandit.sarif --covers src
    gitleaks dir --report-path leaks.json; armarium registry import leaks.json --covers .
    """
    from armarium.capabilities.registry.commands import operations

    operations.import_report(
        operations.RegistryProject(context.obj, directory), file, form, source, covers, as_json=as_json
    )
