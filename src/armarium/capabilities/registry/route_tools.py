"""The registry's routes, and the tools that only they offer: what a page shows and changes, and no model needs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Final

from anyio import to_thread

from armarium.capabilities.registry import arguments, model
from armarium.capabilities.registry.changes.judgements import FilteredFindings
from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.reports.formats import read_reports, reports_in
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import JUDGE, REPORT, RegistrySettings
from armarium.capabilities.registry.tools import READS, declare
from armarium.foundation.routes import declare_route
from armarium.foundation.security.access import READ, Access
from armarium.foundation.tools import Call, DeclaredTool, NoArgs

_MAX_UPLOADED_BYTES = 64 * 1024 * 1024
"""Of a report, after decompression. It is parsed at once, in memory that all callers share."""


async def list_own_roles(access: Access, call: Call, args: NoArgs) -> model.OwnRoles:
    """List the roles in which the caller may use the registry, so that a page offers only permitted actions."""
    by = call.principal
    roles = [each for each in RegistrySettings.roles if access.admits(by, each) and (each == READ or not by.read_only)]
    return {"roles": roles}


async def find_file(registry: Registry, call: Call, args: arguments.PathArgs) -> model.FileAtPath:
    """Tell the id of the file at a path, its issues and the counts of its findings, without registering it."""
    return await registry.file_at(args.path)


async def search_findings(registry: Registry, call: Call, args: arguments.SearchFindingsArgs) -> model.FindingPage:
    """List findings by any combination of filters. Continue with `next` until it is null."""
    return await registry.search_findings(_filter(args), sort=args.sort, limit=args.limit, cursor=args.cursor)


async def summarise_findings(registry: Registry, call: Call, args: arguments.FindingFilterArgs) -> model.FindingSummary:
    """Count the findings that match by status, severity, scanner, rule and directory, and list the last scans. The
    counts of each facet ignore the filter by it."""
    return await registry.summarise_findings(_filter(args))


async def get_finding(registry: Registry, call: Call, args: arguments.FindingArgs) -> model.FindingDetail:
    """Get one finding with its latest events, newest first."""
    return await registry.get_finding(args.finding_id)


async def judge_findings(registry: Registry, call: Call, args: arguments.JudgeArgs) -> model.Judged:
    """Set the status of many findings, atomically: of those with these ids, or of all that match a filter. Undo it with
    the id that is returned."""
    chosen: Sequence[str] | FilteredFindings
    if args.finding_ids is not None and args.filter is None:
        chosen = args.finding_ids
    elif args.filter is not None and args.finding_ids is None and args.expected is not None:
        chosen = FilteredFindings(_filter(args.filter), args.expected)
    else:
        raise ValidationError("name `finding_ids`, or a `filter` and how many findings are `expected`")
    by, on_progress = call.principal.username, call.cancellation.checkpoint
    return await registry.judge_findings(chosen, args.status, args.reason, by, on_progress)


async def undo_judgement(registry: Registry, call: Call, args: arguments.JudgementArgs) -> model.Undone:
    """Give the findings of a judgement the status that they had. Findings that were changed since stay as they are."""
    return await registry.undo_judgement(args.judgement_id, call.principal.username, call.cancellation.checkpoint)


async def remove_file_association(registry: Registry, call: Call, args: arguments.UnlinkArgs) -> model.Unlinked:
    """Remove the link between a file and an issue. Both stay, and their timelines tell it."""
    await registry.unlink(args.file_id, args.association_id, call.principal.username)
    return {"status": "removed"}


async def search_issues(registry: Registry, call: Call, args: arguments.SearchIssuesArgs) -> model.IssuePage:
    """List issues, the most urgent first, and count those that match by status. Continue with `next` until it is
    null."""
    return await registry.search_issues(args.status, args.label, args.text, limit=args.limit, cursor=args.cursor)


async def get_issue_timeline(registry: Registry, call: Call, args: arguments.IssueTimelineArgs) -> model.IssueTimeline:
    """List the comments and changes of an issue, newest first."""
    return await registry.issue_timeline(args.issue_id, limit=args.limit, cursor=args.cursor)


async def comment_issue(registry: Registry, call: Call, args: arguments.CommentArgs) -> model.IssueEvent:
    """Add a comment to an issue."""
    return await registry.comment_issue(args.issue_id, args.text, call.principal.username)


async def import_scan_results(registry: Registry, call: Call, args: arguments.ImportArgs) -> model.Imported:
    """Import a scanner's report, atomically for all scanners in it."""
    reports = reports_in(args.report, args)
    return {"scans": await registry.scan_all(reports, call.principal.username, call.cancellation.checkpoint)}


async def import_report_file(registry: Registry, call: Call, args: arguments.ImportFileArgs) -> model.Imported:
    """Import a scanner's report as a file: SARIF 2.1.0, the JSON of gitleaks, or the arguments of report_findings, also
    compressed with gzip. Atomic for all scanners in it. Earlier findings are closed as fixed only in files that the
    report says were scanned, or in `paths`."""
    try:
        content = base64.b64decode(args.content, validate=True)
    except binascii.Error:
        raise ValidationError("`content` is not base64") from None
    reports = await to_thread.run_sync(partial(read_reports, content, args, max_bytes=_MAX_UPLOADED_BYTES))
    return {"scans": await registry.scan_all(reports, call.principal.username, call.cancellation.checkpoint)}


def _filter(args: arguments.FindingFilterArgs) -> model.FindingFilter:
    return model.FindingFilter(**{field.name: getattr(args, field.name) for field in fields(model.FindingFilter)})


_OF_FINDING, _OF_ISSUE, _OF_FILE = ("scan_source", "finding_id"), ("", "issue_id"), ("file_id", "path")

ROLES_TOOL: Final[DeclaredTool[Access]] = declare(list_own_roles, "List own roles", "", "", **READS)
REGISTRY_TOOLS: Final = (
    declare(find_file, "Find a file", *_OF_FILE, **READS),
    declare(search_findings, "Search findings", "scan_source", "path_prefix", **READS),
    declare(summarise_findings, "Count findings", "scan_source", "path_prefix", **READS),
    declare(get_finding, "Get a finding", *_OF_FINDING, **READS),
    declare(judge_findings, "Judge findings", "", "", idempotent=True, role=JUDGE),
    declare(undo_judgement, "Undo a judgement", "", "judgement_id", role=JUDGE),
    declare(remove_file_association, "Unlink a file", "file_id", "association_id", role=JUDGE),
    declare(search_issues, "Search issues", "", "", **READS),
    declare(get_issue_timeline, "Get an issue's timeline", *_OF_ISSUE, **READS),
    declare(comment_issue, "Comment on an issue", *_OF_ISSUE, role=JUDGE, content_fields=frozenset({"text"})),
    declare(
        import_scan_results,
        "Import a scanner's report",
        "scan_source",
        "",
        content_fields=frozenset({"report"}),
        role=REPORT,
    ),
    declare(
        import_report_file,
        "Import a scanner's report as a file",
        "scan_source",
        "",
        content_fields=frozenset({"content"}),
        role=REPORT,
    ),
)
ROUTE_TOOLS: Final = (*REGISTRY_TOOLS, ROLES_TOOL)
"""Not offered to models: they would have to repeat a scanner's report in full, and would read descriptions of what only
pages use. The last one is bound to the access rule, the others to the registry."""

ROUTES: Final = (
    declare_route("GET", "/files", "list_files", "List files"),
    declare_route("POST", "/files", "register_file", "Register a file"),
    declare_route("GET", "/files/{file_id}", "get_file", "Get a file"),
    declare_route("GET", "/files/{file_id}/timeline", "get_file_timeline", "Get a file's timeline"),
    declare_route("POST", "/files/{file_id}/associations", "add_file_association", "Link a file to an issue"),
    declare_route(
        "DELETE",
        "/files/{file_id}/associations/{association_id}",
        "remove_file_association",
        "Remove the link of a file to an issue",
    ),
    declare_route("GET", "/file", "find_file", "Find the file at a path"),
    declare_route("GET", "/findings", "list_findings", "List findings"),
    declare_route("GET", "/findings/search", "search_findings", "Search findings by any filter"),
    declare_route("POST", "/findings/judge", "judge_findings", "Judge findings, or all that match"),
    declare_route("POST", "/findings/undo", "undo_judgement", "Undo a judgement"),
    declare_route("GET", "/findings/{finding_id}", "get_finding", "Get a finding"),
    declare_route("PATCH", "/findings/{finding_id}", "update_finding", "Set a finding's status"),
    declare_route("POST", "/findings/{finding_id}/issue", "promote_finding", "Create an issue from a finding"),
    declare_route("GET", "/roles", "list_own_roles", "List your own roles"),
    declare_route("GET", "/summary", "summarise_findings", "Count findings by facet"),
    declare_route(
        "POST", "/scan-results", "import_scan_results", "Import a report: SARIF, gitleaks or ours", whole_body="report"
    ),
    declare_route(
        "POST", "/import", "import_report_file", "Import the file of a report, plain or gzipped", raw_body="content"
    ),
    declare_route("GET", "/issues", "list_issues", "List issues"),
    declare_route("GET", "/issues/search", "search_issues", "Search issues"),
    declare_route("POST", "/issues", "create_issue", "Create an issue", success=201),
    declare_route("GET", "/issues/{issue_id}", "get_issue", "Get an issue"),
    declare_route("PATCH", "/issues/{issue_id}", "update_issue", "Update an issue"),
    declare_route("GET", "/issues/{issue_id}/files", "get_issue_files", "List an issue's files"),
    declare_route("GET", "/issues/{issue_id}/timeline", "get_issue_timeline", "Get an issue's timeline"),
    declare_route("POST", "/issues/{issue_id}/comments", "comment_issue", "Comment on an issue", success=201),
)
"""The JSON API: a method and path for every tool."""
