"""Runs a pipe: its steps in order, groups concurrently, and nested pipes with an environment of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import anyio
import anyio.lowlevel

from armarium.foundation.errors import ArmariumError, InvalidArgument, ResponseTooLarge
from armarium.foundation.schema import Json
from armarium.foundation.settings.model import PipeSettings
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Call, render_error
from armarium.surfaces.pipe.references import Allowance, References, is_true, size_of
from armarium.surfaces.pipe.spec import ParallelStep, PipeSpec, Step, ToolStep

_REPETITIONS = 8
"""How many times the references of a pipe may yield as much as it may keep."""


class PipeRun:
    def __init__(self, call: Call, limits: PipeSettings, max_depth: int) -> None:
        self._call = call
        self._limits = limits
        self._max_depth = max_depth
        self._slots = anyio.CapacityLimiter(limits.max_concurrent)
        self._steps_left = limits.max_steps
        self._characters_left = limits.max_result_bytes
        self._allowance = Allowance(_REPETITIONS * limits.max_result_bytes)

    async def run(self, spec: PipeSpec) -> Json:
        """Run the whole pipe: `ok`, `error`, `result` and `steps`."""
        return await self._run_spec(spec, spec.vars)

    async def _run_spec(self, spec: PipeSpec, variables: Mapping[str, Any]) -> Json:
        steps: Json = {}
        environment: Json = {"vars": variables, "steps": {}, "last": None}
        failure: Json | None = None
        for step in spec.steps:
            steps[step.id] = last = await self._run_step(step, environment)
            # A copy: a step whose variables refer to `steps` must not become a part of itself.
            environment |= {"steps": {**steps}, "last": last}
            failure = failure or last["error"]
            if failure and not spec.continue_on_error:
                break
        result = environment["last"]
        if spec.has_return:
            try:
                result = self._held(self._resolved(spec.returns, environment))
            except ArmariumError as error:
                # The error of a step explains why its result cannot be referred to.
                result, failure = None, failure or _described(error)
        return {"ok": failure is None, "error": failure, "result": result, "steps": steps}

    async def _run_step(self, step: Step, environment: Json) -> Json:
        """The result of a step; its errors are part of it."""
        # Steps that are skipped never wait for anything, and other callers must get their turn.
        await anyio.lowlevel.checkpoint()
        started_at, started = timestamp(), time.perf_counter()
        members: Json = {}
        error: Json | None = None
        kind = step.action.kind
        try:
            if not is_true(step.condition, partial(self._resolved, environment=environment)):
                members = {"skipped": True}
            elif step.foreach is not None:
                kind = "foreach"
                members, error = await self._run_foreach(step, environment)
            else:
                members, error = await self._run_action(step, environment)
        except ArmariumError as failure:
            error = _described(failure)
        duration_ms = round((time.perf_counter() - started) * 1000)
        head = {"id": step.id, "kind": kind, "ok": error is None, "error": error}
        return head | {"started_at": started_at, "duration_ms": duration_ms} | members

    async def _run_foreach(self, step: Step, environment: Json) -> tuple[Json, Json | None]:
        rounds = self._held(self._resolved(step.foreach, environment))
        if not isinstance(rounds, list):
            raise InvalidArgument(f"`foreach` of step {step.id[:80]} is not a list", hint='use {"$ref": "path"}')
        listed = cast(list[Any], rounds)
        if len(listed) > self._steps_left:
            raise self._too_many_steps()
        once = Step(step.id, step.action)
        items: list[Json] = []
        for index, item in enumerate(listed):
            items.append(await self._run_step(once, environment | {"item": item, "index": index}))
            if items[-1]["error"]:
                return {"items": items}, items[-1]["error"]
        return {"items": items}, None

    async def _run_action(self, step: Step, environment: Json) -> tuple[Json, Json | None]:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise self._too_many_steps()
        action = step.action
        if isinstance(action, ToolStep):
            return await self._run_tool(action, environment)
        if isinstance(action, ParallelStep):
            return await self._run_parallel(action.children, environment)
        # Its variables can refer to our steps; its own steps cannot.
        variables = self._held(self._resolved(action.vars, environment))
        inner = await self._run_spec(action, {**environment["vars"], **variables})
        if not action.has_return:
            # The answer has it twice.
            self._held(inner["result"])
        return {"result": inner["result"], "steps": inner["steps"]}, inner["error"]

    async def _run_parallel(self, children: Sequence[Step], environment: Json) -> tuple[Json, Json | None]:
        results: Json = dict.fromkeys(child.id for child in children)

        async def run(child: Step) -> None:
            results[child.id] = await self._run_step(child, environment)

        async with anyio.create_task_group() as group:
            for child in children:
                group.start_soon(partial(run, child))
        failure = next((result["error"] for result in results.values() if result["error"]), None)
        return {"children": results}, failure

    async def _run_tool(self, action: ToolStep, environment: Json) -> tuple[Json, Json | None]:
        async with self._slots:
            # Not before: the arguments of all steps that wait would be in memory.
            arguments = self._resolved(action.args, environment)
            result, error = await self._call.run_tool(action.tool, arguments)
        text = "\n".join(block["text"] for block in result["content"] if block.get("type") == "text")
        members: Json = {"tool": action.tool, "structured": result.get("structuredContent"), "text": text}
        self._held(members)
        return members, None if error is None else _described(error)

    def _resolved(self, value: Any, environment: Json) -> Any:
        return References(environment, self._limits.max_result_bytes, self._allowance).resolve(value)

    def _held(self, value: Any) -> Any:
        """The value, counted as a part of what the pipe keeps in memory."""
        size = size_of(value, self._characters_left, self._max_depth)
        if size > self._characters_left:
            raise ResponseTooLarge(
                f"the results of all steps have more than {self._limits.max_result_bytes} characters",
                hint="ask for less in each step, or use several pipes",
            )
        self._characters_left -= size
        return value

    def _too_many_steps(self) -> InvalidArgument:
        return InvalidArgument(
            f"a pipe runs at most {self._limits.max_steps} steps", hint="give `foreach` a shorter list"
        )


def _described(error: ArmariumError) -> Json:
    return render_error(error)["error"]
