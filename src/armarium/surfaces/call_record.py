"""What is written down of a call: a log line, an audit record and the metrics, whatever became of it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import orjson

from armarium.foundation.audit import AuditLog, CallRecord
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import Metrics, log_fields, timestamp
from armarium.foundation.tools import Call, Part
from armarium.surfaces.caller import Caller
from armarium.surfaces.prepared_tool import Described, PreparedTool, bytes_of, only_counted, writable

_log = logging.getLogger("armarium.calls")


@dataclass(slots=True)
class Outcome:
    """How a call ended."""

    result: Json
    """As MCP has it; large parts may be `Packed`."""
    error: ArmariumError | None = None
    """What the result tells of, for surfaces that say it in another way as well."""
    response_bytes: int | None = None
    """How large the answer is, where that is known already."""


@dataclass(slots=True)
class CallUnderWay:
    """One call from its arrival to its record."""

    caller: Caller
    name: str
    arguments: Mapping[str, Any]
    prepared: PreparedTool | None
    call: Call | None = None
    described: Described | None = None
    """How its arguments are written down, where that was found out on the way."""


class CallRecorder:
    """Writes down every call."""

    def __init__(self, metrics: Metrics, audit: AuditLog | None) -> None:
        self._metrics = metrics
        self._audit = audit
        self._run_id = uuid4().hex[:12]
        self._call_numbers = itertools.count(1)

    def record(self, work: CallUnderWay, outcome: Outcome, seconds: float) -> None:
        """Write down a call that has ended."""
        try:
            described = work.described or _described(work, outcome)
        except Exception:  # noqa: BLE001 what cannot be described must not keep the call off the record
            _log.exception("the arguments of a call cannot be written down", extra={"tool": writable(work.name[:80])})
            described = only_counted(work.arguments)
        record = self._record_of(work, outcome, described, seconds)
        prepared, call = work.prepared, work.call
        if prepared is not None:
            prepared.calls["error" if outcome.error else "success"].inc()
            prepared.duration.observe(seconds)
        parts = call.parts if call else []
        if len(parts) == 1:
            record = replace(record, root=_place(parts[0].root), path=_place(parts[0].path))
        self._put_down(record, outcome.error)
        for denial in call.denials if call else ():
            self._put_down(record, denial)
        for part in parts if len(parts) > 1 else ():
            self._put_down(_part_of(record, part), part.error)

    def _record_of(self, work: CallUnderWay, outcome: Outcome, described: Described, seconds: float) -> CallRecord:
        prepared, caller = work.prepared, work.caller
        subject = prepared.tool.subject if prepared else ("root", "path")
        root, path = (None if name in described.hidden else _text_argument(work.arguments, name) for name in subject)
        arguments = described.arguments
        if outcome.error is not None and described.arguments_if_failed is not None:
            arguments, root, path = described.arguments_if_failed, None, None
        return CallRecord(
            at=timestamp(),
            call_id=f"{self._run_id}-{next(self._call_numbers)}",
            surface=caller.surface,
            capability=prepared.capability if prepared else "",
            tool=writable(work.name if prepared else work.name[:80]),
            principal=caller.principal.username,
            apikey_hash=caller.principal.apikey_hash,
            session=caller.session,
            root=root,
            path=path,
            resolved_path=None,
            outcome="success",
            code=None,
            duration_ms=round(seconds * 1000, 3),
            request_bytes=described.request_bytes,
            response_bytes=_response_bytes(outcome),
            arguments=arguments,
        )

    def _put_down(self, record: CallRecord, error: ArmariumError | None) -> None:
        if error is not None:
            record = _failed(record, error)
            if record.capability:  # a tool that nobody has belongs to none
                self._metrics.errors.labels(record.capability, error.code).inc()
        _log_call(record, error)
        if self._audit is not None:
            self._audit.append(record)


def _described(work: CallUnderWay, outcome: Outcome) -> Described:
    if work.prepared is None:
        return only_counted(work.arguments)
    return work.prepared.described(work.arguments, failed=outcome.error is not None)


def _failed(record: CallRecord, error: ArmariumError) -> CallRecord:
    """The record of a call that failed. The error knows better than the arguments which of two places it is about."""
    resolved = error.private.get("resolved")
    return replace(
        record,
        root=_text_argument(error.details, "root") or record.root,
        path=_text_argument(error.details, "path") or record.path,
        resolved_path=None if resolved is None else writable(str(resolved)),
        outcome="error",
        code=error.code,
    )


def _part_of(record: CallRecord, part: Part) -> CallRecord:
    """The record of one place that a call went to. What was asked and answered is told once, with the call itself."""
    return replace(
        record,
        root=_place(part.root),
        path=_place(part.path),
        duration_ms=part.duration_ms,
        request_bytes=0,
        response_bytes=0,
        arguments="{}",
    )


def _text_argument(arguments: Mapping[str, Any], name: str) -> str | None:
    value = arguments.get(name)
    return _place(value) if isinstance(value, str) else None


def _place(text: str | None) -> str | None:
    return writable(text[:4096]) if text is not None else None


def _response_bytes(outcome: Outcome) -> int:
    if outcome.response_bytes is not None:
        return outcome.response_bytes
    return sum(_block_bytes(block) for block in outcome.result.get("content", ()))


def _block_bytes(block: Json) -> int:
    """What a block carries: text, or the encoded bytes of an image, a sound or a resource."""
    holder = block["resource"] if block.get("type") == "resource" else block
    return sum(bytes_of(holder[part]) for part in ("text", "data", "blob") if isinstance(holder.get(part), str))


def _log_call(record: CallRecord, error: ArmariumError | None) -> None:
    denied = error is not None and error.security
    fields: Json = {
        "tool": record.tool,
        "capability": record.capability,
        "principal": record.principal,
        "surface": record.surface,
        "root": record.root,
        "path": record.path,
        "outcome": record.outcome,
        "duration_ms": record.duration_ms,
        "request_bytes": record.request_bytes,
        "response_bytes": record.response_bytes,
        "call_id": record.call_id,
        "arguments": orjson.Fragment(record.arguments),
    }
    if error is not None:
        fields["code"] = error.code
    if denied:
        fields |= {"attempted_path": record.path, "resolved_path": record.resolved_path}
    log_fields(_log, logging.WARNING if denied else logging.INFO, "denied" if denied else "call", fields)
