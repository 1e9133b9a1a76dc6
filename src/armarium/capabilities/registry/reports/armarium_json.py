"""Reads reports in the form that the `report_findings` tool takes: the one to write when a scanner speaks no SARIF."""

from __future__ import annotations

from functools import cache

import pydantic

from armarium.capabilities.registry.arguments import ReportArgs
from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.reports.fields import as_object, refused
from armarium.foundation.errors import ArgumentOutOfRange, InvalidArgument, MissingArgument
from armarium.foundation.schema import Json, SchemaCheck
from armarium.foundation.tools import Call, local_tool


def is_armarium_json(document: object) -> bool:
    """Whether this is a report of our own form."""
    return isinstance(document, dict) and "findings" in document and "runs" not in document


def read_armarium_json(document: object, source: str | None = None) -> ScanReport:
    """The findings of one scan, checked as the tool's arguments are; raises `ValidationError` where they are none.
    `source` goes before its own."""
    # As for every tool, what is null was not given.
    given = {name: value for name, value in as_object(document, "").items() if value is not None}
    if source:
        given["scan_source"] = source
    try:
        _check().check(given)
        return reported_scan(ReportArgs.model_validate(given))
    except (MissingArgument, ArgumentOutOfRange) as error:
        raise refused(error.message) from error
    except InvalidArgument as error:
        # Its words may repeat what stands there.
        raise refused("is not what report_findings takes", error.details.get("field") or "") from error
    except pydantic.ValidationError as error:
        raise refused("a value cannot be used as it is") from error


def reported_scan(args: ReportArgs) -> ScanReport:
    """The scan that arguments of the tool describe."""
    findings = [
        ReportEntry(
            path=finding.path,
            rule_id=finding.rule_id,
            message=finding.message,
            severity=finding.severity,
            line_start=finding.line_start,
            line_end=finding.line_end,
            suggestion=finding.suggestion or "",
            fingerprint=finding.fingerprint or None,
            metadata=finding.metadata or {},
        )
        for finding in args.findings
    ]
    return ScanReport(args.scan_source, findings, args.paths)


@cache
def _check() -> SchemaCheck:
    async def as_a_tool(call: Call, args: ReportArgs) -> Json:
        """What has the schema that callers of the tool are told."""
        return {}

    return SchemaCheck(local_tool("report_findings", as_a_tool).input_schema)
