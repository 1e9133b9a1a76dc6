"""The registry's tools. Their docstrings are what a model reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import orjson

from armarium.capabilities.registry import arguments, model, values
from armarium.capabilities.registry.changes.issues import IssueChange
from armarium.capabilities.registry.errors import REGISTRY_ERRORS
from armarium.capabilities.registry.model import FileFilter
from armarium.capabilities.registry.reports.formats import reported_scan
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import JUDGE, REPORT
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, DeclaredTool, declare_tool

ServiceT = TypeVar("ServiceT")

# Files


async def list_files(registry: Registry, call: Call, args: arguments.ListFilesArgs) -> model.Page[model.ListedFile]:
    """List the project's registered files with their findings: filtered, sorted and by page. `summary` counts the open
    findings by severity, without those that are fixed or false positives; `total_findings` counts all findings ever
    reported. By default the files that changed last come first. `has_more` means that there is another page after
    `offset` + `limit`. Removed files are not listed; get_file still returns them by id. Continue with get_file."""
    wanted = FileFilter(args.language, args.path_prefix, args.min_findings, args.has_severity, args.scan_source)
    direction = cast("values.Direction | None", args.direction and args.direction.lower())
    return await registry.list_files(wanted, sort=args.sort, direction=direction, limit=args.limit, offset=args.offset)


async def get_file(registry: Registry, call: Call, args: arguments.FileArgs) -> model.FileDetail:
    """Get one file: its record, the issues linked to it, the ten findings that changed last and the counts of all. Use
    list_findings for more findings and get_file_timeline for its history."""
    return await registry.get_file(args.file_id)


async def get_file_timeline(
    registry: Registry, call: Call, args: arguments.TimelineArgs
) -> model.Page[model.TimelineEvent]:
    """List the events of a file, newest first: findings created, updated and closed, issues linked, renames and other
    changes of its record. `source_id` is the finding, issue or file that the event is about. Ids of events never
    change."""
    return await registry.timeline(args.file_id, kind=args.event_type, limit=args.limit, offset=args.offset)


async def get_issue_files(registry: Registry, call: Call, args: arguments.IssueArgs) -> model.IssueFiles:
    """List the files linked to an issue, oldest link first. The text is a JSON array; structured content has it as
    `result`."""
    return {"result": await registry.issue_files(args.issue_id)}


async def add_file_association(registry: Registry, call: Call, args: arguments.AssociationArgs) -> model.Linked:
    """Link a file to an issue. Idempotent: repeating it changes nothing and returns the same. Get ids from list_files
    or register_file, and from list_issues or create_issue."""
    await registry.associate(args.file_id, args.issue_id, args.assoc_type, call.principal.username)
    return {"status": "created"}


async def register_file(registry: Registry, call: Call, args: arguments.RegisterArgs) -> model.RegisteredFile:
    """Register a file by path and get its id. The file need not exist yet. If it is registered already, the given
    fields are changed. Paths are relative to the project and are returned in canonical form, with links resolved.
    Absolute paths and paths that lead out of the project are refused. No scanner runs."""
    return await registry.register_file(
        args.path, call.principal.username, language=args.language, file_type=args.file_type, metadata=args.metadata
    )


# Findings


async def report_findings(registry: Registry, call: Call, args: arguments.ReportArgs) -> model.Scanned:
    """Report all findings of one scan, atomically. Known findings are recognised by `fingerprint`, otherwise by rule
    and content of the line, and updated. Earlier findings of the same `scan_source` and `category` in the same files or
    `paths` that are not reported again are closed as fixed; fixed ones that are reported again are reopened. An empty
    list with `paths` means that nothing was found there. Findings outside the project or in removed files are skipped
    and counted; if all are skipped, nothing is closed."""
    return await registry.scan(reported_scan(args), call.principal.username, call.cancellation.checkpoint)


async def list_findings(registry: Registry, call: Call, args: arguments.ListFindingsArgs) -> model.Page[model.Finding]:
    """List findings by page, those that changed last first. Pass their ids to update_finding and promote_finding."""
    return await registry.list_findings(**dict(args))


async def update_finding(registry: Registry, call: Call, args: arguments.UpdateFindingArgs) -> model.Finding:
    """Set the status of a finding: false_positive (later scans do not change it), fixed, or open."""
    return await registry.update_finding(args.finding_id, args.status, call.principal.username)


async def promote_finding(registry: Registry, call: Call, args: arguments.PromoteArgs) -> model.Promoted:
    """Create an issue from a finding and link it to the finding's file as bug_in. If the finding already has an issue,
    that issue is returned, with `created` false."""
    wanted = IssueChange(args.title, args.body, None, args.priority, args.labels, args.external_ref)
    return await registry.promote_finding(args.finding_id, call.principal.username, wanted)


# Issues


async def create_issue(registry: Registry, call: Call, args: arguments.CreateIssueArgs) -> model.IssueAnswer:
    """Create an issue. Link the files it is about with add_file_association."""
    wanted = IssueChange(args.title, args.body, None, args.priority, args.labels, args.external_ref)
    return await registry.create_issue(wanted, call.principal.username)


async def get_issue(registry: Registry, call: Call, args: arguments.IssueArgs) -> model.IssueAnswer:
    """Get one issue. Use get_issue_files for its files."""
    return await registry.get_issue(args.issue_id)


async def list_issues(registry: Registry, call: Call, args: arguments.ListIssuesArgs) -> model.Page[model.IssueAnswer]:
    """List issues by page, the most urgent first, and among those the ones that changed last."""
    return await registry.list_issues(status=args.status, label=args.label, limit=args.limit, offset=args.offset)


async def update_issue(registry: Registry, call: Call, args: arguments.UpdateIssueArgs) -> model.IssueAnswer:
    """Change the given fields of an issue. `status` closed closes it, open reopens it. `labels` replace the earlier
    ones."""
    wanted = IssueChange(args.title, args.body, args.status, args.priority, args.labels, args.external_ref)
    return await registry.update_issue(args.issue_id, wanted, call.principal.username)


def _array(answer: Json) -> list[str]:
    """The contract requires an array, which structured content cannot be."""
    return [orjson.dumps(answer["result"]).decode()]


def declare(
    function: Callable[[ServiceT, Call, Any], Awaitable[Any]], title: str, *subject: str, **traits: Any
) -> DeclaredTool[ServiceT]:
    """A tool with the name of its function. `subject` names the two arguments that tell what a call is about."""
    return declare_tool(function.__name__, function, title=title, subject=subject, errors=REGISTRY_ERRORS, **traits)


READS = {"read_only": True, "idempotent": True}
_REPORTS, _JUDGES = {"role": REPORT}, {"role": JUDGE}
_BODY = {"content_fields": frozenset({"body"})}

TOOLS = (
    declare(list_files, "List files", "", "path_prefix", **READS),
    declare(get_file, "Get a file", "file_id", "path", **READS),
    declare(get_file_timeline, "Get a file's timeline", "file_id", "path", **READS),
    declare(get_issue_files, "List an issue's files", "file_id", "issue_id", text=_array, **READS),
    declare(add_file_association, "Link a file to an issue", "file_id", "issue_id", idempotent=True, **_REPORTS),
    declare(register_file, "Register a file", "file_id", "path", idempotent=True, **_REPORTS),
    declare(
        report_findings, "Report findings", "scan_source", "file_id", content_fields=frozenset({"findings"}), **_REPORTS
    ),
    declare(list_findings, "List findings", "scan_source", "file_id", **READS),
    declare(update_finding, "Set a finding's status", "scan_source", "finding_id", idempotent=True, **_JUDGES),
    declare(
        promote_finding,
        "Create an issue from a finding",
        "scan_source",
        "finding_id",
        idempotent=True,
        **_BODY,
        **_JUDGES,
    ),
    declare(create_issue, "Create an issue", "", "", **_BODY, **_JUDGES),
    declare(get_issue, "Get an issue", "", "issue_id", **READS),
    declare(list_issues, "List issues", "", "", **READS),
    declare(update_issue, "Update an issue", "", "issue_id", idempotent=True, **_BODY, **_JUDGES),
)
"""The tools offered over MCP: the six of the contract first, then those that add findings and issues."""
