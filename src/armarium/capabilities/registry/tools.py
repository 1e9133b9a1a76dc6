"""The registry's tools: arguments in, one service call, answer out. The docstrings are what a model reads."""

from __future__ import annotations

from typing import Any, cast

import orjson

from armarium.capabilities.registry import arguments, results
from armarium.capabilities.registry import result_types as types
from armarium.capabilities.registry.changes.issues import IssueChange
from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.model import Direction, FileFilter
from armarium.capabilities.registry.reports.armarium_json import reported_scan
from armarium.capabilities.registry.reports.formats import reports_in
from armarium.capabilities.registry.service import Registry
from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, ErrorStyle, ToolSpec, local_tool


def registry_tools(registry: Registry) -> list[ToolSpec]:
    """All tools over one registry: the contract's six first, then those by which findings and issues come in."""
    return [*_file_tools(registry), *_finding_tools(registry), *_issue_tools(registry)]


def _file_tools(registry: Registry) -> list[ToolSpec]:
    async def list_files(call: Call, args: arguments.ListFilesArgs) -> types.Files:
        """List the project's known files with how many findings each has, filtered, sorted and by page. `summary`
        counts open findings by severity: those neither fixed nor a false positive; `total_findings` are all there ever
        were. By default the files about which something changed last come first; `has_more` means there is another
        page behind `offset` + `limit`. Removed files are left out; get_file still knows them by their id. Go on with
        get_file."""
        wanted = FileFilter(args.language, args.path_prefix, args.min_findings, args.has_severity, args.scan_source)
        direction = cast("Direction | None", args.direction and args.direction.lower())
        page = await registry.list_files(
            wanted, sort=args.sort, direction=direction, limit=args.limit, offset=args.offset
        )
        return results.files_answer(page)

    async def get_file(call: Call, args: arguments.FileArgs) -> types.FileAnswer:
        """Tell all about one file: its record, the issues it is linked to, the ten findings that changed last and the
        counts of all. More findings come from list_findings, what happened to the file from get_file_timeline."""
        return results.detail_answer(await registry.get_file(args.file_id))

    async def get_file_timeline(call: Call, args: arguments.TimelineArgs) -> types.Timeline:
        """Tell what happened to a file, newest first: findings created, updated and closed, issues linked, renames and
        other changes of its record. `source_id` is the finding or issue it is about; ids of events never change."""
        page = await registry.timeline(args.file_id, kind=args.event_type, limit=args.limit, offset=args.offset)
        return results.timeline_answer(page)

    async def get_issue_files(call: Call, args: arguments.IssueArgs) -> types.IssueLinks:
        """List the files that an issue is linked to, oldest link first. The text is a JSON array; structured content
        has it as `result`."""
        links = await registry.issue_files(args.issue_id)
        return {"result": [results.issue_link_answer(link) for link in links]}

    async def add_file_association(call: Call, args: arguments.AssociationArgs) -> types.Associated:
        """Link a file with an issue. Saying it again changes nothing and answers the same. Get ids from list_files or
        register_file, and from list_issues or create_issue."""
        await registry.associate(args.file_id, args.issue_id, args.assoc_type, call.principal.username)
        return {"status": "created"}

    async def register_file(call: Call, args: arguments.RegisterArgs) -> types.RegisteredFile:
        """Make a file known by its path, also one that does not exist yet, and get its id; of a known file, change
        what is given. Paths are relative to the project and come back without detours, links followed; absolute paths
        and ways out of the project are refused. No scanner runs."""
        return results.file_answer(
            await registry.register_file(
                args.path,
                call.principal.username,
                language=args.language,
                file_type=args.file_type,
                metadata=args.metadata,
            )
        )

    by_file = _EVERY | {"subject": ("file_id", "path")}
    by_issue = _EVERY | {"subject": ("file_id", "issue_id")}
    return [
        local_tool("list_files", list_files, title="List known files", **_READS | {"subject": ("", "path_prefix")}),
        local_tool("get_file", get_file, title="What is known of a file", **_READS | by_file),
        local_tool("get_file_timeline", get_file_timeline, title="What happened to a file", **_READS | by_file),
        local_tool("get_issue_files", get_issue_files, title="Files of an issue", text=_array, **_READS | by_issue),
        local_tool(
            "add_file_association", add_file_association, title="Link file and issue", idempotent=True, **by_issue
        ),
        local_tool("register_file", register_file, title="Make a file known", idempotent=True, **by_file),
    ]


def _finding_tools(registry: Registry) -> list[ToolSpec]:
    async def report_findings(call: Call, args: arguments.ReportArgs) -> types.Scanned:
        """Put in what a scan found, all of it at once. Findings seen before are recognised (by `fingerprint`, else by
        rule and line) and seen again; those of the same `scan_source` in the same files or `paths` that are not
        reported any more close as fixed; those that come back open again. An empty list with `paths` says that all is
        well there. Findings outside the project, and in files that were removed, are skipped and counted."""
        outcome = await registry.scan(reported_scan(args), call.principal.username, call.cancellation.checkpoint)
        return results.scan_answer(outcome)

    async def list_findings(call: Call, args: arguments.ListFindingsArgs) -> types.Findings:
        """List findings, those that changed last first, by page. Their ids go to update_finding and
        promote_finding."""
        page = await registry.list_findings(
            file_id=args.file_id,
            status=args.status,
            severity=args.severity,
            scan_source=args.scan_source,
            limit=args.limit,
            offset=args.offset,
        )
        return results.findings_answer(page)

    async def update_finding(call: Call, args: arguments.UpdateFindingArgs) -> types.FoundInFile:
        """Judge a finding: false_positive (it stays one, whatever later scans say), fixed, or open again."""
        finding = await registry.update_finding(args.finding_id, args.status, call.principal.username)
        return results.finding_answer(finding)

    async def promote_finding(call: Call, args: arguments.PromoteArgs) -> types.Promoted:
        """Make an issue of a finding and link it to the finding's file as bug_in. A finding that is one already gives
        the same issue again, with `created` false."""
        wanted = IssueChange(args.title, args.body, None, args.priority, args.labels, args.external_ref)
        issue, created = await registry.promote_finding(args.finding_id, call.principal.username, wanted)
        return {"issue": results.issue_answer(issue), "created": created}

    about = {"subject": ("scan_source", "file_id")}
    one = {"subject": ("scan_source", "finding_id")}
    return [
        local_tool(
            "report_findings",
            report_findings,
            title="Report what a scan found",
            content_fields=frozenset({"findings"}),
            **_EVERY | about,
        ),
        local_tool("list_findings", list_findings, title="List findings", **_READS | about),
        local_tool("update_finding", update_finding, title="Judge a finding", idempotent=True, **_EVERY | one),
        local_tool(
            "promote_finding",
            promote_finding,
            title="Make an issue of a finding",
            idempotent=True,
            content_fields=_SAID,
            **_EVERY | one,
        ),
    ]


def import_tool(registry: Registry) -> ToolSpec:
    """The tool behind a route alone: scanners write reports that no model should have to repeat."""

    async def import_scan_results(call: Call, args: arguments.ImportArgs) -> types.Imported:
        """Take in a report as a scanner wrote it: all that its scanners say, or nothing."""
        reports = reports_in(args.report, args.format, source=args.scan_source, covered=args.paths)
        scans = await registry.scan_all(reports, call.principal.username, call.cancellation.checkpoint)
        return {"scans": [results.scan_answer(scan) for scan in scans]}

    content = {"content_fields": frozenset({"report"}), "subject": ("scan_source", "")}
    return local_tool("import_scan_results", import_scan_results, title="Hand in a report", **_EVERY | content)


def _issue_tools(registry: Registry) -> list[ToolSpec]:
    async def create_issue(call: Call, args: arguments.CreateIssueArgs) -> types.IssueAnswer:
        """Note work to be done. Link the files it is about with add_file_association."""
        wanted = IssueChange(args.title, args.body, None, args.priority, args.labels, args.external_ref)
        return results.issue_answer(await registry.create_issue(wanted))

    async def get_issue(call: Call, args: arguments.IssueArgs) -> types.IssueAnswer:
        """Tell all about one issue; its files come from get_issue_files."""
        return results.issue_answer(await registry.get_issue(args.issue_id))

    async def list_issues(call: Call, args: arguments.ListIssuesArgs) -> types.Issues:
        """List issues, the most urgent first and among those what changed last, by page."""
        page = await registry.list_issues(status=args.status, label=args.label, limit=args.limit, offset=args.offset)
        return results.issues_answer(page)

    async def update_issue(call: Call, args: arguments.UpdateIssueArgs) -> types.IssueAnswer:
        """Change what is given of an issue: `status` closed ends it, open brings it back. Labels replace those it
        had."""
        wanted = IssueChange(args.title, args.body, args.status, args.priority, args.labels, args.external_ref)
        return results.issue_answer(await registry.update_issue(args.issue_id, wanted))

    about = {"subject": ("", "issue_id")}
    return [
        local_tool("create_issue", create_issue, title="Note an issue", content_fields=_SAID, **_EVERY),
        local_tool("get_issue", get_issue, title="Read an issue", **_READS | about),
        local_tool("list_issues", list_issues, title="List issues", **_READS),
        local_tool(
            "update_issue",
            update_issue,
            title="Change an issue",
            idempotent=True,
            content_fields=_SAID,
            **_EVERY | about,
        ),
    ]


def _array(answer: Json) -> list[str]:
    """The contract wants an array, which structured content cannot be."""
    return [orjson.dumps(answer["result"]).decode()]


def _contract_error(error: ArmariumError) -> ArmariumError:
    """Whatever is wrong with arguments has one code."""
    return ValidationError(error.message, hint=error.hint) if isinstance(error, InvalidArgument) else error


def _render(error: ArmariumError) -> Json:
    said = f"{error.message} ({error.hint})" if error.hint else error.message
    return {"error": said, "code": error.code}


def _as_text(error: ArmariumError) -> str:
    return orjson.dumps(_render(error)).decode()


REGISTRY_ERRORS = ErrorStyle(
    _render,
    {
        "type": "object",
        "properties": {
            "error": {"type": "string", "description": "What happened, and what to do."},
            "code": {"type": "string", "description": "Stable; branch on this, not on the message."},
        },
        "required": ["error", "code"],
    },
    text=_as_text,
    translate=_contract_error,
)

_EVERY: dict[str, Any] = {"errors": REGISTRY_ERRORS, "subject": ("", "")}
_READS: dict[str, Any] = _EVERY | {"read_only": True, "idempotent": True}
_SAID = frozenset({"body"})
