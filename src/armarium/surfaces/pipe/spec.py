"""Parses the spec of a pipe, and rejects one that is malformed or exceeds the limits before any step runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from armarium.foundation.errors import InvalidArgument
from armarium.foundation.settings.model import PipeSettings

PIPE_TOOL = "mcp_pipe"

_ACTIONS = ("tool", "parallel", "pipe")
_SPEC_MEMBERS = frozenset({"vars", "steps", "return", "continue_on_error"})
_STEP_MEMBERS = frozenset({"id", "args", "foreach", "if", *_ACTIONS})
_MAX_ID_CHARACTERS = 200
"""The result of each step, also of each round of a `foreach`, repeats its id."""


@dataclass(frozen=True, slots=True)
class ToolStep:
    tool: str
    args: Mapping[str, Any]
    kind = "tool"


@dataclass(frozen=True, slots=True)
class ParallelStep:
    """Runs its children concurrently."""

    children: Sequence[Step]
    kind = "parallel"


@dataclass(frozen=True, slots=True)
class PipeSpec:
    """Runs its steps one after the other. A nested one is a step, too."""

    vars: Mapping[str, Any]
    steps: Sequence[Step]
    returns: Any
    has_return: bool
    continue_on_error: bool
    kind = "pipe"


@dataclass(frozen=True, slots=True)
class Step:
    """One step, with its optional condition and list."""

    id: str
    action: ToolStep | ParallelStep | PipeSpec
    condition: Any = True
    """The unresolved `if`."""
    foreach: Any = None
    """The unresolved list of `foreach`; None runs the step once."""


def parse_spec(given: object, limits: PipeSettings) -> PipeSpec:
    """The parsed spec. Raises `InvalidArgument` with the place of the first fault."""
    return _Parser(limits).spec(given, "", depth=0)


class _Parser:
    def __init__(self, limits: PipeSettings) -> None:
        self._limits = limits
        self._steps = 0

    def spec(self, given: object, at: str, depth: int) -> PipeSpec:
        members = _object(given, at, _SPEC_MEMBERS)
        self._check_depth(depth, at)
        variables = _object(members.get("vars") or {}, f"{at}vars.")
        proceed = members.get("continue_on_error") or False
        if not isinstance(proceed, bool):
            raise _invalid(f"{at}continue_on_error", "must be true or false")
        steps = self._sequence(members.get("steps"), f"{at}steps", depth)
        return PipeSpec(variables, steps, members.get("return"), "return" in members, proceed)

    def _sequence(self, given: object, at: str, depth: int) -> list[Step]:
        if not isinstance(given, list) or not given:
            raise _invalid(at, "must be a list with at least one step")
        listed = cast(list[object], given)
        self._steps += len(listed)
        if self._steps > self._limits.max_steps:
            raise _invalid(at, f"a pipe has at most {self._limits.max_steps} steps")
        steps = [self._step(each, f"{at}.{number}", depth) for number, each in enumerate(listed)]
        seen: set[str] = set()
        for number, step in enumerate(steps):
            if step.id in seen:
                raise _invalid(f"{at}.{number}.id", f"is used twice: {step.id[:80]}")
            seen.add(step.id)
        return steps

    def _step(self, given: object, at: str, depth: int) -> Step:
        members = _object(given, f"{at}.", _STEP_MEMBERS)
        name = members.get("id")
        if not isinstance(name, str) or not name.strip() or len(name) > _MAX_ID_CHARACTERS:
            raise _invalid(f"{at}.id", f"must be a string of 1 to {_MAX_ID_CHARACTERS} characters")
        actions = [action for action in _ACTIONS if action in members]
        if len(actions) != 1:
            raise _invalid(at, "must have exactly one of `tool`, `parallel` and `pipe`")
        if "args" in members and actions != ["tool"]:
            raise _invalid(f"{at}.args", "belongs to a step with `tool`")
        return Step(name, self._action(actions[0], members, at, depth), members.get("if", True), members.get("foreach"))

    def _action(
        self, action: str, members: Mapping[str, Any], at: str, depth: int
    ) -> ToolStep | ParallelStep | PipeSpec:
        if action == "pipe":
            return self.spec(members["pipe"], f"{at}.pipe.", depth + 1)
        if action == "parallel":
            self._check_depth(depth + 1, at)
            return ParallelStep(self._sequence(members["parallel"], f"{at}.parallel", depth + 1))
        tool, args = members["tool"], _object(members.get("args") or {}, f"{at}.args.")
        if not isinstance(tool, str) or not tool.strip():
            raise _invalid(f"{at}.tool", "must be the name of a tool")
        if tool == PIPE_TOOL:
            raise _invalid(f"{at}.tool", "cannot be another pipe", hint="nest it with `pipe` instead of `tool`")
        return ToolStep(tool, args)

    def _check_depth(self, depth: int, at: str) -> None:
        if depth > self._limits.max_depth:
            raise _invalid(at.rstrip("."), f"is nested more than {self._limits.max_depth} levels deep")


def _object(given: object, at: str, known: frozenset[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise _invalid(at.rstrip(".") or "spec", "must be an object")
    members = cast(Mapping[str, Any], given)
    if known is None:
        return members
    for name in members:
        if name not in known:
            raise _invalid(f"{at}{name[:80]}", "is unknown", hint=f"known here: {', '.join(sorted(known))}")
    return members


def _invalid(at: str, problem: str, hint: str | None = None) -> InvalidArgument:
    return InvalidArgument(f"`{at}` {problem}", hint=hint, field=at)
