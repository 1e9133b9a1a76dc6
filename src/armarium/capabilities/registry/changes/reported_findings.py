"""What is stored of a finding as a scanner reports it, and what a later scan knows it by."""

from __future__ import annotations

import hashlib

from armarium.capabilities.registry.limits import MAX_LINE, MAX_NAME_CHARS, MAX_TEXT_CHARS, printable
from armarium.capabilities.registry.model import ReportEntry


def identity(reported: ReportEntry) -> str:
    """What the same finding will be known by in a later scan of its file by its source."""
    if reported.fingerprint:
        return f"fingerprint:{reported.fingerprint}"
    return identity_by_place(reported)


def identity_by_place(reported: ReportEntry) -> str:
    """What it is known by where scanners write no fingerprints: rule and line, else rule and message."""
    if reported.line_start is not None:
        return f"line:{reported.line_start}:{reported.rule_id}"
    return f"message:{hashlib.sha256(reported.message.encode()).hexdigest()}:{reported.rule_id}"


def normalised(reported: ReportEntry) -> ReportEntry:
    """The finding as far as it is stored: no halves of characters, no lines that no file has, no endless texts."""
    line_start, line_end = _line(reported.line_start), _line(reported.line_end)
    fingerprint = reported.fingerprint or ""
    lines_stay = (line_start, line_end) == (reported.line_start, reported.line_end)
    if lines_stay and all(map(_is_plain, (reported.rule_id, fingerprint))) and _is_short(reported):
        return reported
    return ReportEntry(
        path=reported.path,
        rule_id=printable(_whole(reported.rule_id))[:MAX_NAME_CHARS],
        message=_whole(reported.message[:MAX_TEXT_CHARS]),
        severity=reported.severity,
        line_start=line_start,
        line_end=line_end,
        suggestion=_whole(reported.suggestion[:MAX_TEXT_CHARS]),
        fingerprint=_short_fingerprint(_whole(fingerprint)) or None,
        metadata=reported.metadata,
        suppressed=reported.suppressed,
    )


def _is_plain(name: str) -> bool:
    return len(name) <= MAX_NAME_CHARS and name.isascii() and name.isprintable()


def _is_short(reported: ReportEntry) -> bool:
    return all(len(text) <= MAX_TEXT_CHARS and text.isascii() for text in (reported.message, reported.suggestion))


def _short_fingerprint(fingerprint: str) -> str:
    """What is too long to keep is told apart by its digest: its beginning may be that of others."""
    if len(fingerprint) <= MAX_NAME_CHARS:
        return printable(fingerprint)
    return hashlib.sha256(fingerprint.encode()).hexdigest()


def _line(number: int | None) -> int | None:
    return number if number is not None and 0 < number <= MAX_LINE else None


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
