"""Records every call: one log line, one audit record and the metrics."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any
from uuid import uuid4

import orjson

from armarium.foundation.audit import AuditLog, CallRecord
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import Metrics, log_fields, timestamp
from armarium.foundation.tools import Call, Part
from armarium.surfaces.caller import Caller
from armarium.surfaces.prepared_tool import (
    PreparedTool,
    RecordedArguments,
    count_arguments,
    escape_surrogates,
    utf8_length,
)

_log = logging.getLogger("armarium.calls")

_LOGGED = ("tool", "capability", "principal", "surface", "root", "path", "outcome", "duration_ms", "request_bytes",
           "response_bytes", "call_id")  # fmt: skip
_logged = attrgetter(*_LOGGED)


@dataclass(slots=True)
class Outcome:
    """How a call ended."""

    result: Json
    """The MCP result. Large parts may be `EncodedJson`."""
    error: ArmariumError | None = None
    """The error in the result, for surfaces that also have a status for it."""
    response_bytes: int | None = None
    """The size of the result, if it is known."""


@dataclass(slots=True)
class PendingCall:
    """A call from its arrival until it is recorded."""

    caller: Caller
    name: str
    arguments: Mapping[str, Any]
    prepared: PreparedTool | None
    call: Call | None = None
    recorded: RecordedArguments | None = None
    """The redacted arguments, if they were redacted before the call ended."""


class CallRecorder:
    """Writes the log line, the audit record and the metrics of every call."""

    def __init__(self, metrics: Metrics, audit: AuditLog | None) -> None:
        self._metrics = metrics
        self._audit = audit
        self.listeners: list[Callable[[CallRecord], None]] = []
        """Called with each record. They must not block."""
        self._run_id = uuid4().hex[:12]
        self._call_numbers = itertools.count(1)

    def record(self, work: PendingCall, outcome: Outcome, seconds: float) -> None:
        """Record a call that has ended."""
        prepared, call = work.prepared, work.call
        try:
            if (recorded := work.recorded) is None and prepared is not None:
                recorded = prepared.describe(work.arguments, failed=outcome.error is not None)
        except Exception:  # noqa: BLE001 every call must be recorded, even if its arguments cannot be
            _log.exception(
                "the arguments of a call could not be recorded", extra={"tool": escape_surrogates(work.name[:80])}
            )
            recorded = None
        record = self._record_of(work, outcome, recorded or count_arguments(work.arguments), seconds)
        if prepared is not None:
            prepared.calls["error" if outcome.error else "success"].inc()
            prepared.duration.observe(seconds)
        parts = call.parts if call else []
        if len(parts) == 1:
            record = replace(record, root=_bounded(parts[0].root), path=_bounded(parts[0].path))
        if call is not None and (transfer := call.transfer) is not None:
            request_bytes = record.request_bytes + transfer.received
            record = replace(record, request_bytes=request_bytes, response_bytes=record.response_bytes + transfer.sent)
        self._write(record, outcome.error)
        for denial in call.denials if call else ():
            self._write(record, denial)
        for part in parts if len(parts) > 1 else ():
            self._write(_part_of(record, part), part.error)

    def _record_of(
        self, work: PendingCall, outcome: Outcome, recorded: RecordedArguments, seconds: float
    ) -> CallRecord:
        prepared, caller = work.prepared, work.caller
        subject = prepared.tool.subject if prepared else ("root", "path")
        root, path = (None if name in recorded.hidden else _text_argument(work.arguments, name) for name in subject)
        arguments = recorded.arguments
        if outcome.error is not None and recorded.arguments_if_failed is not None:
            arguments, root, path = recorded.arguments_if_failed, None, None
        return CallRecord(
            at=timestamp(),
            call_id=f"{self._run_id}-{next(self._call_numbers)}",
            surface=caller.surface,
            capability=prepared.capability if prepared else "",
            tool=escape_surrogates(work.name if prepared else work.name[:80]),
            principal=caller.principal.username,
            apikey_hash=caller.principal.person,
            session=caller.session,
            root=root,
            path=path,
            resolved_path=None,
            outcome="success",
            code=None,
            duration_ms=round(seconds * 1000, 3),
            request_bytes=recorded.request_bytes,
            response_bytes=_response_bytes(outcome),
            arguments=arguments,
            read_only=prepared is not None and prepared.tool.read_only,
        )

    def _write(self, record: CallRecord, error: ArmariumError | None) -> None:
        if error is not None:
            record = _failed(record, error)
            if record.capability:  # an unknown tool belongs to no capability
                self._metrics.errors.labels(record.capability, error.code).inc()
        _log_call(record, error)
        if self._audit is not None:
            self._audit.append(record)
        for listener in self.listeners:
            listener(record)


def _failed(record: CallRecord, error: ArmariumError) -> CallRecord:
    """The record of a failed call. Of two paths in the arguments, the error names the one that failed."""
    resolved = error.private.get("resolved")
    return replace(
        record,
        root=_text_argument(error.details, "root") or record.root,
        path=_text_argument(error.details, "path") or record.path,
        resolved_path=None if resolved is None else escape_surrogates(str(resolved)),
        outcome="error",
        code=error.code,
    )


def _part_of(record: CallRecord, part: Part) -> CallRecord:
    """The record of one part of a call. Arguments and sizes are recorded once, with the call itself."""
    return replace(
        record,
        root=_bounded(part.root),
        path=_bounded(part.path),
        duration_ms=part.duration_ms,
        request_bytes=0,
        response_bytes=0,
        arguments="{}",
    )


def _text_argument(arguments: Mapping[str, Any], name: str) -> str | None:
    value = arguments.get(name)
    return _bounded(value) if isinstance(value, str) else None


def _bounded(text: str | None) -> str | None:
    return escape_surrogates(text[:4096]) if text is not None else None


def _response_bytes(outcome: Outcome) -> int:
    if outcome.response_bytes is not None:
        return outcome.response_bytes
    return sum(_block_bytes(block) for block in outcome.result.get("content", ()))


def _block_bytes(block: Json) -> int:
    """The size of a content block: its text, or the encoded bytes of an image, audio or a resource."""
    holder = block["resource"] if block.get("type") == "resource" else block
    return sum(utf8_length(holder[part]) for part in ("text", "data", "blob") if isinstance(holder.get(part), str))


def _log_call(record: CallRecord, error: ArmariumError | None) -> None:
    denied = error is not None and error.security
    fields: Json = dict(zip(_LOGGED, _logged(record), strict=True))
    fields["arguments"] = orjson.Fragment(record.arguments)
    if error is not None:
        fields["code"] = error.code
    if denied:
        fields |= {"attempted_path": record.path, "resolved_path": record.resolved_path}
    log_fields(_log, logging.WARNING if denied else logging.INFO, "denied" if denied else "call", fields)
