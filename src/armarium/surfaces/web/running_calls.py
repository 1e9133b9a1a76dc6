"""Runs the calls of the JSON API, and ends those in progress when the server stops."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from starlette.types import Receive

from armarium.foundation.byte_transfers import ByteTransfer
from armarium.foundation.errors import Cancelled
from armarium.foundation.tools import Emit, ToolSpec, emit_nothing
from armarium.surfaces.call_record import Outcome
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.http.responses import cancel_after, cancel_on_disconnect
from armarium.surfaces.tool_results import ResultForm


class RunningCalls:
    def __init__(self, dispatcher: Dispatcher, gate: Gate) -> None:
        self._dispatcher, self._gate = dispatcher, gate
        self._scopes = set[anyio.CancelScope]()

    def end(self) -> None:
        """Cancel all calls; their callers get an error."""
        for scope in self._scopes.copy():
            scope.cancel()

    async def outcome(
        self,
        caller: Caller,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        *,
        form: ResultForm = "structured",
        abandoned: Receive | None = None,
        transfer: ByteTransfer | None = None,
        emit: Emit = emit_nothing,
    ) -> Outcome:
        """Run a call. If it is cancelled, it still has an outcome. With `abandoned`, it ends when that receives that
        the client has disconnected, and with the session of its caller's browser."""
        cancelled = Cancelled("the call was cut short", hint="the server is stopping, or the session ended; try again")
        outcome = Outcome({"structuredContent": tool.errors.render(tool.errors.translate(cancelled))}, cancelled)
        async with anyio.create_task_group() as tasks:
            self._scopes.add(tasks.cancel_scope)
            try:
                if abandoned is not None:
                    tasks.start_soon(cancel_on_disconnect, abandoned, tasks.cancel_scope)
                    tasks.start_soon(cancel_after, partial(self._gate.wait_until_ended, caller), tasks.cancel_scope)
                outcome = await self._dispatcher.outcome(
                    caller, tool.name, arguments, form=form, transfer=transfer, emit=emit
                )
            finally:
                self._scopes.discard(tasks.cancel_scope)
            tasks.cancel_scope.cancel()
        return outcome
