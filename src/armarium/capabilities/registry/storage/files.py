"""The table of files: lookup by id and path, pages, inserts and updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from armarium.capabilities.registry import model
from armarium.capabilities.registry.errors import KNOWN_FILES, NotFound
from armarium.capabilities.registry.storage.columns import (
    Row,
    file_summary,
    listed_file,
    page_of,
    registered_file,
    to_json,
)
from armarium.capabilities.registry.storage.database import Reader, Writer
from armarium.capabilities.registry.values import Direction, SortField

DEFAULT_DIRECTIONS: dict[SortField, Direction] = {
    "path": "asc",
    "language": "asc",
    "updated_at": "desc",
    "first_seen": "desc",
}
_FEW = 200
"""Sorting this many files is faster than scanning an index in which they are rare."""
_LAST_CHARACTER = "\U0010ffff"
_AFTER_ALL_PATHS = _LAST_CHARACTER * 4096


class StoredFile(NamedTuple):
    """A file with what only the database knows of it."""

    no: int
    removed_at: str | None
    record: model.RegisteredFile
    summary: model.FileSummary


def by_id(reader: Reader, file_id: str) -> StoredFile:
    row = reader.row("file_by_id", (file_id,))
    if row is None:
        raise NotFound("no file has this id", hint=KNOWN_FILES)
    return _stored(row)


def by_no(reader: Reader, no: int) -> model.RegisteredFile:
    [row] = reader.rows("file_by_no", (no,))
    return registered_file(row)


def at(reader: Reader, path: str) -> StoredFile | None:
    """The file at a path, otherwise the one that was removed from it last."""
    row = reader.row("file_at", (path,))
    return None if row is None else _stored(row)


def at_or_below(reader: Reader, path: str) -> list[StoredFile]:
    """The file at a path, or all files of a directory, without removed ones."""
    return [_stored(row) for row in reader.rows("files_at_or_below", {"path": path})]


def insert(writer: Writer, file_id: str, path: str, language: str, file_type: str, metadata: dict[str, Any]) -> int:
    values = {"id": file_id, "path": path, "language": language, "file_type": file_type}
    [(no,)] = writer.rows("put_file", values | {"metadata": to_json(metadata), "now": writer.now})
    return no


def update(writer: Writer, no: int, record: Mapping[str, Any], removed_at: str | None) -> None:
    metadata = to_json(record["metadata"])
    writer.rows("change_file", {**record, "metadata": metadata, "no": no, "removed_at": removed_at, "now": writer.now})


def set_sketch(writer: Writer, no: int, sketch: bytes) -> None:
    writer.many("set_file_sketch", [(sketch, no, sketch)])


def sketched(reader: Reader) -> list[tuple[str, bytes]]:
    """The path and the sketch of each file with findings."""
    return [(path, sketch) for path, sketch in reader.rows("sketched_files")]


def touch(writer: Writer, numbers: Iterable[int]) -> None:
    writer.many("touch_file", ((writer.now, no) for no in numbers))


def page(
    reader: Reader,
    wanted: model.FileFilter,
    sort: SortField,
    direction: Direction,
    limit: int,
    offset: int,
) -> model.Page[model.ListedFile]:
    """A page of the selected files, without removed ones. In the default direction, ties are ordered by path; the other
    direction is the exact reverse."""
    where, values = _conditions(wanted)
    [(total,)] = reader.rows("count_files", values, where=where)
    here = min(limit, max(0, total - offset))
    if not here:
        return page_of([], total, limit, offset)
    # Read from the nearer end, so that the last page is as fast as the first.
    ahead = max(0, total - offset - here)
    backwards = ahead < offset
    rows = reader.rows(
        "list_files",
        values | {"limit": here, "offset": ahead if backwards else offset},
        where=where,
        index="" if total <= _FEW else f"INDEXED BY files_by_{sort}",
        order=order_by(sort, reverse=backwards != (direction != DEFAULT_DIRECTIONS[sort]), few=total <= _FEW),
    )
    return page_of([listed_file(row) for row in (reversed(rows) if backwards else rows)], total, limit, offset)


def order_by(sort: SortField, *, reverse: bool, few: bool) -> str:
    """The order of a field's index, or its exact reverse: one index serves both directions."""
    directions = (DEFAULT_DIRECTIONS[sort], "asc")
    first, ties = ("desc" if each == "asc" else "asc" for each in directions) if reverse else directions
    # A plus prevents SQLite from using an index for the order, so that it can use one for the conditions.
    column = f"+{sort}" if few else sort
    return f"{column} {first}, no {first}" if sort == "path" else f"{column} {first}, path {ties}, no {ties}"


def _conditions(wanted: model.FileFilter) -> tuple[str, dict[str, Any]]:
    conditions: dict[str, Any] = {}
    if wanted.language is not None:
        conditions["language = :language"] = {"language": wanted.language}
    if wanted.path_prefix:
        conditions["path >= :first AND path < :end"] = bounds_of(wanted.path_prefix)
    if wanted.min_findings:
        conditions["open_findings >= :least"] = {"least": wanted.min_findings}
    if wanted.has_severity is not None:
        conditions[f"open_{wanted.has_severity} > 0"] = {}
    if wanted.scan_source is not None:
        conditions["instr(sources, :source)"] = {"source": f"\n{wanted.scan_source}\n"}
    values = {name: value for given in conditions.values() for name, value in given.items()}
    return " AND ".join(conditions) or "TRUE", values


def bounds_of(prefix: str) -> dict[str, str]:
    """The first path with a prefix, and the end of those that have it."""
    return {"first": prefix, "end": _end_of(prefix) or _AFTER_ALL_PATHS}


def _end_of(prefix: str) -> str:
    """The smallest text greater than all texts with the prefix; "" if there is none."""
    prefix = prefix.rstrip(_LAST_CHARACTER)
    if not prefix:
        return ""
    last = ord(prefix[-1])
    # Only surrogates lie between these two.
    return prefix[:-1] + ("\ue000" if last == 0xD7FF else chr(last + 1))


def _stored(row: Row) -> StoredFile:
    return StoredFile(row[-2], row[-1], registered_file(row), file_summary(row))
