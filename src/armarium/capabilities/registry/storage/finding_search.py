"""Searches and counts findings by any combination of filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from armarium.capabilities.registry import model
from armarium.capabilities.registry.storage import files, issues
from armarium.capabilities.registry.storage.columns import cursor_of, finding, position_in, to_json
from armarium.capabilities.registry.storage.database import Reader
from armarium.capabilities.registry.values import SEVERITIES, FindingSort, FindingStatus

_MAX_VALUES = 50
"""The most values of a facet that are listed."""
_MAX_WORDS = 10
_SEVERITY_ORDER = (
    "CASE n.severity WHEN 'critical' THEN 0 WHEN 'high' THEN 1 WHEN 'medium' THEN 2 WHEN 'low' THEN 3 ELSE 4 END"
)
"""As in the index `findings_by_severity`."""
_FACETS = {
    "status": "n.status IN (SELECT value FROM json_each(:status))",
    "severity": "n.severity IN (SELECT value FROM json_each(:severity))",
    "source": "n.source IN (SELECT value FROM json_each(:source))",
    "rule_id": "n.rule_id IN (SELECT value FROM json_each(:rule_id))",
}
_LINE = "coalesce(n.line_start, 0)"


class _Order(NamedTuple):
    """An order of findings: the outer table, the order itself, the condition of what follows a position."""

    tables: str
    order: str
    following: str
    kinds: tuple[type, ...]


_FINDINGS_FIRST = "findings n CROSS JOIN files f ON f.no = n.file_no"
_ORDERS: dict[FindingSort, _Order] = {
    "severity": _Order(
        _FINDINGS_FIRST,
        f"{_SEVERITY_ORDER}, n.file_no, n.no",
        f"{_SEVERITY_ORDER} >= :at0 AND ({_SEVERITY_ORDER}, n.file_no, n.no) > (:at0, :at1, :at2)",
        (int, int, int),
    ),
    "updated_at": _Order(
        _FINDINGS_FIRST, "n.updated_at DESC, n.no DESC", "(n.updated_at, n.no) < (:at0, :at1)", (str, int)
    ),
    "path": _Order(
        "files f CROSS JOIN findings n ON n.file_no = f.no",
        f"f.path, {_LINE}, n.no",
        f"f.path >= :at0 AND (f.path, {_LINE}, n.no) > (:at0, :at1, :at2)",
        (str, int, int),
    ),
}


def page(
    reader: Reader, wanted: model.FindingFilter, sort: FindingSort, limit: int, cursor: str | None
) -> model.FindingPage:
    """A page of the selected findings, after the position of a cursor."""
    tables, order, following, kinds = _ORDERS[sort]
    where, values = conditions(reader, wanted)
    if cursor is not None:
        where = f"{where} AND {following}"
        values |= {f"at{place}": value for place, value in enumerate(position_in(cursor, *kinds))}
    rows = reader.rows("search_findings", values | {"limit": limit + 1}, tables=tables, where=where, order=order)
    found = [finding(row) for row in rows[:limit]]
    if len(rows) <= limit:
        return {"results": found, "next": None}
    last, (no, file_no) = found[-1], rows[limit - 1][-2:]
    positions: dict[FindingSort, tuple[str | int, ...]] = {
        "severity": (SEVERITIES.index(last["severity"]), file_no, no),
        "updated_at": (last["updated_at"], no),
        "path": (last["file_path"], last["line_start"] or 0, no),
    }
    return {"results": found, "next": cursor_of(*positions[sort])}


def conditions(reader: Reader, wanted: model.FindingFilter) -> tuple[str, dict[str, Any]]:
    """The condition that selects findings `n` in files `f`, and its values."""
    parts = list[str]()
    values = dict[str, Any]()
    if wanted.file_id is not None:
        parts.append("n.file_no = :file_no")
        values["file_no"] = files.by_id(reader, wanted.file_id).no
    if wanted.issue_id is not None:
        parts.append("n.issue_no = :issue_no")
        values["issue_no"] = issues.by_id(reader, wanted.issue_id).no
    if wanted.path_prefix:
        parts.append("n.file_no IN (SELECT no FROM files WHERE path >= :first AND path < :end)")
        values |= files.bounds_of(wanted.path_prefix)
    for place, word in enumerate((wanted.text or "").split()[:_MAX_WORDS]):
        parts.append(f"(n.message LIKE :word{place} ESCAPE '\\' OR n.rule_id LIKE :word{place} ESCAPE '\\'"
                     f" OR f.path LIKE :word{place} ESCAPE '\\')")  # fmt: skip
        values[f"word{place}"] = f"%{_escaped(word)}%"
    chosen = (wanted.status, wanted.severity, wanted.scan_source, wanted.rule_id)
    for (name, condition), among in zip(_FACETS.items(), chosen, strict=True):
        if among:
            parts.append(condition)
            values[name] = to_json(list(among))
    return " AND ".join(parts) or "TRUE", values


def counts(reader: Reader, wanted: model.FindingFilter) -> model.FindingCounts:
    """Count the selected findings by facet. The counts of a facet ignore the filter by that facet, so that a page can
    offer its other values."""
    everything = replace(wanted, status=(), severity=(), scan_source=(), rule_id=())
    where, values = conditions(reader, everything)
    groups = reader.rows("count_findings_by_facets", values, tables=_tables(wanted), where=where)
    chosen = (wanted.status, wanted.severity, wanted.scan_source, wanted.rule_id)
    by_facet = [Counter[str]() for _ in chosen]
    total = 0
    for *facets, count in groups:
        fits = [not among or value in among for value, among in zip(facets, chosen, strict=True)]
        total += count * all(fits)
        for place, value in enumerate(facets):
            if all(fits[:place] + fits[place + 1 :]):
                by_facet[place][value] += count
    status, severity, source, rule = by_facet
    unfiltered = everything == model.FindingFilter()
    in_registry = sum(row[-1] for row in groups) if unfiltered else reader.rows("count_findings", where="TRUE")[0][0]
    return {
        "total": total,
        "all": in_registry,
        "severity": [{"value": each, "count": severity[each]} for each in SEVERITIES],
        "status": [{"value": each, "count": status[each]} for each in get_args(FindingStatus)],
        "scan_source": _most_frequent(source, wanted.scan_source),
        "rule_id": _most_frequent(rule, wanted.rule_id),
        "directory": _by_directory(reader, wanted),
    }


def _most_frequent(found: Counter[str], chosen: Sequence[str]) -> list[model.FacetValue]:
    """The most frequent values, and those that are chosen."""
    listed = sorted(found.items(), key=lambda each: (-each[1], each[0]))[:_MAX_VALUES]
    missing = [(each, found[each]) for each in chosen if each not in dict(listed)]
    return [{"value": value, "count": count} for value, count in [*listed, *missing]]


def _by_directory(reader: Reader, wanted: model.FindingFilter) -> list[model.FacetValue]:
    where, values = conditions(reader, wanted)
    directory = (wanted.path_prefix or "").rpartition("/")
    asked = values | {"skip": len(directory[0] + directory[1]), "limit": _MAX_VALUES}
    rows = reader.rows("count_findings_by_directory", asked, tables=_tables(wanted), where=where)
    return [{"value": entry, "count": count} for entry, count in rows]


def _tables(wanted: model.FindingFilter) -> str:
    """The tables that the conditions need: only words are also looked for in paths."""
    return _FINDINGS_FIRST if wanted.text else "findings n"


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
