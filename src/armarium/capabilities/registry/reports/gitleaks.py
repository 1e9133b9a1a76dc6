"""Reads what gitleaks writes as JSON, and of each finding only what does not give the secret away."""

from __future__ import annotations

from typing import Any, cast

from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.reports.fields import as_object, line_in, refused, text_in
from armarium.foundation.schema import Json

SOURCE = "gitleaks"


def is_gitleaks(document: object) -> bool:
    """Whether this is what gitleaks writes: an array, whose first finding names a rule and a file."""
    if not isinstance(document, list):
        return False
    entries = cast(list[Any], document)
    return not entries or (isinstance(entries[0], dict) and "RuleID" in entries[0] and "File" in entries[0])


def read_gitleaks(document: object) -> ScanReport:
    """The findings of one run; raises `ValidationError` where it is not one."""
    if not isinstance(document, list):
        raise refused("must be an array")
    entries = cast(list[Any], document)
    return ScanReport(SOURCE, [_finding(as_object(each, f"[{n}]"), f"[{n}]") for n, each in enumerate(entries)])


def _finding(entry: Json, at: str) -> ReportEntry:
    # By name, one by one: Secret, Match and Line hold the secret, and Message is what somebody wrote into a commit.
    rule_id, path = text_in(entry, "RuleID", at), text_in(entry, "File", at)
    if not rule_id or not path:
        raise refused("needs RuleID and File", at)
    commit = text_in(entry, "Commit", at)
    return ReportEntry(
        path,
        rule_id,
        text_in(entry, "Description", at) or f"{rule_id} found",
        "high",
        line_in(entry, "StartLine", at),
        line_in(entry, "EndLine", at),
        suggestion="revoke the secret, then remove it from the file and from its history",
        fingerprint=text_in(entry, "Fingerprint", at) or None,
        metadata={"commit": commit} if commit else {},
    )
