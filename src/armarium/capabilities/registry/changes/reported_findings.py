"""Normalises reported findings."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace

from armarium.capabilities.registry.limits import MAX_LINE, MAX_NAME_CHARS, MAX_TEXT_CHARS, printable
from armarium.capabilities.registry.model import ReportEntry
from armarium.foundation.surrogates import replace_unpaired_surrogates

_NUMBERS = re.compile(r"\d+")


def kind_of(reported: ReportEntry) -> tuple[str, str]:
    """What findings of one kind have in common, wherever they are."""
    return reported.rule_id, without_numbers(reported.message)


def without_numbers(message: str) -> str:
    """The message with every number replaced: numbers such as those in `Line too long (92 > 88)` change."""
    return _NUMBERS.sub("0", message)


def normalised(reported: ReportEntry) -> ReportEntry:
    """The finding as stored: without unpaired surrogates and invalid line numbers, and with bounded texts."""
    line_start, line_end = _line(reported.line_start), _line(reported.line_end)
    fingerprint = reported.fingerprint or ""
    lines_valid = (line_start, line_end) == (reported.line_start, reported.line_end)
    if lines_valid and all(map(_is_plain, (reported.rule_id, fingerprint))) and _is_short(reported):
        return reported
    return replace(
        reported,
        rule_id=stored_rule_id(reported.rule_id),
        message=replace_unpaired_surrogates(reported.message[:MAX_TEXT_CHARS]),
        line_start=line_start,
        line_end=line_end,
        suggestion=replace_unpaired_surrogates(reported.suggestion[:MAX_TEXT_CHARS]),
        fingerprint=_short_fingerprint(replace_unpaired_surrogates(fingerprint)) or None,
    )


def stored_rule_id(rule_id: str) -> str:
    return printable(replace_unpaired_surrogates(rule_id))[:MAX_NAME_CHARS]


def _is_plain(name: str) -> bool:
    return len(name) <= MAX_NAME_CHARS and name.isascii() and name.isprintable()


def _is_short(reported: ReportEntry) -> bool:
    return all(len(text) <= MAX_TEXT_CHARS and text.isascii() for text in (reported.message, reported.suggestion))


def _short_fingerprint(fingerprint: str) -> str:
    """A fingerprint that is too long is replaced by its digest: several may begin alike."""
    if len(fingerprint) <= MAX_NAME_CHARS:
        return printable(fingerprint)
    return hashlib.sha256(fingerprint.encode()).hexdigest()


def _line(number: int | None) -> int | None:
    return number if number is not None and 0 < number <= MAX_LINE else None
