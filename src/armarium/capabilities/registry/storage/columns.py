"""The columns of files, findings, issues and associations, the values built from them, and cursors of pages."""

from __future__ import annotations

import base64
import binascii
import unicodedata
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import orjson

from armarium.capabilities.registry import model
from armarium.capabilities.registry.errors import ValidationError

ItemT = TypeVar("ItemT")
ValueT = TypeVar("ValueT")

Row = tuple[Any, ...]

_MAX_CURSOR_CHARS = 8192
_UNPRINTABLE = ("Cc", "Cs", "Zl", "Zp")
"""Control characters, unpaired surrogates, and line separators."""


def _columns(value_type: type[Any], table: str, **others: str) -> str:
    """The columns of a value's fields: those of the same names in a table, except the `others`."""
    return ", ".join(others.get(name, f"{table}.{name}") for name in value_type.__annotations__)


_FINDING = {"file_id": "f.id", "file_path": "f.path", "scan_source": "n.source", "issue_id": "i.id"}
_LINK = {"id": "a.no", "file_id": "f.id", "issue_id": "i.id"}
_COUNTS = "total_findings, open_findings, open_critical, open_high, open_medium, open_low, open_info, associations"

_COLUMNS = {
    "{file}": f"{_columns(model.RegisteredFile, 'files')}, {_COUNTS}, no, removed_at",
    "{finding}": f"{_columns(model.Finding, 'n', **_FINDING)}, n.no, n.file_no",
    "{issue}": f"{_columns(model.IssueAnswer, 'i')}, i.no",
    "{file_link}": _columns(model.FileLink, "a", **_LINK, issue_title="i.title", issue_status="i.status"),
    "{issue_link}": _columns(model.IssueLink, "a", **_LINK, file_path="f.path", file_language="f.language"),
}


def with_columns(statement: str) -> str:
    """The statement with its column placeholders expanded."""
    for name, columns in _COLUMNS.items():
        statement = statement.replace(name, columns)
    return statement


def named(value_type: type[ValueT], values: Iterable[Any]) -> ValueT:
    """A value from those of its fields, in their order."""
    return cast(ValueT, dict(zip(cast(Any, value_type).__annotations__, values, strict=True)))


def registered_file(row: Row) -> model.RegisteredFile:
    return {**named(model.RegisteredFile, row[:7]), "metadata": _from_json(row[6])}


def file_summary(row: Row) -> model.FileSummary:
    return named(model.FileSummary, row[7:14])


def listed_file(row: Row) -> model.ListedFile:
    return {**registered_file(row), "summary": file_summary(row), "associations_count": row[14]}


def finding(row: Row) -> model.Finding:
    return {**named(model.Finding, row[:-2]), "metadata": _from_json(row[-3])}


def issue(row: Row) -> model.IssueAnswer:
    return {**named(model.IssueAnswer, row[:-1]), "labels": orjson.loads(row[5])}


def page_of(results: list[ItemT], total: int, limit: int, offset: int) -> model.Page[ItemT]:
    has_more = offset + len(results) < total
    return {"results": results, "total": total, "limit": limit, "offset": offset, "has_more": has_more}


def cursor_of(*position: str | int) -> str:
    """Where a page ended, as text that callers send back."""
    return base64.urlsafe_b64encode(orjson.dumps(position)).decode().rstrip("=")


def position_in(cursor: str, *kinds: type) -> list[Any]:
    """The values of a cursor. Raises `ValidationError` unless they have these types."""
    try:
        text = cursor[:_MAX_CURSOR_CHARS]
        values: object = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        values = None
    found = cast("list[Any]", values) if isinstance(values, list) else []
    if [type(each) for each in found] != [*kinds]:
        raise ValidationError("`cursor` is not one of this list", hint="send `next` of a page, with the same filter")
    return found


def _from_json(metadata: str) -> dict[str, Any]:
    """Parse stored metadata. Most is empty."""
    return {} if metadata == "{}" else orjson.loads(metadata)


def to_json(value: Any) -> str:
    """Encode a value as JSON that every parser accepts."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        raise ValidationError(
            "a value cannot be stored as JSON: a number beyond 64 bits, an unpaired surrogate, or too deep nesting"
        ) from None


def has_unprintable(text: str) -> bool:
    """Whether the text contains characters that a path or a text on one line must not have."""
    return not text.isprintable() and any(unicodedata.category(char) in _UNPRINTABLE for char in text)
