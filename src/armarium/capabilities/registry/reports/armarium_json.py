"""Reads reports in our own format, the arguments of `report_findings`, for scanners that do not write SARIF."""

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
    """Whether this is a report in our own format."""
    return isinstance(document, dict) and "findings" in document and "runs" not in document


def read_armarium_json(document: object, source: str | None = None) -> ScanReport:
    """Read one scan, validated like the arguments of the tool; raises `ValidationError` if it is invalid. `source`
    overrides its own."""
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
    """The scan report in the arguments of the tool."""
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
        """Has the schema of the tool."""
        return {}

    return SchemaCheck(local_tool("report_findings", as_a_tool).input_schema)
