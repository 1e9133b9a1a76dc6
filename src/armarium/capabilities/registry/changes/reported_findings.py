"""What is kept of a finding as a scanner reports it, and what a later scan knows it by."""

from __future__ import annotations

import hashlib

from armarium.capabilities.registry.limits import LAST_LINE, LONGEST_NAME, LONGEST_TEXT, shown
from armarium.capabilities.registry.model import Reported


def identity(reported: Reported) -> str:
    """What the same finding will be known by in a later scan of its file by its source."""
    if reported.fingerprint:
        return f"fingerprint:{reported.fingerprint}"
    return identity_by_place(reported)


def identity_by_place(reported: Reported) -> str:
    """What it is known by where scanners write no fingerprints: rule and line, else rule and message."""
    if reported.line_start is not None:
        return f"line:{reported.line_start}:{reported.rule_id}"
    return f"message:{hashlib.sha256(reported.message.encode()).hexdigest()}:{reported.rule_id}"


def tidy(reported: Reported) -> Reported:
    """The finding as far as it is kept: no halves of characters, no lines that no file has, no endless texts."""
    line_start, line_end = _line(reported.line_start), _line(reported.line_end)
    fingerprint = reported.fingerprint or ""
    lines_stay = (line_start, line_end) == (reported.line_start, reported.line_end)
    if lines_stay and all(map(_is_plain, (reported.rule_id, fingerprint))) and _is_short(reported):
        return reported
    return Reported(
        path=reported.path,
        rule_id=shown(_whole(reported.rule_id))[:LONGEST_NAME],
        message=_whole(reported.message[:LONGEST_TEXT]),
        severity=reported.severity,
        line_start=line_start,
        line_end=line_end,
        suggestion=_whole(reported.suggestion[:LONGEST_TEXT]),
        fingerprint=_short_fingerprint(_whole(fingerprint)) or None,
        metadata=reported.metadata,
        suppressed=reported.suppressed,
    )


def _is_plain(name: str) -> bool:
    return len(name) <= LONGEST_NAME and name.isascii() and name.isprintable()


def _is_short(reported: Reported) -> bool:
    return all(len(text) <= LONGEST_TEXT and text.isascii() for text in (reported.message, reported.suggestion))


def _short_fingerprint(fingerprint: str) -> str:
    """What is too long to keep is told apart by its digest: its beginning may be that of others."""
    if len(fingerprint) <= LONGEST_NAME:
        return shown(fingerprint)
    return hashlib.sha256(fingerprint.encode()).hexdigest()


def _line(number: int | None) -> int | None:
    return number if number is not None and 0 < number <= LAST_LINE else None


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
