"""The tables of issues and of their associations with files."""

from __future__ import annotations

from typing import Any, NamedTuple

from armarium.capabilities.registry.errors import NotFound
from armarium.capabilities.registry.model import AssocType, FileLink, IssueAnswer, IssueLink, IssueStatus, Page
from armarium.capabilities.registry.storage.columns import issue, named, page_of, to_json
from armarium.capabilities.registry.storage.database import Reader, Writer


class StoredIssue(NamedTuple):
    no: int
    issue: IssueAnswer


def by_id(reader: Reader, issue_id: str) -> StoredIssue:
    row = reader.row("issue_by_id", (issue_id,))
    if row is None:
        raise NotFound("no issue has this id", hint="list_issues lists them, create_issue creates one")
    return StoredIssue(row[-1], issue(row))


def insert(writer: Writer, new: IssueAnswer) -> int:
    [(no,)] = writer.rows("put_issue", {**new, "labels": to_json(new["labels"])})
    return no


def update(writer: Writer, changed: IssueAnswer) -> None:
    writer.rows("change_issue", {**changed, "labels": to_json(changed["labels"])})


def page(reader: Reader, status: IssueStatus | None, label: str | None, limit: int, offset: int) -> Page[IssueAnswer]:
    """A page of issues, the most urgent first, and among those the ones that changed last."""
    conditions: list[str] = []
    if status is not None:
        conditions.append("i.status = :status")
    if label is not None:
        conditions.append(":label IN (SELECT value FROM json_each(i.labels))")
    where = " AND ".join(conditions) or "TRUE"
    values: dict[str, Any] = {"status": status, "label": label}
    [(total,)] = reader.rows("count_issues", values, where=where)
    rows = reader.rows("list_issues", values | {"limit": limit, "offset": offset}, where=where)
    return page_of([issue(row) for row in rows], total, limit, offset)


def associate(writer: Writer, file_no: int, issue_no: int, assoc_type: AssocType, actor: str) -> bool:
    """Link a file to an issue. Returns whether the link is new."""
    return bool(writer.rows("put_association", (file_no, issue_no, assoc_type, actor, writer.now)))


def of_file(reader: Reader, file_no: int) -> list[FileLink]:
    return [named(FileLink, row) for row in reader.rows("associations_of_file", (file_no,))]


def of_issue(reader: Reader, issue_no: int) -> list[IssueLink]:
    return [named(IssueLink, row) for row in reader.rows("associations_of_issue", (issue_no,))]
