"""Declares the tool `mcp_pipe`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from armarium.foundation.errors import InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.settings.model import LimitSettings, PipeSettings
from armarium.foundation.tools import Call, Relayed, ToolSpec
from armarium.surfaces.json.bounds import measure_arguments
from armarium.surfaces.json.text import dumps
from armarium.surfaces.json.threads import run_in_json_thread
from armarium.surfaces.pipe.runner import PipeRun
from armarium.surfaces.pipe.spec import PIPE_TOOL, parse_spec

_DESCRIPTION = """\
Run several tools in one call. Steps run in order; a step's result can feed the next.

A step has an `id` and exactly one of: `tool` with `args`; `parallel`, a list of steps that run at the same time; \
`pipe`, a nested spec. `if` skips a step unless its value is true, `foreach` repeats it for each `item` of a list.

References: "${steps.a.text}" inside a string, {"$ref": "steps.a.structured.entries.0.name"} for a typed value. Paths \
begin with `vars`, `steps`, `last` or, in a `foreach`, `item` and `index`; write $${ for a literal ${.

Example: {"steps": [{"id": "list", "tool": "list_folder", "args": {"root": "docs", "path": "."}}, {"id": "read", \
"foreach": {"$ref": "steps.list.structured.entries"}, "tool": "read_file", "args": {"root": "docs", "path": \
"${item.path}"}}], "return": {"$ref": "steps.read.items"}}"""

_STEPS: Json = {"type": "array", "items": {"type": "object"}, "description": "The steps, in order."}
_INPUT: Json = {
    "type": "object",
    "properties": {
        "spec": {
            "anyOf": [{"type": "object"}, {"type": "string"}],
            "description": "The whole spec, as an object or as JSON text, instead of the members below.",
        },
        "vars": {"type": "object", "description": "Values that steps refer to as `vars.NAME`."},
        "steps": _STEPS,
        "return": {"description": "The result, with references. By default the result of the last step."},
        "continue_on_error": {"type": "boolean", "description": "Run the remaining steps after a failed one."},
    },
    "additionalProperties": False,
}
_OUTPUT: Json = {
    "type": "object",
    "properties": {
        "ok": {"type": "boolean"},
        "error": {
            "anyOf": [{"type": "object"}, {"type": "null"}],
            "description": "The first error, with its `code` and `message`.",
        },
        "result": {"description": "What `return` yields."},
        "steps": {
            "type": "object",
            "description": "The result of each step by its id: `id`, `kind`, `ok`, `error`, `started_at`, "
            "`duration_ms` and, by kind, `structured` and `text`, `children`, `items`, or `result` and `steps`.",
        },
    },
    "required": ["ok", "error", "result", "steps"],
}


def pipe_tool(limits: PipeSettings, call_limits: LimitSettings) -> ToolSpec:
    """The tool, with these limits. Each step is a call of its own: it passes the same checks and is recorded."""

    async def run(call: Call, arguments: Mapping[str, Any]) -> Json | Relayed:
        spec = parse_spec(await _given_spec(arguments, call_limits), limits)
        answer = await PipeRun(call, limits, call_limits.max_argument_depth).run(spec)
        if answer["ok"]:
            return answer
        text = (await run_in_json_thread(dumps, answer)).decode()
        return Relayed([{"type": "text", "text": text}], answer, is_error=True)

    return ToolSpec(
        PIPE_TOOL,
        _DESCRIPTION,
        _INPUT,
        run,
        output_schema=_OUTPUT,
        title="Run several tools",
        destructive=True,
        open_world=True,
        runs_tools=True,
        # The arguments of steps can be content or secrets. Each step is recorded with its own redaction.
        content_fields=frozenset({"spec", "vars", "steps", "return"}),
    )


async def _given_spec(arguments: Mapping[str, Any], limits: LimitSettings) -> object:
    if "spec" not in arguments:
        return arguments
    if len(arguments) > 1:
        raise InvalidArgument("`spec` is the whole spec; nothing may stand beside it", field="spec")
    given = arguments["spec"]
    if not isinstance(given, str):
        return given
    try:
        decoded = await run_in_json_thread(orjson.loads, given)
    except ValueError:
        raise InvalidArgument(
            "`spec` is a string that is not JSON", hint="send it as an object", field="spec"
        ) from None
    await measure_arguments({"spec": decoded}, limits)
    return decoded
