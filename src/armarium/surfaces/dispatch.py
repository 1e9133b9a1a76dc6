"""One call, one record: bound, validate, run within a deadline, map the error, redact, audit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Any
from uuid import uuid4

import anyio

from armarium.foundation.audit import AuditLog
from armarium.foundation.cancellation import Cancellation, ProgressListener, Stopped
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
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Call, Relayed, ToolProvider, ToolSpec
from armarium.surfaces.argument_bounds import extent_of
from armarium.surfaces.call_record import CallRecorder, CallUnderWay, Outcome
from armarium.surfaces.caller import Caller
from armarium.surfaces.caller_limits import CallLimits, CallsInFlight
from armarium.surfaces.json_threads import in_json_thread
from armarium.surfaces.prepared_tool import PreparedTool, half_a_character, is_suspect, only_counted
from armarium.surfaces.tool_providers import MadeOnce, ToolProviders
from armarium.surfaces.tool_results import Form, Responses

_log = logging.getLogger("armarium.calls")


class Dispatcher:
    """Runs tools for callers. Every way in ends here, so every call is checked and recorded alike."""

    def __init__(
        self,
        tools: Iterable[tuple[str, ToolSpec]],
        *,
        tool_providers: Iterable[tuple[str, ToolProvider]] = (),
        metrics: Metrics,
        audit: AuditLog | None,
        default_deadline_s: float | None,
        limits: CallLimits | None = None,
        check_answers: bool = False,
    ) -> None:
        self._tools = {tool.name: PreparedTool(capability, tool, metrics, check_answers) for capability, tool in tools}
        self.tool_providers = ToolProviders([*tool_providers], self._tools)
        """Where tools come and go."""
        self._provided: dict[str, MadeOnce[PreparedTool]] = {}
        self._metrics = metrics
        self._recorder = CallRecorder(metrics, audit)
        self._default_deadline_s = default_deadline_s
        self._limits = limits or CallLimits()
        self._in_flight = CallsInFlight(self._limits)
        self._responses = Responses(self._limits)

    @property
    def tools(self) -> list[tuple[str, ToolSpec]]:
        """Every tool with the capability it belongs to."""
        return [(prepared.capability, prepared.tool) for prepared in self._tools.values()]

    async def call(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, Any],
        report: ProgressListener | None = None,
        *,
        served: Collection[str] | None = None,
        tool_providers: ToolProviders | None = None,
        form: Form = "plain",
    ) -> Json:
        """Run a tool and return its MCP result. One that is neither among those `served` (all fixed ones when None) nor
        for this caller on the `tool_providers` is unknown and raises; everything else is told in the result.
        """
        return (
            await self.outcome(caller, name, arguments, report, served=served, tool_providers=tool_providers, form=form)
        ).result

    async def outcome(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, Any],
        report: ProgressListener | None = None,
        *,
        served: Collection[str] | None = None,
        tool_providers: ToolProviders | None = None,
        form: Form = "plain",
    ) -> Outcome:
        """The same for surfaces that do not speak MCP."""
        started = time.perf_counter()
        prepared = self._tools.get(name) if served is None or name in served else None
        if prepared is None and tool_providers:
            prepared = self._from_tool_provider(tool_providers, caller.principal, name)
        work = CallUnderWay(caller, name, arguments, prepared)
        if prepared is None:
            error = UnknownTool(f"unknown tool: {name[:80]}", hint="list the tools to see what is served here")
            self._recorder.record(work, Outcome({}, error), time.perf_counter() - started)
            raise error
        cancellation = Cancellation(report)
        work.call = Call(caller.principal, cancellation, caller.credential, caller=caller.id)
        self._metrics.in_flight.inc()
        outcome = Outcome({}, Cancelled("the call was cancelled"))
        try:
            outcome = await self._admitted(work, prepared, work.call, form)
        except BaseException as cut_short:
            # Whoever keeps the exception would keep the frames it went through, and the answer that one of them had.
            traceback.clear_frames(cut_short.__traceback__)
            raise
        finally:
            # Also when the caller hung up: what a worker still does stops at its next beat, and is on record.
            cancellation.cancel()
            self._metrics.in_flight.dec()
            # Behind the answer, not before it: nobody needs to wait while it is written down.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(self._recorder.record, work, outcome, seconds)
        return outcome

    def refuse(self, caller: Caller, name: str, arguments: Mapping[str, Any], error: ArmariumError) -> Outcome:
        """The outcome of a call that its surface cannot make arguments of: told and recorded like every other."""
        prepared = self._tools[name]
        outcome = _failure(prepared.tool, error)
        self._recorder.record(CallUnderWay(caller, name, arguments, prepared), outcome, 0.0)
        return outcome

    def _from_tool_provider(
        self, tool_providers: ToolProviders, principal: Principal, name: str
    ) -> PreparedTool | None:
        found = tool_providers.find(principal, name)
        if found is None:
            return None
        capability, tool = found
        known = self._provided.get(capability)
        if known is None:
            known = MadeOnce[PreparedTool](lambda each: PreparedTool(capability, each, self._metrics, is_provided=True))
            self._provided[capability] = known
        return known.of(tool)

    async def _admitted(self, work: CallUnderWay, prepared: PreparedTool, call: Call, form: Form) -> Outcome:
        """The outcome of a call, which counts as one of its caller's while it is worked on."""
        try:
            self._in_flight.enter(call.caller)
        except ArmariumError as error:
            work.described = only_counted(work.arguments)
            return _failure(prepared.tool, error)
        try:
            return await self._run(work, prepared, call, form)
        finally:
            self._in_flight.leave(call.caller)

    async def _run(self, work: CallUnderWay, prepared: PreparedTool, call: Call, form: Form) -> Outcome:
        tool, arguments = prepared.tool, work.arguments
        try:
            given = await self._checked(work, prepared, call)
            with _deadline(tool.deadline_s(given) or self._default_deadline_s):
                if tool.is_search:
                    async with self._in_flight.search_turn(call.caller):
                        answer = await tool.run(call, given)
                else:
                    answer = await tool.run(call, given)
                if isinstance(answer, Relayed):
                    result, size = await self._responses.relayed(call.caller, answer, form)
                    return Outcome(result, _failure_of(answer), size)
                prepared.check_answer(answer)
                result, size = await self._responses.answered(call.caller, tool, answer, form)
                return Outcome(result, None, size)
        except ArmariumError as error:
            return _failure(tool, error)
        except Stopped:
            return _failure(tool, Cancelled("the call was cancelled"))
        except Exception:  # noqa: BLE001 the edge of the surface: whatever it was, the caller must not see it
            # The schema, too, fails over half a character; and not everybody who brings arguments suspects them.
            if (refusal := half_a_character(arguments)) is not None:
                return _failure(tool, refusal)
            incident = uuid4().hex
            _log.exception("a tool failed unexpectedly", extra={"tool": tool.name, "incident": incident})
            hint = "this is a fault of the server; tell its operator the incident id"
            return _failure(tool, Internal(f"internal error (incident {incident})", hint=hint, incident=incident))

    async def _checked(self, work: CallUnderWay, prepared: PreparedTool, call: Call) -> Mapping[str, Any]:
        """The arguments as the tool takes them; raises `InvalidArgument`. Large ones are looked at in a thread."""
        try:
            extent = await extent_of(work.arguments, self._limits)
        except InvalidArgument:
            work.described = only_counted(work.arguments)
            raise
        tool, given = prepared.tool, work.arguments
        if tool.null_is_absent:
            given = {name: value for name, value in given.items() if value is not None}
        given = tool.completed(call, given)
        suspect = is_suspect(work.arguments)
        if extent.is_small:
            prepared.check_arguments(given, suspect=suspect)
        else:
            work.described = await in_json_thread(prepared.described_at_length, work.arguments)
            await in_json_thread(lambda: prepared.check_arguments(given, suspect=suspect))
        return given


@contextlib.contextmanager
def _deadline(seconds: float | None) -> Generator[None]:
    # Not `fail_after`: a TimeoutError of the tool's own, from a network disk say, is not this deadline.
    with anyio.move_on_after(seconds) as patience:
        yield
    if patience.cancelled_caught:
        raise DeadlineExceeded(
            f"the call took longer than {seconds:g} seconds and was stopped", hint="ask for less at once"
        )


def _failure_of(relayed: Relayed) -> ToolFailed | None:
    return ToolFailed("the tool says that it failed") if relayed.is_error else None


def _failure(tool: ToolSpec, error: ArmariumError) -> Outcome:
    told = tool.errors.translate(error)
    # The frames it went through hold what the call had in memory, and each other.
    for each in (error, told):
        each.__traceback__ = each.__context__ = each.__cause__ = None
    content = [{"type": "text", "text": tool.errors.text(told)}]
    return Outcome({"content": content, "structuredContent": tool.errors.render(told), "isError": True}, told)
