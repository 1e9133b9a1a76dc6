"""`armarium audit`: prints the audit log as a table, as plain columns for pipes, or as JSON lines."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from armarium.command_line.options import settings_file
from armarium.command_line.output import Misuse, printable, say, show
from armarium.foundation.audit import AuditFilter, CallRecord, follow_records, read_records
from armarium.foundation.errors import ArmariumError, ConfigError
from armarium.foundation.sqlite import translated_errors
from armarium.foundation.telemetry import timestamp
from armarium.surfaces.cli.trust import require_trusted_settings

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PLAIN = "{at:<27} {outcome:<20} {tool:<16} {principal:<12} {duration:>10} {subject}"
_HEADINGS = {
    "at": "TIME",
    "outcome": "OUTCOME",
    "tool": "TOOL",
    "principal": "PRINCIPAL",
    "duration": "MS",
    "subject": "SUBJECT",
}

Row = tuple[int, CallRecord]


class UnreadableAuditLog(ArmariumError, code="AUDIT_UNREADABLE"):
    """The file exists, but is not an audit log that can be read."""


def parse_time(text: str | None, option: str) -> str | None:
    """The time of `15m` (ago) or of an ISO 8601 date, which is local time unless it names a zone."""
    if text is None:
        return None
    try:
        if ago := re.fullmatch(r"(\d+)([smhdw])", text):
            time = datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        else:
            time = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Misuse(
            f"{option}: {text!r} is not a time",
            hint="write a duration such as 15m, 2h or 1d, or a date such as 2026-01-31T08:00",
        ) from None
    return timestamp(time)


def audit_file(file: Path | None, config: Path | None) -> Path:
    """The file to read: the given one, or the one in the settings. Raises `ConfigError` if it does not exist."""
    log = file or _configured_file(config)
    if not log.is_file():
        raise ConfigError(
            f"there is no audit log at {log}",
            hint="a server creates it with its first call; choose another one with --file or --config",
        )
    return log


def _configured_file(config: Path | None) -> Path:
    from armarium.foundation.settings.loader import load_settings
    from armarium.foundation.settings.model import CoreSettings

    file = settings_file(config)
    if file is None and not any(name.startswith("ARMARIUM_") for name in os.environ):
        # The defaults apply, so the settings of the capabilities need not be imported.
        return CoreSettings().audit_file()
    from armarium.settings import Settings

    settings = load_settings(Settings, file, environ=os.environ)
    require_trusted_settings(config)
    return settings.audit_file()


def show_calls(log: Path, wanted: AuditFilter, *, last: int, as_json: bool) -> None:
    with _readable(log):
        rows = read_records(log, wanted, last=last)
    if not as_json and sys.stdout.isatty():
        _show_table(record for _, record in rows)
    else:
        _show_lines(rows, as_json=as_json)
    if not rows:
        say("no calls match")


def follow_calls(log: Path, wanted: AuditFilter, *, last: int, as_json: bool) -> None:
    with _readable(log):
        newest = next((number for number, _ in read_records(log, AuditFilter(), last=1)), 0)
        # Calls recorded in the meantime are left to `follow_records`, so that none is printed twice.
        earlier = [row for row in read_records(log, wanted, last=last) if row[0] <= newest]
        _show_lines(earlier, as_json=as_json)
        _show_lines(follow_records(log, wanted, after=newest), as_json=as_json, headings=False)


def _readable(log: Path) -> AbstractContextManager[None]:
    hint = "name the audit log of a server"
    return translated_errors(lambda error: UnreadableAuditLog(f"cannot read {log}: {error}", hint=hint))


def _show_lines(rows: Iterable[Row], *, as_json: bool, headings: bool = True) -> None:
    if headings and not as_json:
        show(_PLAIN.format(**_HEADINGS))
    for number, record in rows:
        show(_json_line(number, record) if as_json else _PLAIN.format(**_columns(record)))


def _json_line(number: int, record: CallRecord) -> str:
    return json.dumps({"id": number} | asdict(record) | {"arguments": json.loads(record.arguments)}, ensure_ascii=False)


def _columns(record: CallRecord) -> dict[str, str]:
    return {
        "at": record.at,
        "outcome": record.code or record.outcome,
        "tool": printable(record.tool),
        "principal": printable(record.principal),
        "duration": f"{record.duration_ms:.3f}",
        "subject": printable(_subject(record)),
    }


def _subject(record: CallRecord) -> str:
    if record.root is None:
        return record.path or ""
    return record.root if record.path is None else f"{record.root}:{record.path}"


def _show_table(records: Iterable[CallRecord]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column, heading in _HEADINGS.items():
        justify = "right" if column == "duration" else "left"
        table.add_column(heading, justify=justify, no_wrap=column != "subject", overflow="fold")
    for record in records:
        style = "red" if record.outcome == "error" else ""
        # As str, a path could be taken for markup.
        table.add_row(*(Text(value, style) for value in _columns(record).values()))
    Console().print(table)
