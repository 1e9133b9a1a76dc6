"""Issues, what they have to do with files, and findings that become issues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from armarium.capabilities.registry.changes.ids import Ids
from armarium.capabilities.registry.errors import NotFound, ValidationError
from armarium.capabilities.registry.limits import (
    MAX_BYTES,
    MAX_LABELS,
    MAX_REFERENCE_CHARS,
    MAX_TITLE_CHARS,
    body_text,
    one_line,
    printable,
    required,
)
from armarium.capabilities.registry.model import (
    DEFAULT_PRIORITY,
    LOWEST_PRIORITY,
    SEVERITIES,
    AssocType,
    Finding,
    FindingStatus,
    Issue,
    IssueStatus,
)
from armarium.capabilities.registry.storage import files, findings, issues, timeline
from armarium.capabilities.registry.storage.database import Writer
from armarium.capabilities.registry.storage.findings import StoredFinding
from armarium.capabilities.registry.storage.issues import StoredIssue
from armarium.capabilities.registry.storage.timeline import NewEvent

_MAX_PROMOTED_TITLE_CHARS = 200
_MAX_UTF8_BYTES = 4


@dataclass(frozen=True, slots=True)
class IssueChange:
    """What an issue shall be, or become; what is None stays as it is."""

    title: str | None = None
    body: str | None = None
    status: IssueStatus | None = None
    priority: int | None = None
    labels: Sequence[str] | None = None
    external_ref: str | None = None


def create(writer: Writer, ids: Ids, wanted: IssueChange) -> StoredIssue:
    """A new issue."""
    blank = Issue(ids.issue(writer), "", "", "open", DEFAULT_PRIORITY, (), "", writer.now, writer.now, closed_at=None)
    if wanted.title is None:
        raise ValidationError("an issue needs a title", hint="say in one line what is to be done")
    new = _changed(blank, wanted, writer.now)
    return StoredIssue(issues.insert(writer, new), new)


def update(writer: Writer, issue_id: str, wanted: IssueChange) -> Issue:
    """The issue with what is wanted of it; where that is nothing new, it stays untouched."""
    stored = issues.by_id(writer, issue_id)
    if stored is None:
        raise no_issue()
    changed = _changed(stored.issue, wanted, writer.now)
    if changed == stored.issue:
        return stored.issue
    changed = replace(changed, updated_at=writer.now)
    issues.update(writer, changed)
    return changed


def associate(writer: Writer, file_id: str, issue_id: str, assoc_type: AssocType, actor: str) -> None:
    """Link a file with an issue; once is as good as twice."""
    file = files.by_id(writer, file_id)
    if file is None:
        raise no_file()
    issue = issues.by_id(writer, issue_id)
    if issue is None:
        raise ValidationError("no issue has this id", hint="create_issue makes one, list_issues lists them")
    _link(writer, file.no, issue.no, issue.issue, assoc_type, actor)


def promote(writer: Writer, ids: Ids, finding_id: str, wanted: IssueChange, actor: str) -> tuple[Issue, bool]:
    """The issue that a finding is, and whether it was made now; it begins with what the finding says."""
    stored = _finding(writer, finding_id)
    if stored.finding.issue_id is not None:
        existing = issues.by_id(writer, stored.finding.issue_id)
        assert existing is not None, "an issue that a finding refers to cannot be deleted"
        return existing.issue, False
    issue_no, issue = create(writer, ids, _described(stored.finding, wanted))
    findings.set_issue(writer, stored.no, issue_no)
    data = _event_data(stored.finding) | {"issue_id": issue.id, "actor": actor}
    timeline.append(writer, [NewEvent(stored.file_no, "finding_updated", finding_id, data)])
    _link(writer, stored.file_no, issue_no, issue, "bug_in", actor)
    return issue, True


def set_finding_status(writer: Writer, finding_id: str, status: FindingStatus, actor: str) -> Finding:
    """The finding with the status that somebody gives it."""
    stored = _finding(writer, finding_id)
    change: dict[str, object] = {}
    if stored.finding.status != status:
        change["status"] = {"old_value": stored.finding.status, "new_value": status}
    elif findings.is_suppressed(writer, stored.no):
        # Who agrees with a scan judges all the same: from now on it stays, whatever scans say.
        change["suppressed"] = {"old_value": True, "new_value": False}
    if change:
        findings.set_status(writer, [stored.no], status)
        data = _event_data(stored.finding) | {"status": status, "changes": change, "actor": actor}
        type_ = "finding_closed" if status == "fixed" else "finding_updated"
        timeline.append(writer, [NewEvent(stored.file_no, type_, finding_id, data)])
        files.touch(writer, [stored.file_no])
    return _finding(writer, finding_id).finding


def no_file() -> NotFound:
    """That a file is not known."""
    return NotFound("no file has this id", hint="list_files lists them, register_file makes one known")


def no_issue() -> NotFound:
    """That an issue is not known."""
    return NotFound("no issue has this id", hint="list_issues lists them, create_issue makes one")


def _finding(writer: Writer, finding_id: str) -> StoredFinding:
    stored = findings.by_id(writer, finding_id)
    if stored is None:
        raise NotFound("no finding has this id", hint="list_findings lists them")
    return stored


def _link(writer: Writer, file_no: int, issue_no: int, issue: Issue, assoc_type: AssocType, actor: str) -> None:
    if not issues.associate(writer, file_no, issue_no, assoc_type, actor):
        return
    data = {"issue_id": issue.id, "issue_title": issue.title, "assoc_type": assoc_type, "actor": actor}
    timeline.append(writer, [NewEvent(file_no, "association_created", issue.id, data)])
    files.touch(writer, [file_no])


def _described(finding: Finding, wanted: IssueChange) -> IssueChange:
    """What the issue of a finding says, where nothing else is wanted."""
    line = "" if finding.line_start is None else f":{finding.line_start}"
    first_line = (finding.message.strip() or finding.rule_id or finding.scan_source).splitlines()[0]
    body = "\n".join(
        [
            f"{finding.file_path}{line}",
            f"{finding.scan_source} {finding.rule_id} ({finding.severity}), finding {finding.id}",
            "",
            finding.message,
            *(["", finding.suggestion] if finding.suggestion else []),
        ]
    )
    return replace(
        wanted,
        title=printable(first_line)[:_MAX_PROMOTED_TITLE_CHARS] if wanted.title is None else wanted.title,
        body=body[: MAX_BYTES // _MAX_UTF8_BYTES] if wanted.body is None else wanted.body,
        priority=SEVERITIES.index(finding.severity) if wanted.priority is None else wanted.priority,
    )


def _changed(issue: Issue, wanted: IssueChange, now: str) -> Issue:
    title = issue.title if wanted.title is None else one_line(wanted.title.strip(), "title", MAX_TITLE_CHARS)
    required(title, "title")
    reference = issue.external_ref if wanted.external_ref is None else wanted.external_ref.strip()
    status = wanted.status or issue.status
    closed_at = None if status != "closed" else issue.closed_at or now
    return replace(
        issue,
        title=title,
        body=issue.body if wanted.body is None else body_text(wanted.body),
        status=status,
        priority=_priority(issue.priority if wanted.priority is None else wanted.priority),
        labels=issue.labels if wanted.labels is None else _labels(wanted.labels),
        external_ref=one_line(reference, "external_ref", MAX_REFERENCE_CHARS),
        closed_at=closed_at,
    )


def _priority(priority: int) -> int:
    if not 0 <= priority <= LOWEST_PRIORITY:
        raise ValidationError(f"a priority is from 0, the most urgent, to {LOWEST_PRIORITY}")
    return priority


def _labels(labels: Sequence[str]) -> tuple[str, ...]:
    tidy = tuple(dict.fromkeys(one_line(label.strip(), "labels") for label in labels))
    if "" in tidy or len(tidy) > MAX_LABELS:
        raise ValidationError(f"an issue has at most {MAX_LABELS} labels, and none is empty")
    return tidy


def _event_data(finding: Finding) -> dict[str, object]:
    return {
        "scan_source": finding.scan_source,
        "rule_id": finding.rule_id,
        "severity": finding.severity,
        "status": finding.status,
    }
