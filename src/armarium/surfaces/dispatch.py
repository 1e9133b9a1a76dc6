"""One call, one record: validate, run within a deadline, map the error, redact, audit."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import anyio
import orjson

from armarium.foundation.audit import AuditLog, CallRecord
from armarium.foundation.errors import (
    ArmariumError,
    Cancelled,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    ToolFailed,
    UnknownTool,
)
from armarium.foundation.identity import Principal
from armarium.foundation.limits import Pulse, Report, Stopped
from armarium.foundation.redaction import redacted
from armarium.foundation.schema import SchemaCheck
from armarium.foundation.shelf import ToolShelf
from armarium.foundation.telemetry import Metrics, log_fields, timestamp
from armarium.foundation.tools import Call, Json, Part, Relayed, ToolSpec
from armarium.surfaces.json_text import Suspect, is_whole
from armarium.surfaces.shelves import MadeOnce, Shelves

_log = logging.getLogger("armarium.calls")

_DYNAMIC = "dynamic"
"""What metrics call every tool from a shelf: their names are without number, and may be anybody's."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and through what."""

    principal: Principal
    surface: str
    session: str | None = None
    credential: str | None = field(default=None, repr=False)


@dataclass(slots=True)
class Outcome:
    """How a call ended."""

    result: Json
    """As MCP has it."""
    error: ArmariumError | None = None
    """What the result tells of, for surfaces that say it in another way as well."""


class Dispatcher:
    """Runs tools for callers. Every way in ends here, so every call is checked and recorded alike."""

    def __init__(
        self,
        tools: Iterable[tuple[str, ToolSpec]],
        *,
        shelves: Iterable[tuple[str, ToolShelf]] = (),
        metrics: Metrics,
        audit: AuditLog | None,
        default_deadline_s: float | None,
        check_answers: bool = False,
    ) -> None:
        self._tools = {tool.name: _Prepared(capability, tool, metrics, check_answers) for capability, tool in tools}
        self.shelves = Shelves([*shelves], self._tools)
        """Where tools come and go."""
        self._from_shelves: dict[str, MadeOnce[_Prepared]] = {}
        self._metrics = metrics
        self._audit = audit
        self._default_deadline_s = default_deadline_s
        self._run_id = uuid4().hex[:12]
        self._call_numbers = itertools.count(1)

    @property
    def tools(self) -> list[tuple[str, ToolSpec]]:
        """Every tool with the capability it belongs to."""
        return [(prepared.capability, prepared.tool) for prepared in self._tools.values()]

    async def call(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, Any],
        report: Report | None = None,
        *,
        served: Collection[str] | None = None,
        shelves: Shelves | None = None,
    ) -> Json:
        """Run a tool and return its MCP result. One that is neither among those `served` (all fixed ones when None) nor
        for this caller on the `shelves` is unknown and raises; everything else is told in the result.
        """
        return (await self.outcome(caller, name, arguments, report, served=served, shelves=shelves)).result

    async def outcome(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, Any],
        report: Report | None = None,
        *,
        served: Collection[str] | None = None,
        shelves: Shelves | None = None,
    ) -> Outcome:
        """The same for surfaces that do not speak MCP."""
        started = time.perf_counter()
        prepared = self._tools.get(name) if served is None or name in served else None
        if prepared is None and shelves:
            prepared = self._from_shelf(shelves, caller.principal, name)
        pulse = Pulse(report)
        call = Call(caller.principal, pulse, caller.credential)
        if prepared is None:
            error = UnknownTool(f"unknown tool: {name[:80]}", hint="list the tools to see what is served here")
            self._record(caller, None, name, arguments, Outcome({}, error), time.perf_counter() - started)
            raise error
        self._metrics.in_flight.inc()
        outcome = Outcome({}, Cancelled("the call was cancelled"))
        try:
            outcome = await self._run(prepared, call, arguments)
        finally:
            # Also when the caller hung up: what a worker still does stops at its next beat, and is on record.
            pulse.stop()
            self._metrics.in_flight.dec()
            # Behind the answer, not before it: nobody needs to wait while it is written down.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(
                self._record, caller, prepared, name, arguments, outcome, seconds, call
            )
        return outcome

    def refuse(self, caller: Caller, name: str, arguments: Mapping[str, Any], error: ArmariumError) -> Outcome:
        """The outcome of a call that its surface cannot make arguments of: told and recorded like every other."""
        prepared = self._tools[name]
        outcome = _failure(prepared.tool, error)
        self._record(caller, prepared, name, arguments, outcome, 0.0)
        return outcome

    def _from_shelf(self, shelves: Shelves, principal: Principal, name: str) -> _Prepared | None:
        found = shelves.find(principal, name)
        if found is None:
            return None
        capability, tool = found
        known = self._from_shelves.get(capability)
        if known is None:
            known = MadeOnce[_Prepared](lambda each: _Prepared(capability, each, self._metrics, from_shelf=True))
            self._from_shelves[capability] = known
        return known.of(tool)

    async def _run(self, prepared: _Prepared, call: Call, arguments: Mapping[str, Any]) -> Outcome:
        tool = prepared.tool
        try:
            given: Mapping[str, Any] = arguments
            if tool.null_is_absent:
                given = {name: value for name, value in arguments.items() if value is not None}
            given = tool.completed(call, given)
            prepared.check_arguments(given)
            if isinstance(arguments, Suspect) and (refusal := _half_a_character(given)) is not None:
                raise refusal
            deadline_s = tool.deadline_s(given) or self._default_deadline_s
            with _deadline(deadline_s):
                answer = await tool.run(call, given)
            if isinstance(answer, Relayed):
                return _passed_on(answer)
            prepared.check_answer(answer)
            return Outcome({"content": [_text(text) for text in tool.text(answer)], "structuredContent": answer})
        except ArmariumError as error:
            return _failure(tool, error)
        except Stopped:
            return _failure(tool, Cancelled("the call was cancelled"))
        except Exception:  # noqa: BLE001 the edge of the surface: whatever it was, the caller must not see it
            # The schema, too, fails over half a character; and not everybody who brings arguments suspects them.
            if (refusal := _half_a_character(arguments)) is not None:
                return _failure(tool, refusal)
            incident = uuid4().hex
            _log.exception("a tool failed unexpectedly", extra={"tool": tool.name, "incident": incident})
            hint = "this is a fault of the server; tell its operator the incident id"
            return _failure(tool, Internal(f"internal error (incident {incident})", hint=hint, incident=incident))

    def _record(
        self,
        caller: Caller,
        prepared: _Prepared | None,
        name: str,
        arguments: Mapping[str, Any],
        outcome: Outcome,
        seconds: float,
        call: Call | None = None,
    ) -> None:
        capability = prepared.capability if prepared else ""
        written_name = _writable(name if prepared else name[:80])
        root_argument, path_argument = prepared.tool.subject if prepared else ("root", "path")
        hidden = prepared.hidden_in(arguments, outcome) if prepared else frozenset[str]()
        shown = {name: value for name, value in arguments.items() if name not in hidden} if hidden else arguments
        record = CallRecord(
            at=timestamp(),
            call_id=f"{self._run_id}-{next(self._call_numbers)}",
            surface=caller.surface,
            capability=capability,
            tool=written_name,
            principal=caller.principal.username,
            apikey_hash=caller.principal.apikey_hash,
            session=caller.session,
            root=_text_argument(shown, root_argument),
            path=_text_argument(shown, path_argument),
            resolved_path=None,
            outcome="success",
            code=None,
            duration_ms=round(seconds * 1000, 3),
            request_bytes=_size_of(arguments),
            response_bytes=sum(_block_bytes(block) for block in outcome.result.get("content", ())),
            arguments=_written(prepared.written_down(arguments, hidden) if prepared else redacted(arguments, ())),
        )
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

    def _put_down(self, record: CallRecord, error: ArmariumError | None) -> None:
        if error is not None:
            record = _failed(record, error)
            if record.capability:  # a tool that nobody has belongs to none
                self._metrics.errors.labels(record.capability, error.code).inc()
        _log_call(record, error)
        if self._audit is not None:
            self._audit.append(record)


class _Prepared:
    """A tool with its schemas compiled and its counters at hand."""

    def __init__(
        self,
        capability: str,
        tool: ToolSpec,
        metrics: Metrics,
        check_answers: bool = False,
        *,
        from_shelf: bool = False,
    ) -> None:
        self.capability = capability
        self.tool = tool
        label = _DYNAMIC if from_shelf else tool.name
        self.calls = {end: metrics.calls.labels(capability, label, end) for end in ("success", "error")}
        self.duration = metrics.duration.labels(capability, label)
        self._arguments, self._known = _checked(tool, any_schema=from_shelf)
        self.check_arguments = self._arguments.check
        self._answers = SchemaCheck(tool.output_schema) if check_answers and tool.output_schema else None

    def hidden_in(self, arguments: Mapping[str, Any], outcome: Outcome) -> frozenset[str]:
        """What nobody is to read later: secrets and, where some are expected, what may be one in the wrong place."""
        secret = self.tool.secret_fields
        return secret | self._arguments.misfits(arguments) if secret and outcome.error else secret

    def written_down(self, arguments: Mapping[str, Any], hidden: frozenset[str]) -> Json:
        """The arguments as the log and the audit trail have them."""
        return redacted(arguments, self._known, self.tool.content_fields, hidden)

    def check_answer(self, answer: Json) -> None:
        """In tests: an answer that breaks its own schema is a fault of ours."""
        if self._answers is not None:
            try:
                self._answers.check(answer)
            except ArmariumError as error:
                raise AssertionError(f"{self.tool.name} answered against its schema: {error.message}") from error


def _checked(tool: ToolSpec, *, any_schema: bool) -> tuple[SchemaCheck, frozenset[str]]:
    """What arguments must fit, and the names it knows. With `any_schema`, one that is none is as if there were none:
    whoever runs the tool has yet to look at its arguments, too."""
    try:
        return SchemaCheck(tool.input_schema), frozenset(tool.input_schema.get("properties", ()))
    except ValueError:
        if not any_schema:
            raise
        _log.warning("a tool has a schema that cannot be used", extra={"tool": _writable(tool.name)})
        return SchemaCheck({"type": "object"}), frozenset()


@contextlib.contextmanager
def _deadline(seconds: float | None) -> Generator[None]:
    # Not `fail_after`: a TimeoutError of the tool's own, from a network disk say, is not this deadline.
    with anyio.move_on_after(seconds) as patience:
        yield
    if patience.cancelled_caught:
        raise DeadlineExceeded(
            f"the call took longer than {seconds:g} seconds and was stopped", hint="ask for less at once"
        )


def _passed_on(relayed: Relayed) -> Outcome:
    result: Json = {"content": [*relayed.content]}
    if relayed.structured is not None:
        result["structuredContent"] = relayed.structured
    if relayed.is_error:
        result["isError"] = True
    return Outcome(result, ToolFailed("the tool says that it failed") if relayed.is_error else None)


def _failure(tool: ToolSpec, error: ArmariumError) -> Outcome:
    told = tool.errors.translate(error)
    content = [_text(tool.errors.text(told))]
    return Outcome({"content": content, "structuredContent": tool.errors.render(told), "isError": True}, told)


def _half_a_character(arguments: Mapping[str, Any]) -> InvalidArgument | None:
    """What is wrong with arguments that have half a character in them; None if they have not."""
    for name, value in arguments.items():
        if not is_whole(name):
            return InvalidArgument("the name of an argument has half a character in it")
        # Lists and the like are written out as they are: their own escapes cannot hide half a character.
        if not is_whole(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)):
            return InvalidArgument(f"`{name[:80]}` has half a character in it, which is no text", field=name)
    return None


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _failed(record: CallRecord, error: ArmariumError) -> CallRecord:
    """The record of a call that failed. The error knows better than the arguments which of two places it is about."""
    resolved = error.private.get("resolved")
    return replace(
        record,
        root=_text_argument(error.details, "root") or record.root,
        path=_text_argument(error.details, "path") or record.path,
        resolved_path=None if resolved is None else _writable(str(resolved)),
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
    return _writable(text[:4096]) if text is not None else None


def _writable(text: str) -> str:
    """Half characters, as host paths that are no UTF-8 have, would keep the record out of the log and the trail."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _size_of(arguments: Mapping[str, Any]) -> int:
    return sum(_bytes_of(value) for value in arguments.values() if isinstance(value, str))


def _block_bytes(block: Json) -> int:
    """What a block carries: text, or the encoded bytes of an image, a sound or a resource."""
    holder = block["resource"] if block.get("type") == "resource" else block
    return sum(_bytes_of(holder[part]) for part in ("text", "data", "blob") if isinstance(holder.get(part), str))


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _written(arguments: Json) -> str:
    try:
        return orjson.dumps(arguments).decode()
    except TypeError:
        # Numbers and half characters that only the standard library writes must not keep a call off the record.
        return json.dumps(arguments, default=repr)


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
