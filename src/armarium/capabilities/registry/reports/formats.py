"""Finds out which form a report has, and reads it whole before anything of it is taken in."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from armarium.capabilities.registry.model import ReportFormat, ScanReport
from armarium.capabilities.registry.reports.armarium_json import is_armarium_json, read_armarium_json
from armarium.capabilities.registry.reports.fields import refused
from armarium.capabilities.registry.reports.gitleaks import is_gitleaks, read_gitleaks
from armarium.capabilities.registry.reports.sarif import is_sarif, read_sarif


def read_reports(
    data: bytes, form: ReportFormat = "auto", *, source: str | None = None, covered: Sequence[str] | None = None
) -> list[ScanReport]:
    """What a file says, as one scan for each scanner that speaks in it; raises `ValidationError` if it says nothing.

    `source` and `covered` go before what the file says of them.
    """
    return reports_in(_parsed(data), form, source=source, covered=covered)


def reports_in(
    document: object, form: ReportFormat = "auto", *, source: str | None = None, covered: Sequence[str] | None = None
) -> list[ScanReport]:
    """The same of JSON that is read already."""
    reports = _read(document, _recognised(document) if form == "auto" else form, source)
    if covered is not None:
        reports = [replace(report, covered=tuple(covered)) for report in reports]
    return reports


def _read(document: object, form: ReportFormat, source: str | None) -> list[ScanReport]:
    if form == "sarif":
        return read_sarif(document, source)
    if form == "gitleaks":
        report = read_gitleaks(document)
        return [replace(report, source=source) if source else report]
    return [read_armarium_json(document, source)]


def _parsed(data: bytes) -> Any:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # What a scanner prints becomes UTF-16 where PowerShell redirects it into a file.
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise refused("it is empty")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise refused("it is not JSON", f"line {error.lineno}, column {error.colno}") from None


def _recognised(document: object) -> ReportFormat:
    if is_sarif(document):
        return "sarif"
    if is_gitleaks(document):
        return "gitleaks"
    if is_armarium_json(document):
        return "armarium"
    raise refused("it has none of the forms that can be read")
