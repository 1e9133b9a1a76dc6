"""The tables of issues and of their associations with files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson

from armarium.capabilities.registry import model, values
from armarium.capabilities.registry.errors import KNOWN_ISSUES, NotFound
from armarium.capabilities.registry.storage.columns import cursor_of, issue, named, page_of, position_in, to_json
from armarium.capabilities.registry.storage.database import Reader, Writer

IssueEventType = Literal["issue_created", "issue_updated", "commented", "file_linked", "file_unlinked"]

_MAX_WORDS = 10
_FOLLOWING = (
    "i.priority >= :priority AND (i.priority > :priority OR i.updated_at < :updated_at "
    "OR (i.updated_at = :updated_at AND i.no > :no))"
)


class StoredIssue(NamedTuple):
    no: int
    issue: model.IssueAnswer


def by_id(reader: Reader, issue_id: str) -> StoredIssue:
    row = reader.row("issue_by_id", (issue_id,))
    if row is None:
        raise NotFound("no issue has this id", hint=KNOWN_ISSUES)
    return StoredIssue(row[-1], issue(row))


def insert(writer: Writer, new: model.IssueAnswer) -> int:
    [(no,)] = writer.rows("put_issue", {**new, "labels": to_json(new["labels"])})
    return no


def update(writer: Writer, changed: model.IssueAnswer) -> None:
    writer.rows("change_issue", {**changed, "labels": to_json(changed["labels"])})


def page(
    reader: Reader, status: values.IssueStatus | None, label: str | None, limit: int, offset: int
) -> model.Page[model.IssueAnswer]:
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


def search(
    reader: Reader, statuses: Sequence[values.IssueStatus], label: str | None, text: str, limit: int, cursor: str | None
) -> model.IssuePage:
    """A page of issues in the same order, after the position of a cursor. All words must occur in the id, title, body
    or labels."""
    conditions = ["TRUE"]
    values: dict[str, Any] = {"label": label}
    if label is not None:
        conditions.append(":label IN (SELECT value FROM json_each(i.labels))")
    for place, word in enumerate(text.lower().split()[:_MAX_WORDS]):
        conditions.append(f"instr(lower(i.id || ' ' || i.title || ' ' || i.body || ' ' || i.labels), :word{place})")
        values[f"word{place}"] = word
    by_status: dict[str, int] = dict(reader.rows("count_issues_by_status", values, where=" AND ".join(conditions)))
    if statuses:
        conditions.append("i.status IN (SELECT value FROM json_each(:statuses))")
        values["statuses"] = to_json(list(statuses))
    if cursor is not None:
        conditions.append(_FOLLOWING)
        position = position_in(cursor, int, str, int)
        values |= dict(zip(("priority", "updated_at", "no"), position, strict=True))
    rows = reader.rows("search_issues", values | {"limit": limit + 1}, where=" AND ".join(conditions))
    found = [issue(row) for row in rows[:limit]]
    end = cursor_of(found[-1]["priority"], found[-1]["updated_at"], rows[limit - 1][-1]) if len(rows) > limit else None
    return {"results": found, "next": end, "by_status": by_status}


def append_event(writer: Writer, issue_no: int, type_: IssueEventType, actor: str, data: Mapping[str, Any]) -> None:
    writer.many("put_issue_event", [(issue_no, type_, writer.now, actor, to_json(dict(data)))])


def events(reader: Reader, issue_no: int, limit: int, cursor: str | None) -> tuple[list[model.IssueEvent], str | None]:
    """A page of the events of an issue, newest first, and the cursor of the next one."""
    before = 2**63 - 1 if cursor is None else position_in(cursor, int)[0]
    asked = {"issue_no": issue_no, "before": before, "limit": limit + 1}
    rows = reader.rows("list_issue_events", asked) if reader.has_judgements else []
    found: list[model.IssueEvent] = [
        {"id": f"issue-event-{seq}", "type": type_, "timestamp": at, "actor": actor, "data": orjson.loads(data)}
        for seq, type_, at, actor, data in rows[:limit]
    ]
    return found, cursor_of(rows[limit - 1][0]) if len(rows) > limit else None


def link(reader: Reader, file_no: int, association_no: int) -> model.FileLink:
    row = reader.row("association_of_file", (file_no, association_no))
    if row is None:
        raise NotFound("the file has no such link", hint="get_file lists its associations")
    return named(model.FileLink, row)


def associate(writer: Writer, file_no: int, issue_no: int, assoc_type: values.AssocType, actor: str) -> bool:
    """Link a file to an issue. Returns whether the link is new."""
    return bool(writer.rows("put_association", (file_no, issue_no, assoc_type, actor, writer.now)))


def of_file(reader: Reader, file_no: int) -> list[model.FileLink]:
    return [named(model.FileLink, row) for row in reader.rows("associations_of_file", (file_no,))]


def of_issue(reader: Reader, issue_no: int) -> list[model.IssueLink]:
    return [named(model.IssueLink, row) for row in reader.rows("associations_of_issue", (issue_no,))]
