"""Issues as they are stored, and which files they have to do with."""

from __future__ import annotations

from typing import Any, NamedTuple

from armarium.capabilities.registry.model import Association, AssocType, Issue, IssueStatus, Page
from armarium.capabilities.registry.storage.columns import association, issue, to_json
from armarium.capabilities.registry.storage.database import Reader, Writer


class StoredIssue(NamedTuple):
    """An issue and its number in the database."""

    no: int
    issue: Issue


def by_id(reader: Reader, issue_id: str) -> StoredIssue | None:
    """The issue of that id."""
    row = reader.row("issue_by_id", (issue_id,))
    return None if row is None else StoredIssue(row[0], issue(row))


def insert(writer: Writer, new: Issue) -> int:
    """A new issue; its number."""
    [(no,)] = writer.rows("put_issue", _values(new))
    return no


def update(writer: Writer, changed: Issue) -> None:
    """Let an issue be as given."""
    values = _values(changed)
    del values["created_at"]
    writer.rows("change_issue", values)


def page(reader: Reader, status: IssueStatus | None, label: str | None, limit: int, offset: int) -> Page[Issue]:
    """A part of the issues, the most urgent first, among those what changed last."""
    conditions: list[str] = []
    if status is not None:
        conditions.append("i.status = :status")
    if label is not None:
        conditions.append(":label IN (SELECT value FROM json_each(i.labels))")
    where = " AND ".join(conditions) or "TRUE"
    values: dict[str, Any] = {"status": status, "label": label}
    [(total,)] = reader.rows("count_issues", values, where=where)
    rows = reader.rows("list_issues", values | {"limit": limit, "offset": offset}, where=where)
    return Page([issue(row) for row in rows], total, limit, offset)


def associate(writer: Writer, file_no: int, issue_no: int, assoc_type: AssocType, actor: str) -> bool:
    """Link a file with an issue; whether they were not linked like this before."""
    return bool(writer.rows("put_association", (file_no, issue_no, assoc_type, actor, writer.now)))


def of_file(reader: Reader, file_no: int) -> list[Association]:
    """What a file has to do with issues, oldest first."""
    return [association(row) for row in reader.rows("associations_of_file", (file_no,))]


def of_issue(reader: Reader, issue_no: int) -> list[Association]:
    """What an issue has to do with files, oldest first."""
    return [association(row) for row in reader.rows("associations_of_issue", (issue_no,))]


def _values(of: Issue) -> dict[str, Any]:
    return {
        "id": of.id,
        "title": of.title,
        "body": of.body,
        "status": of.status,
        "priority": of.priority,
        "labels": to_json(list(of.labels)),
        "external_ref": of.external_ref,
        "created_at": of.created_at,
        "updated_at": of.updated_at,
        "closed_at": of.closed_at,
    }
