"""Detects the format of a report, SARIF, gitleaks' or our own, and reads it completely before any of it is applied."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from dataclasses import replace
from functools import cache
from typing import Any, cast

import orjson
import pydantic

from armarium.capabilities.registry.arguments import ImportOptions, ReportArgs
from armarium.capabilities.registry.errors import ValidationError
from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.reports.fields import as_array, as_object, line_in, refused, text_in
from armarium.capabilities.registry.reports.sarif import read_sarif
from armarium.capabilities.registry.values import ReportFormat
from armarium.foundation.errors import ArgumentOutOfRange, InvalidArgument, MissingArgument
from armarium.foundation.schema import Json, SchemaCheck
from armarium.foundation.tools import Call, local_tool

MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
_DEFAULTS = ImportOptions()
_GZIP = b"\x1f\x8b"


def read_reports(data: bytes, options: ImportOptions = _DEFAULTS, *, max_bytes: int | None = None) -> list[ScanReport]:
    """Read a file, which may be compressed with gzip, into one scan report per scanner; raises `ValidationError` if it
    is invalid. `max_bytes` limits what is decompressed, by default to `MAX_DECOMPRESSED_BYTES`."""
    return reports_in(_parsed(data, max_bytes or MAX_DECOMPRESSED_BYTES), options)


def reports_in(document: object, options: ImportOptions) -> list[ScanReport]:
    """The same for parsed JSON."""
    prefixes = dict(map(_prefix_and_path, options.map))
    source = options.scan_source
    form = _detected_format(document) if options.format == "auto" else options.format
    if form == "sarif":
        reports = read_sarif(document, source, prefixes)
    elif form == "gitleaks":
        entries = enumerate(as_array(document))
        findings = [_gitleaks_finding(as_object(each, f"[{number}]"), f"[{number}]") for number, each in entries]
        reports = [ScanReport(source or "gitleaks", findings)]
    else:
        reports = [_read_own(document, source)]
    given: dict[str, Any] = {"prefixes": prefixes} if prefixes else {}
    if options.paths is not None:
        given["covered"] = options.paths
    if options.category is not None:
        given["category"] = options.category
    return [replace(report, **given) for report in reports] if given else reports


def _prefix_and_path(text: str) -> tuple[str, str]:
    prefix, equals, path = text.rpartition("=")
    if not prefix or not equals:
        raise ValidationError("a mapping is PREFIX=PATH", hint="for example /builds/app=.")
    return prefix, "" if path in ("", ".", "./") else path


def _gitleaks_finding(entry: Json, at: str) -> ReportEntry:
    # Only these fields: Secret, Match and Line contain the secret, and Message is the text of a commit.
    rule_id, path = text_in(entry, "RuleID", at), text_in(entry, "File", at)
    if not rule_id or not path:
        raise refused("needs RuleID and File", at)
    facts: Json = {"commit": text_in(entry, "Commit", at), "column": line_in(entry, "StartColumn", at)}
    return ReportEntry(
        path,
        rule_id,
        text_in(entry, "Description", at) or f"{rule_id} found",
        "high",
        line_in(entry, "StartLine", at),
        line_in(entry, "EndLine", at),
        suggestion="revoke the secret, then remove it from the file and from its history",
        fingerprint=text_in(entry, "Fingerprint", at) or None,
        metadata={name: value for name, value in facts.items() if value},
    )


def _read_own(document: object, source: str | None) -> ScanReport:
    """Read a scan in our own format, for scanners that do not write SARIF: the arguments of `report_findings`."""
    # As for every tool, null means absent.
    given = {name: value for name, value in as_object(document, "").items() if value is not None}
    if source:
        given["scan_source"] = source
    try:
        _check().check(given)
        return reported_scan(ReportArgs.model_validate(given))
    except (MissingArgument, ArgumentOutOfRange) as error:
        raise refused(error.message) from error
    except InvalidArgument as error:
        # Its message may quote content of the report.
        raise refused("is not what report_findings takes", error.details.get("field") or "") from error
    except pydantic.ValidationError as error:
        raise refused("a value cannot be used as it is") from error


def reported_scan(args: ReportArgs) -> ScanReport:
    findings = [
        ReportEntry(**{name: value for name, value in each if value not in (None, "")}) for each in args.findings
    ]
    return ScanReport(args.scan_source, findings, args.paths, category=args.category)


@cache
def _check() -> SchemaCheck:
    async def as_a_tool(call: Call, args: ReportArgs) -> Json:
        """Has the schema of the tool."""
        return {}

    return SchemaCheck(local_tool("report_findings", as_a_tool).input_schema)


def _parsed(data: bytes, max_bytes: int) -> Any:
    if data.startswith(_GZIP):
        data = _decompressed(data, max_bytes)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        # PowerShell writes redirected output as UTF-16.
        data = data.decode("utf-16", "replace").encode("utf-8", "replace")
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data.strip():
        raise refused("it is empty")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise refused("it is not JSON", f"line {error.lineno}, column {error.colno}") from None


def _decompressed(data: bytes, max_bytes: int) -> bytes:
    """The content of a file compressed with gzip, up to a limit: a small file may contain any number of bytes."""
    with gzip.open(io.BytesIO(data)) as file:
        try:
            content = file.read(max_bytes + 1)
        except (OSError, EOFError, zlib.error):
            raise refused("its gzip compression is damaged") from None
    if len(content) > max_bytes:
        raise refused(f"it has more than {max_bytes >> 20} MiB when decompressed")
    return content


def _detected_format(document: object) -> ReportFormat:
    if isinstance(document, dict):
        if "runs" in document:
            return "sarif"
        if "findings" in document:
            return "armarium"
    if isinstance(document, list):
        entries = cast(list[Any], document)
        if not entries or (isinstance(entries[0], dict) and {"RuleID", "File"} <= entries[0].keys()):
            return "gitleaks"
    raise refused("its format is not supported")
