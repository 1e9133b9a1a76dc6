"""Runs tool calls: limits, validation, deadline, error mapping."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any
from uuid import uuid4

import anyio

from armarium.foundation.audit import AuditLog, CallRecord
from armarium.foundation.byte_transfers import ByteTransfer
from armarium.foundation.concurrency.cancellation import Cancellation, ProgressListener, Stopped
from armarium.foundation.errors import (
    ArmariumError,
    Cancelled,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    ToolFailed,
    UnknownTool,
)
from armarium.foundation.schema import Json
from armarium.foundation.security.access import READ, Access
from armarium.foundation.security.identity import Principal
from armarium.foundation.settings.model import LimitSettings
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Call, Emit, Relayed, ToolProvider, ToolSpec, emit_nothing
from armarium.surfaces.call_record import CallRecorder, Outcome, PendingCall
from armarium.surfaces.caller import Caller
from armarium.surfaces.caller_limits import CallsInFlight
from armarium.surfaces.json.bounds import measure_arguments
from armarium.surfaces.json.text import SurrogateObject
from armarium.surfaces.json.threads import run_in_json_thread
from armarium.surfaces.prepared_tool import PreparedTool, count_arguments, surrogate_error
from armarium.surfaces.tool_providers import MAX_CACHED_TOOLS, ToolProviders
from armarium.surfaces.tool_results import ResultForm, ToolResults

_log = logging.getLogger("armarium.calls")


class Dispatcher:
    """Runs tools for callers. All surfaces use it, so every call passes the same checks and is recorded."""

    def __init__(
        self,
        tools: Iterable[tuple[str, ToolSpec]],
        *,
        tool_providers: Iterable[tuple[str, ToolProvider]] = (),
        metrics: Metrics,
        audit: AuditLog | None,
        default_deadline_s: float | None,
        limits: LimitSettings | None = None,
        access: Iterable[Access] = (),
        check_answers: bool = False,
    ) -> None:
        """`access` says who may use the capabilities. What none is given for is open to every caller whose key permits
        it."""
        self._access = {each.capability: each for each in access}
        self._tools = {tool.name: PreparedTool(capability, tool, metrics, check_answers) for capability, tool in tools}
        self.tool_providers = ToolProviders([*tool_providers], self._tools, self._permits)
        """The providers of tools that change while the server runs."""
        prepare = partial(PreparedTool, metrics=metrics, is_provided=True)
        self._prepare_provided = lru_cache(MAX_CACHED_TOOLS)(prepare)
        self._metrics = metrics
        self._recorder = CallRecorder(metrics, audit)
        self._default_deadline_s = default_deadline_s
        self._limits = limits or LimitSettings()
        self._in_flight = CallsInFlight(self._limits)
        self._results = ToolResults(self._limits)
        self.response_bytes = self._results.in_flight
        """The bytes of large results that have not been sent."""

    def on_call(self, listener: Callable[[CallRecord], None]) -> None:
        """Call `listener` with the record of every call, in the event loop. It must not block."""
        self._recorder.listeners.append(listener)

    @property
    def tools(self) -> list[tuple[str, ToolSpec]]:
        """Every fixed tool, with its capability."""
        return [(prepared.capability, prepared.tool) for prepared in self._tools.values()]

    def permits(self, principal: Principal, tool: str) -> bool:
        """Whether the caller may use this fixed tool."""
        prepared = self._tools[tool]
        return self._permits(principal, prepared.capability, prepared.tool)

    def may_read(self, principal: Principal, capability: str) -> bool:
        """Whether the caller may read what the capability has, such as its events."""
        return self._access_of(capability).admits(principal, READ)

    def _permits(self, principal: Principal, capability: str, tool: ToolSpec) -> bool:
        return self._access_of(capability).permits(principal, tool)

    def _access_of(self, capability: str) -> Access:
        return self._access.get(capability) or Access(capability)

    async def outcome(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, Any],
        report: ProgressListener | None = None,
        *,
        served: Collection[str] | None = None,
        tool_providers: ToolProviders | None = None,
        form: ResultForm = "plain",
        meta: Mapping[str, Any] | None = None,
        transfer: ByteTransfer | None = None,
        emit: Emit = emit_nothing,
    ) -> Outcome:
        """Run a tool. Its errors are outcomes too. `emit` receives parts of the result early. Raises `UnknownTool`
        unless the tool is one of the fixed tools in `served` (None: all of them) or one that `tool_providers` offer to
        this caller."""
        started = time.perf_counter()
        prepared = self._tools.get(name) if served is None or name in served else None
        if prepared is None and tool_providers and (found := tool_providers.find(caller.principal, name)) is not None:
            prepared = self._prepare_provided(*found)
        work = PendingCall(caller, name, arguments, prepared)
        if prepared is None:
            error = UnknownTool(f"unknown tool: {name[:80]}", hint="list the tools to see what is served here")
            self._recorder.record(work, Outcome({}, error), time.perf_counter() - started)
            raise error
        cancellation = Cancellation(report)

        async def run_tool(name: str, arguments: Mapping[str, Any]) -> tuple[Json, ArmariumError | None]:
            if caller.count_request is not None:
                await caller.count_request()
            inner = await self.outcome(
                caller, name, arguments, served=served, tool_providers=tool_providers, meta=meta, emit=emit
            )
            return inner.result, inner.error

        work.call = Call(
            caller.principal,
            cancellation,
            caller.credential,
            caller=caller.id,
            session=caller.session,
            meta=meta or {},
            run_tool=run_tool,
            transfer=transfer,
            emit=emit,
        )
        self._metrics.in_flight.inc()
        outcome = Outcome({}, Cancelled("the call was cancelled"))
        try:
            outcome = await self._admitted(work, prepared, work.call, form)
        except BaseException as cut_short:
            # The exception references its frames, and one of them may hold a large answer.
            traceback.clear_frames(cut_short.__traceback__)
            raise
        finally:
            # Also if the caller disconnected: worker threads stop at their next checkpoint, and the call is recorded.
            cancellation.cancel()
            self._metrics.in_flight.dec()
            # After the response, so that the caller does not wait for the record.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(self._recorder.record, work, outcome, seconds)
        return outcome

    def reject(self, caller: Caller, name: str, arguments: Mapping[str, Any], error: ArmariumError) -> Outcome:
        """Record and return the failure of a call that its surface rejects before it runs."""
        prepared = self._tools[name]
        outcome = _failure(prepared.tool, error)
        self._recorder.record(PendingCall(caller, name, arguments, prepared), outcome, 0.0)
        return outcome

    async def _admitted(self, work: PendingCall, prepared: PreparedTool, call: Call, form: ResultForm) -> Outcome:
        """Run the call and count it as in flight for its caller."""
        try:
            self._in_flight.enter(call.caller, call.principal.calls_in_flight)
        except ArmariumError as error:
            work.recorded = count_arguments(work.arguments)
            return _failure(prepared.tool, error)
        try:
            return await self._run(work, prepared, call, form)
        finally:
            self._in_flight.leave(call.caller)

    async def _run(self, work: PendingCall, prepared: PreparedTool, call: Call, form: ResultForm) -> Outcome:
        tool, arguments = prepared.tool, work.arguments
        try:
            access = self._access_of(prepared.capability)
            access.require(call.principal, tool)
            given = await self._checked(work, prepared, call)
            access.require_resources(call.principal, tool, given)
            deadline_s = tool.deadline_s(given) or self._default_deadline_s
            # Not `fail_after`: a TimeoutError raised by the tool itself is not this deadline.
            with anyio.move_on_after(deadline_s):
                if tool.is_search:
                    async with self._in_flight.search_slots.turn(call.caller):
                        answer = await tool.run(call, given)
                else:
                    answer = await tool.run(call, given)
                if isinstance(answer, Relayed):
                    result, size = await self._results.from_relayed(call.caller, answer, form)
                    failure = ToolFailed("the tool reported a failure") if answer.is_error else None
                    return Outcome(result, failure, size)
                prepared.check_answer(answer)
                result, size = await self._results.from_answer(call.caller, tool, answer, form)
                return Outcome(result, None, size)
            raise DeadlineExceeded(
                f"the call took longer than {deadline_s:g} seconds and was stopped", hint="ask for less at once"
            )
        except ArmariumError as error:
            return _failure(tool, error)
        except Stopped:
            return _failure(tool, Cancelled("the call was cancelled"))
        except Exception:  # noqa: BLE001 the edge of the surface: the caller must not see internal details
            # The schema check fails on unpaired surrogates too, and not every surface detects them.
            if (surrogate := surrogate_error(arguments)) is not None:
                return _failure(tool, surrogate)
            incident = uuid4().hex
            _log.exception("a tool failed unexpectedly", extra={"tool": tool.name, "incident": incident})
            hint = "this is a bug in the server; report the incident id to its operator"
            return _failure(tool, Internal(f"internal error (incident {incident})", hint=hint, incident=incident))

    async def _checked(self, work: PendingCall, prepared: PreparedTool, call: Call) -> Mapping[str, Any]:
        """The arguments as the tool takes them; raises `InvalidArgument`. Large ones are validated in a thread."""
        try:
            size = await measure_arguments(work.arguments, self._limits)
        except InvalidArgument:
            work.recorded = count_arguments(work.arguments)
            raise
        tool, given = prepared.tool, work.arguments
        if tool.null_is_absent:
            given = {name: value for name, value in given.items() if value is not None}
        given = tool.completed(call, given)
        check = partial(
            prepared.check_arguments, given, may_have_surrogates=isinstance(work.arguments, SurrogateObject)
        )
        if size.is_small:
            check()
        else:
            work.recorded = await run_in_json_thread(prepared.describe_large, work.arguments)
            await run_in_json_thread(check)
        return given


def _failure(tool: ToolSpec, error: ArmariumError) -> Outcome:
    translated = tool.errors.translate(error)
    # Their frames reference the data of the call, in cycles.
    for each in (error, translated):
        each.__traceback__ = each.__context__ = each.__cause__ = None
    content = [{"type": "text", "text": tool.errors.text(translated)}]
    return Outcome(
        {"content": content, "structuredContent": tool.errors.render(translated), "isError": True}, translated
    )
