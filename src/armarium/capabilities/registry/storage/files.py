"""Files as they are stored: found by id and path, listed by page, put and changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from armarium.capabilities.registry.model import Direction, FileFilter, FileRecord, Page, SortField
from armarium.capabilities.registry.storage.columns import file_record, to_json
from armarium.capabilities.registry.storage.database import Reader, Writer

DEFAULT_DIRECTIONS: dict[SortField, Direction] = {
    "path": "asc",
    "language": "asc",
    "updated_at": "desc",
    "first_seen": "desc",
}
_FEW = 200
"""So many files are sorted faster than an index is walked in which they are rare."""
_LAST_CHARACTER = "\U0010ffff"


class StoredFile(NamedTuple):
    """A file and its number in the database."""

    no: int
    record: FileRecord


def by_id(reader: Reader, file_id: str) -> StoredFile | None:
    """The file of that id."""
    return _kept(reader.row("file_by_id", (file_id,)))


def by_no(reader: Reader, no: int) -> FileRecord:
    """The file of that number, which must be one."""
    [row] = reader.rows("file_by_no", (no,))
    return file_record(row)


def at(reader: Reader, path: str) -> StoredFile | None:
    """The file at a path, or the one that was there last."""
    return _kept(reader.row("file_at", (path,)))


def at_or_below(reader: Reader, path: str) -> list[StoredFile]:
    """The file at a path, or all files of the directory; none that were removed."""
    return [StoredFile(row[0], file_record(row)) for row in reader.rows("files_at_or_below", {"path": path})]


def insert(writer: Writer, file_id: str, path: str, language: str, file_type: str, metadata: dict[str, Any]) -> int:
    """A new file; its number."""
    values = {"id": file_id, "path": path, "language": language, "file_type": file_type}
    [(no,)] = writer.rows("put_file", values | {"metadata": to_json(metadata), "now": writer.now})
    return no


def update(writer: Writer, no: int, record: FileRecord) -> None:
    """Let a file be as the record says; it has changed now."""
    values = {
        "no": no,
        "path": record.path,
        "language": record.language,
        "file_type": record.file_type,
        "metadata": to_json(record.metadata),
        "removed_at": record.removed_at,
        "now": writer.now,
    }
    writer.rows("change_file", values)


def touch(writer: Writer, numbers: Iterable[int]) -> None:
    """Something about these files has changed now."""
    writer.many("touch_file", ((writer.now, no) for no in numbers))


def page(
    reader: Reader, wanted: FileFilter, sort: SortField, direction: Direction, limit: int, offset: int
) -> Page[FileRecord]:
    """A part of the files that are wanted, of those that were not removed. In the default direction, those that sort
    alike come in the order of their paths; the other direction is exactly the reverse."""
    where, values = _conditions(wanted)
    [(total,)] = reader.rows("count_files", values, where=where)
    here = min(limit, max(0, total - offset))
    if not here:
        return Page([], total, limit, offset)
    # From whichever end is nearer: the last page is as quick as the first.
    ahead = max(0, total - offset - here)
    backwards = ahead < offset
    rows = reader.rows(
        "list_files",
        values | {"limit": here, "offset": ahead if backwards else offset},
        where=where,
        index="" if total <= _FEW else f"INDEXED BY files_by_{sort}",
        order=_order(sort, reverse=backwards != (direction != DEFAULT_DIRECTIONS[sort]), few=total <= _FEW),
    )
    return Page([file_record(row) for row in (reversed(rows) if backwards else rows)], total, limit, offset)


def _order(sort: SortField, *, reverse: bool, few: bool) -> str:
    """The order of a field's index, or exactly its reverse: one index serves both directions, from both ends."""
    directions = (DEFAULT_DIRECTIONS[sort], "asc")
    first, ties = ("desc" if each == "asc" else "asc" for each in directions) if reverse else directions
    # With a plus no index is taken for the order, so that one for the conditions can be.
    column = f"+{sort}" if few else sort
    return f"{column} {first}, no {first}" if sort == "path" else f"{column} {first}, path {ties}, no {ties}"


def _conditions(wanted: FileFilter) -> tuple[str, dict[str, Any]]:
    conditions: dict[str, Any] = {}
    if wanted.language is not None:
        conditions["language = :language"] = {"language": wanted.language}
    if wanted.path_prefix:
        conditions["path >= :first"] = {"first": wanted.path_prefix}
        if end := _behind(wanted.path_prefix):
            conditions["path < :end"] = {"end": end}
    if wanted.min_findings:
        conditions["open_findings >= :least"] = {"least": wanted.min_findings}
    if wanted.has_severity is not None:
        conditions[f"open_{wanted.has_severity} > 0"] = {}
    if wanted.scan_source is not None:
        conditions["instr(sources, :source)"] = {"source": f"\n{wanted.scan_source}\n"}
    values = {name: value for given in conditions.values() for name, value in given.items()}
    return " AND ".join(conditions) or "TRUE", values


def _behind(prefix: str) -> str:
    """The least text that is behind all that begins with the prefix; "" if there is none."""
    prefix = prefix.rstrip(_LAST_CHARACTER)
    if not prefix:
        return ""
    last = ord(prefix[-1])
    # Between these two are no characters, only halves of some.
    return prefix[:-1] + ("\ue000" if last == 0xD7FF else chr(last + 1))


def _kept(row: tuple[Any, ...] | None) -> StoredFile | None:
    return None if row is None else StoredFile(row[0], file_record(row))
