"""Creates and updates issues, links them to files, and promotes findings to issues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from armarium.capabilities.registry import limits, model, values
from armarium.capabilities.registry.changes.file_records import Ids
from armarium.capabilities.registry.errors import NotFound, ValidationError
from armarium.capabilities.registry.storage import files, findings, issues, timeline
from armarium.capabilities.registry.storage.columns import named
from armarium.capabilities.registry.storage.database import Writer
from armarium.capabilities.registry.storage.issues import IssueEventType, StoredIssue
from armarium.capabilities.registry.storage.timeline import NewEvent

_MAX_PROMOTED_TITLE_CHARS = 200
_MAX_UTF8_BYTES = 4
_RECORDED = ("title", "status", "priority", "labels", "external_ref")
"""The fields whose former values are recorded. Of the body, only that it changed."""


@dataclass(frozen=True, slots=True)
class IssueChange:
    """The new values of an issue's fields; None leaves a field unchanged."""

    title: str | None = None
    body: str | None = None
    status: values.IssueStatus | None = None
    priority: int | None = None
    labels: Sequence[str] | None = None
    external_ref: str | None = None


def create(writer: Writer, ids: Ids, wanted: IssueChange, actor: str, finding_id: str | None = None) -> StoredIssue:
    if wanted.title is None:
        raise ValidationError("an issue needs a title", hint="give a title of one line")
    [issue_id] = ids.new(writer, "issue")
    blank = named(
        model.IssueAnswer, (issue_id, "", "", "open", model.DEFAULT_PRIORITY, [], "", writer.now, writer.now, None)
    )
    new = _changed(blank, wanted, writer.now)
    stored = StoredIssue(issues.insert(writer, new), new)
    issues.append_event(writer, stored.no, "issue_created", actor, {"finding_id": finding_id} if finding_id else {})
    return stored


def update(writer: Writer, issue_id: str, wanted: IssueChange, actor: str) -> model.IssueAnswer:
    """Update an issue. Without a difference, nothing is written."""
    no, issue = issues.by_id(writer, issue_id)
    changed = _changed(issue, wanted, writer.now)
    if changed != issue:
        differing = [name for name in _RECORDED if changed[name] != issue[name]]
        changes: dict[str, dict[str, object]] = {
            name: {"old_value": issue[name], "new_value": changed[name]} for name in differing
        }
        if changed["body"] != issue["body"]:
            changes["body"] = {}
        issues.append_event(writer, no, "issue_updated", actor, {"changes": changes})
        changed["updated_at"] = writer.now
        issues.update(writer, changed)
    return changed


def comment(writer: Writer, issue_id: str, text: str, actor: str) -> model.IssueEvent:
    no, issue = issues.by_id(writer, issue_id)
    issues.append_event(writer, no, "commented", actor, {"text": limits.body_text(text)})
    issues.update(writer, {**issue, "updated_at": writer.now})
    [event], _ = issues.events(writer, no, 1, None)
    return event


def associate(writer: Writer, file_id: str, issue_id: str, assoc_type: values.AssocType, actor: str) -> None:
    file = files.by_id(writer, file_id)
    try:
        issue_no, issue = issues.by_id(writer, issue_id)
    except NotFound as error:
        raise ValidationError(error.message, hint=error.hint) from error
    _link(writer, file.no, issue_no, issue, assoc_type, actor)


def promote(writer: Writer, ids: Ids, finding_id: str, wanted: IssueChange, actor: str) -> model.Promoted:
    """The issue of a finding, and whether it was created now. Its defaults come from the finding."""
    no, file_no, finding = findings.by_id(writer, finding_id)
    if finding["issue_id"] is not None:
        return {"issue": issues.by_id(writer, finding["issue_id"]).issue, "created": False}
    issue_no, issue = create(writer, ids, _described(finding, wanted), actor, finding_id)
    writer.rows("set_finding_issue", (issue_no, writer.now, no))
    data = _event_data(finding) | {"issue_id": issue["id"], "actor": actor}
    timeline.append(writer, [NewEvent(file_no, "finding_updated", finding_id, data)])
    _link(writer, file_no, issue_no, issue, "bug_in", actor)
    return {"issue": issue, "created": True}


def set_finding_status(writer: Writer, finding_id: str, status: values.FindingStatus, actor: str) -> model.Finding:
    no, file_no, finding = findings.by_id(writer, finding_id)
    change: dict[str, object] = {}
    if finding["status"] != status:
        change["status"] = {"old_value": finding["status"], "new_value": status}
    elif findings.is_suppressed(writer, no):
        # Confirming a suppression is a decision too: later scans no longer change it.
        change["suppressed"] = {"old_value": True, "new_value": False}
    if not change:
        return finding
    findings.set_status(writer, [no], status)
    data = _event_data(finding) | {"status": status, "changes": change, "actor": actor}
    type_ = "finding_closed" if status == "fixed" else "finding_updated"
    timeline.append(writer, [NewEvent(file_no, type_, finding_id, data)])
    files.touch(writer, [file_no])
    return findings.by_id(writer, finding_id).finding


def _link(
    writer: Writer, file_no: int, issue_no: int, issue: model.IssueAnswer, assoc_type: values.AssocType, actor: str
) -> None:
    if issues.associate(writer, file_no, issue_no, assoc_type, actor):
        data = {"issue_id": issue["id"], "issue_title": issue["title"], "assoc_type": assoc_type, "actor": actor}
        timeline.append(writer, [NewEvent(file_no, "association_created", issue["id"], data)])
        _record_link(writer, file_no, issue_no, "file_linked", assoc_type, actor)


def unlink(writer: Writer, file_id: str, association_id: int, actor: str) -> None:
    file = files.by_id(writer, file_id)
    link = issues.link(writer, file.no, association_id)
    writer.rows("delete_association", (association_id,))
    data = {name: link[name] for name in ("issue_id", "issue_title", "assoc_type")} | {"actor": actor}
    timeline.append(writer, [NewEvent(file.no, "association_removed", link["issue_id"], data)])
    issue_no = issues.by_id(writer, link["issue_id"]).no
    _record_link(writer, file.no, issue_no, "file_unlinked", link["assoc_type"], actor)


def _record_link(
    writer: Writer, file_no: int, issue_no: int, type_: IssueEventType, assoc_type: values.AssocType, actor: str
) -> None:
    record = files.by_no(writer, file_no)
    data = {"file_id": record["id"], "path": record["path"], "assoc_type": assoc_type}
    issues.append_event(writer, issue_no, type_, actor, data)
    files.touch(writer, [file_no])


def _described(finding: model.Finding, wanted: IssueChange) -> IssueChange:
    """The change with defaults from the finding for the fields that are not given."""
    line = "" if finding["line_start"] is None else f":{finding['line_start']}"
    message, source, rule = finding["message"], finding["scan_source"], finding["rule_id"]
    title = limits.printable((message.strip() or rule or source).splitlines()[0])[:_MAX_PROMOTED_TITLE_CHARS]
    about = f"{finding['file_path']}{line}\n{source} {rule} ({finding['severity']}), finding {finding['id']}"
    body = "\n\n".join([about, message, *filter(None, [finding["suggestion"]])])
    return replace(
        wanted,
        title=title if wanted.title is None else wanted.title,
        body=body[: limits.MAX_BYTES // _MAX_UTF8_BYTES] if wanted.body is None else wanted.body,
        priority=values.SEVERITIES.index(finding["severity"]) if wanted.priority is None else wanted.priority,
    )


def _changed(issue: model.IssueAnswer, wanted: IssueChange, now: str) -> model.IssueAnswer:
    """A copy of the issue with the wanted values, which are checked."""
    changed = issue.copy()
    if wanted.title is not None:
        changed["title"] = limits.one_line(wanted.title.strip(), "title", limits.MAX_TITLE_CHARS)
        limits.check_present(changed["title"], "title")
    if wanted.body is not None:
        changed["body"] = limits.body_text(wanted.body)
    if wanted.status is not None:
        changed["status"] = wanted.status
        changed["closed_at"] = (issue["closed_at"] or now) if wanted.status == "closed" else None
    if wanted.priority is not None:
        if not 0 <= wanted.priority <= model.LOWEST_PRIORITY:
            raise ValidationError(f"a priority is from 0, the most urgent, to {model.LOWEST_PRIORITY}")
        changed["priority"] = wanted.priority
    if wanted.labels is not None:
        changed["labels"] = list(dict.fromkeys(limits.one_line(label.strip(), "labels") for label in wanted.labels))
        if "" in changed["labels"] or len(changed["labels"]) > limits.MAX_LABELS:
            raise ValidationError(f"an issue has at most {limits.MAX_LABELS} labels, and none is empty")
    if wanted.external_ref is not None:
        changed["external_ref"] = limits.one_line(
            wanted.external_ref.strip(), "external_ref", limits.MAX_REFERENCE_CHARS
        )
    return changed


def _event_data(finding: model.Finding) -> dict[str, object]:
    return {name: finding[name] for name in ("scan_source", "rule_id", "severity", "status")}
