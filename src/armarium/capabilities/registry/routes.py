"""The registry's JSON API: which method and path say which tool."""

from __future__ import annotations

from collections.abc import Iterable

from armarium.foundation.routes import Route
from armarium.foundation.tools import ToolSpec


def registry_routes(tools: Iterable[ToolSpec], import_report: ToolSpec) -> list[Route]:
    """All tools below the registry's own path, and the one by which scanners hand in their reports as they are."""
    tool = {each.name: each for each in tools}
    return [
        Route("GET", "/files", tool["list_files"], "List known files"),
        Route("POST", "/files", tool["register_file"], "Make a file known"),
        Route("GET", "/files/{file_id}", tool["get_file"], "Tell what is known of a file"),
        Route("GET", "/files/{file_id}/timeline", tool["get_file_timeline"], "Tell what happened to a file"),
        Route("POST", "/files/{file_id}/associations", tool["add_file_association"], "Link a file with an issue"),
        Route("GET", "/findings", tool["list_findings"], "List findings"),
        Route("PATCH", "/findings/{finding_id}", tool["update_finding"], "Judge a finding"),
        Route("POST", "/findings/{finding_id}/issue", tool["promote_finding"], "Make an issue of a finding"),
        Route("POST", "/scan-results", import_report, "Hand in a report: SARIF, gitleaks or ours", whole_body="report"),
        Route("GET", "/issues", tool["list_issues"], "List issues"),
        Route("POST", "/issues", tool["create_issue"], "Note an issue", success=201),
        Route("GET", "/issues/{issue_id}", tool["get_issue"], "Read an issue"),
        Route("PATCH", "/issues/{issue_id}", tool["update_issue"], "Change an issue"),
        Route("GET", "/issues/{issue_id}/files", tool["get_issue_files"], "List the files of an issue"),
    ]
