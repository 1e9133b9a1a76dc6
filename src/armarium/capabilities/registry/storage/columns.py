"""Which columns a file, a finding, an issue and an association are read from, and what is made of them."""

from __future__ import annotations

from typing import Any

import orjson

from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.model import Association, FileRecord, Finding, Issue, Summary

_FILE = (
    "no, id, path, language, file_type, first_seen, updated_at, metadata, removed_at, associations, "
    "total_findings, open_findings, open_critical, open_high, open_medium, open_low, open_info"
)
_FINDING = (
    "n.no, n.file_no, n.metadata, n.id, f.id, f.path, n.source, n.rule_id, n.severity, n.status, n.message, "
    "n.suggestion, n.line_start, n.line_end, n.fingerprint, i.id, n.seen_count, n.scan_run_id, n.first_seen, "
    "n.updated_at, n.last_seen_at"
)
_ISSUE = (
    "i.no, i.labels, i.id, i.title, i.body, i.status, i.priority, i.external_ref, i.created_at, i.updated_at, "
    "i.closed_at"
)
_ASSOCIATION = "a.no, f.id, i.id, a.assoc_type, a.created_at, f.path, f.language, i.title, i.status"


_COLUMNS = {"{file}": _FILE, "{finding}": _FINDING, "{issue}": _ISSUE, "{association}": _ASSOCIATION}


def with_columns(statement: str) -> str:
    """The statement with its columns written out."""
    for name, columns in _COLUMNS.items():
        statement = statement.replace(name, columns)
    return statement


def file_record(row: tuple[Any, ...]) -> FileRecord:
    """A file from its columns."""
    _, file_id, path, language, file_type, first_seen, updated_at, metadata, removed_at, associations, *counts = row
    return FileRecord(
        file_id,
        path,
        language,
        file_type,
        first_seen,
        updated_at,
        from_json(metadata),
        removed_at,
        Summary(*counts),
        associations,
    )


def finding(row: tuple[Any, ...]) -> Finding:
    """A finding from its columns."""
    _, _, metadata, *rest = row
    return Finding(*rest, metadata=from_json(metadata))


def issue(row: tuple[Any, ...]) -> Issue:
    """An issue from its columns."""
    _, labels, issue_id, title, body, status, priority, external_ref, created_at, updated_at, closed_at = row
    return Issue(
        issue_id,
        title,
        body,
        status,
        priority,
        tuple(orjson.loads(labels)),
        external_ref,
        created_at,
        updated_at,
        closed_at,
    )


def association(row: tuple[Any, ...]) -> Association:
    """A link between a file and an issue from its columns."""
    return Association(*row)


def from_json(metadata: str) -> dict[str, Any]:
    """Metadata as a value; most have none."""
    return {} if metadata == "{}" else orjson.loads(metadata)


def to_json(value: Any) -> str:
    """A value as JSON, if every reader of JSON will understand it."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        raise ValidationError(
            "a value cannot be stored as JSON: a number beyond 64 bits, half a character, or hundreds of levels"
        ) from None
