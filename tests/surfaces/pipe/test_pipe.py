"""`mcp_pipe`: steps, references, groups, nested pipes, conditions, loops, and its limits."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import orjson
import pytest
from typing_extensions import TypedDict

from armarium.foundation.audit import AuditFilter, AuditLog, CallRecord, read_records
from armarium.foundation.errors import ArmariumError
from armarium.foundation.settings.model import LimitSettings, PipeSettings
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Args, Call, ToolSpec, local_tool
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.mcp.server import Caller
from armarium.surfaces.pipe.tool import pipe_tool
from support.mcp_test_server import ALICE
from support.waiting import eventually

CALLER = Caller(ALICE, "http", "session-7")


class Unwell(ArmariumError):
    """The tool's own error."""

    code, retryable = "UNWELL", True


class Words(Args):
    words: list[str]


class Text(Args):
    text: str
    count: int = 1


class Said(TypedDict):
    said: list[str]
    count: int


class Tools:
    """Tools that remember what they were called with."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.running = self.most_running = 0

    def specs(self) -> list[ToolSpec]:
        async def say(call: Call, args: Text) -> Said:
            """Say it."""
            self.called.append(args.text)
            return {"said": [args.text] * args.count, "count": args.count}

        async def split(call: Call, args: Words) -> Said:
            """Repeat a list."""
            return {"said": args.words, "count": len(args.words)}

        async def fail(call: Call, args: Text) -> Said:
            """Fail."""
            self.called.append(args.text)
            raise Unwell("it did not work", hint="rest")

        async def overlap(call: Call, args: Text) -> Said:
            """Measure how many run at the same time."""
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            self.running -= 1
            return {"said": [args.text], "count": 1}

        return [
            local_tool("say", say, content_fields=frozenset({"text"})),
            local_tool("split", split),
            local_tool("fail", fail),
            local_tool("overlap", overlap),
        ]


class Pipes:
    """A dispatcher with these tools and `mcp_pipe`."""

    def __init__(self, limits: PipeSettings | None = None, audit: AuditLog | None = None) -> None:
        self.tools = Tools()
        call_limits = LimitSettings()
        listed = [("words", tool) for tool in self.tools.specs()]
        listed.append(("pipe", pipe_tool(limits or PipeSettings(), call_limits)))
        self._dispatcher = Dispatcher(
            listed, metrics=Metrics(), audit=audit, default_deadline_s=30, limits=call_limits, check_answers=True
        )

    async def result(self, arguments: dict[str, Any], served: frozenset[str] | None = None) -> dict[str, Any]:
        return (await self._dispatcher.outcome(CALLER, "mcp_pipe", arguments, served=served)).result

    async def run(self, *steps: dict[str, Any], **members: Any) -> dict[str, Any]:
        """The answer of a pipe, whether it succeeds or not."""
        result = await self.result({"steps": [*steps], **members})
        answer = result["structuredContent"]
        assert orjson.loads(result["content"][0]["text"]) == answer
        assert result.get("isError", False) is not answer["ok"]
        return answer

    async def refused(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The error of a spec that must not run."""
        result = await self.result(arguments)
        assert result["isError"]
        assert self.tools.called == []
        return result["structuredContent"]["error"]


@pytest.fixture
def pipes() -> Pipes:
    return Pipes()


def say(name: str, text: str, **members: Any) -> dict[str, Any]:
    return {"id": name, "tool": "say", "args": {"text": text}, **members}


async def test_steps_run_in_order_and_the_result_is_that_of_the_last_one(pipes: Pipes) -> None:
    answer = await pipes.run(say("a", "one"), say("b", "two"))

    assert (answer["ok"], answer["error"]) == (True, None)
    assert pipes.tools.called == ["one", "two"]
    assert answer["result"] == answer["steps"]["b"]
    step = answer["steps"]["a"]
    assert {"id", "kind", "ok", "error", "started_at", "duration_ms", "structured", "text", "tool"} == step.keys()
    assert (step["id"], step["kind"], step["ok"], step["error"]) == ("a", "tool", True, None)
    assert step["structured"] == {"said": ["one"], "count": 1}
    assert orjson.loads(step["text"]) == step["structured"]


@pytest.mark.parametrize("form", ["top level", "spec", "JSON text"])
async def test_the_spec_is_an_object_or_json_text(pipes: Pipes, form: str) -> None:
    spec: dict[str, Any] = {"steps": [say("a", "one")]}
    given = {"top level": spec, "spec": {"spec": spec}, "JSON text": {"spec": orjson.dumps(spec).decode()}}[form]

    result = await pipes.result(given)

    assert result["structuredContent"]["ok"]


async def test_references_in_text_and_typed_references(pipes: Pipes) -> None:
    answer = await pipes.run(
        {"id": "list", "tool": "split", "args": {"words": {"$ref": "vars.words"}}},
        {"id": "a", "tool": "say", "args": {"text": "${last.structured.said.1}!", "count": {"$ref": "vars.count"}}},
        vars={"words": ["x", "y"], "count": 2},
        **{"return": {"said": {"$ref": "steps.a.structured.said"}, "as text": "${steps.list.structured}"}},
    )

    assert answer["result"] == {"said": ["y!", "y!"], "as text": '{"said":["x","y"],"count":2}'}


async def test_a_literal_dollar_brace_is_written_with_two_dollars(pipes: Pipes) -> None:
    await pipes.run(say("a", "cd $${HOME} ${vars.x}"), vars={"x": "now"})

    assert pipes.tools.called == ["cd ${HOME} now"]


async def test_what_a_reference_yields_is_not_resolved_again(pipes: Pipes) -> None:
    await pipes.run(say("a", "${vars.x}"), vars={"x": "${vars.x}"})

    assert pipes.tools.called == ["${vars.x}"]


@pytest.mark.parametrize("path", ["HOME", "steps.b.text", "vars.x.0", "vars.list.7", "vars.list.-1", "vars..x", ""])
async def test_a_reference_to_nothing_is_an_error_of_its_step(pipes: Pipes, path: str) -> None:
    answer = await pipes.run(say("a", f"${{{path}}}"), say("b", "never"), vars={"x": "text", "list": [1]})

    assert answer["error"]["code"] == answer["steps"]["a"]["error"]["code"] == "INVALID_REFERENCE"
    assert pipes.tools.called == []
    assert "b" not in answer["steps"]


async def test_the_error_of_a_step_is_the_error_of_its_tool(pipes: Pipes) -> None:
    answer = await pipes.run({"id": "a", "tool": "fail", "args": {"text": "x"}}, say("b", "never"))

    error = {"code": "UNWELL", "message": "it did not work", "retryable": True, "hint": "rest"}
    assert answer["ok"] is False
    assert answer["error"] == answer["steps"]["a"]["error"] == error
    assert pipes.tools.called == ["x"]


async def test_continue_on_error_runs_the_rest_and_reports_the_first_error(pipes: Pipes) -> None:
    answer = await pipes.run(
        {"id": "a", "tool": "fail", "args": {"text": "x"}}, say("b", "still"), continue_on_error=True
    )

    assert (answer["ok"], answer["error"]["code"]) == (False, "UNWELL")
    assert answer["steps"]["b"]["ok"]


async def test_a_group_runs_its_children_concurrently_and_all_of_them(pipes: Pipes) -> None:
    answer = await pipes.run(
        {
            "id": "both",
            "parallel": [
                {"id": "bad", "tool": "fail", "args": {"text": "x"}},
                {"id": "good", "tool": "overlap", "args": {"text": "y"}},
                {"id": "other", "tool": "overlap", "args": {"text": "z"}},
            ],
        }
    )

    group = answer["steps"]["both"]
    assert (group["kind"], group["ok"], group["error"]["code"]) == ("parallel", False, "UNWELL")
    assert [*group["children"]] == ["bad", "good", "other"]
    assert group["children"]["other"]["ok"]
    assert pipes.tools.most_running == 2


async def test_so_many_tools_run_at_the_same_time() -> None:
    pipes = Pipes(PipeSettings(max_concurrent=3))
    children = [{"id": str(number), "tool": "overlap", "args": {"text": "x"}} for number in range(20)]

    answer = await pipes.run({"id": "all", "parallel": children})

    assert answer["ok"]
    assert pipes.tools.most_running == 3


async def test_a_nested_pipe_has_its_own_steps_and_inherits_variables(pipes: Pipes) -> None:
    inner = {
        "vars": {"from_outside": {"$ref": "steps.a.structured.count"}},
        "steps": [say("a", "inner ${vars.x} ${vars.from_outside}")],
        "return": {"$ref": "last.structured.said.0"},
    }

    answer = await pipes.run(say("a", "outer"), {"id": "nested", "pipe": inner}, vars={"x": "1"})

    nested = answer["steps"]["nested"]
    assert (nested["kind"], nested["result"]) == ("pipe", "inner 1 1")
    assert nested["steps"]["a"]["structured"]["said"] == ["inner 1 1"]
    assert answer["steps"]["a"]["structured"]["said"] == ["outer"]


async def test_a_nested_pipe_does_not_see_the_steps_around_it(pipes: Pipes) -> None:
    inner = {"steps": [say("b", "${steps.a.text}")]}

    answer = await pipes.run(say("a", "outer"), {"id": "nested", "pipe": inner})

    assert answer["error"]["code"] == "INVALID_REFERENCE"


async def test_foreach_repeats_a_step_for_each_item(pipes: Pipes) -> None:
    answer = await pipes.run(say("a", "${index}${item.name}", foreach=[{"name": "x"}, {"name": "y"}]))

    assert pipes.tools.called == ["0x", "1y"]
    step = answer["steps"]["a"]
    assert step["kind"] == "foreach"
    assert [item["structured"]["said"] for item in step["items"]] == [["0x"], ["1y"]]


async def test_foreach_stops_at_the_first_error(pipes: Pipes) -> None:
    answer = await pipes.run({"id": "a", "tool": "fail", "args": {"text": "${item}"}, "foreach": ["x", "y"]})

    assert pipes.tools.called == ["x"]
    assert len(answer["steps"]["a"]["items"]) == 1
    assert answer["error"]["code"] == "UNWELL"


@pytest.mark.parametrize(
    ("condition", "runs"),
    [
        (True, True),
        (False, False),
        (None, False),
        ({"$ref": "vars.none"}, False),
        ({"$ref": "vars.empty"}, False),
        ({"$ref": "vars.word"}, True),
        ("${vars.word}", True),
        ({"$not": {"$ref": "vars.none"}}, True),
        ({"$eq": [{"$ref": "vars.word"}, "yes"]}, True),
        ({"$eq": [{"$ref": "vars.word"}, "no"]}, False),
    ],
)
async def test_if_decides_whether_a_step_runs(pipes: Pipes, condition: Any, runs: bool) -> None:
    answer = await pipes.run(say("a", "x", **{"if": condition}), vars={"word": "yes", "empty": []})

    assert answer["ok"]
    assert pipes.tools.called == (["x"] if runs else [])
    assert answer["steps"]["a"].get("skipped", False) is not runs


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"steps": []}, "steps"),
        ({}, "steps"),
        ({"steps": [{"id": "a"}]}, "steps.0"),
        ({"steps": [say("a", "x", pipe={"steps": [say("b", "y")]})]}, "steps.0"),
        ({"steps": [say("", "x")]}, "steps.0.id"),
        ({"steps": [say("a" * 201, "x")]}, "steps.0.id"),
        ({"steps": [say("a", "x"), say("a", "y")]}, "steps.1.id"),
        ({"steps": [{"id": "a", "tool": "mcp_pipe", "args": {"steps": []}}]}, "steps.0.tool"),
        ({"steps": [say("a", "x", when=True)]}, "steps.0.when"),
        ({"steps": [{"id": "a", "parallel": [say("b", "x"), say("b", "y")]}]}, "steps.0.parallel.1.id"),
        ({"steps": [{"id": "a", "pipe": {"steps": "x"}}]}, "steps.0.pipe.steps"),
        ({"spec": "{not json"}, "spec"),
        ({"spec": "[1]"}, "spec"),
        ({"spec": {"steps": [say("a", "x")]}, "vars": {}}, "spec"),
        ({"steps": [say(str(number), "x") for number in range(51)]}, "steps"),
    ],
)
async def test_a_malformed_spec_is_refused_before_any_step_runs(pipes: Pipes, spec: dict[str, Any], field: str) -> None:
    error = await pipes.refused(spec)

    assert error["code"] == "INVALID_ARGUMENT"
    assert error["details"]["field"] == field


async def test_pipes_nest_five_levels_and_no_more(pipes: Pipes) -> None:
    def nested(levels: int) -> dict[str, Any]:
        step = say("a", "x")
        for _ in range(levels):
            step = {"id": "a", "pipe": {"steps": [step]}}
        return {"steps": [step]}

    error = await pipes.refused(nested(6))
    assert "5 levels" in error["message"]
    assert (await pipes.result(nested(5)))["structuredContent"]["ok"]


async def test_nested_groups_are_bounded_like_nested_pipes(pipes: Pipes) -> None:
    step = say("a", "x")
    for _ in range(6):
        step = {"id": "a", "parallel": [step]}

    assert "5 levels" in (await pipes.refused({"steps": [step]}))["message"]


async def test_a_loop_over_a_million_items_runs_nothing(pipes: Pipes) -> None:
    spec = {"vars": {"many": list(range(60))}, "steps": [say("a", "x", foreach={"$ref": "vars.many"})]}

    answer = (await pipes.result(spec))["structuredContent"]

    assert "at most 50 steps" in answer["error"]["message"]
    assert pipes.tools.called == []


async def test_nested_loops_share_the_limit_of_steps(pipes: Pipes) -> None:
    inner = {"steps": [say("b", "x", foreach=list(range(10)))]}

    answer = await pipes.run({"id": "a", "pipe": inner, "foreach": list(range(10))})

    assert "at most 50 steps" in answer["error"]["message"]
    assert len(pipes.tools.called) < 50


async def test_references_cannot_multiply_a_text_without_bound() -> None:
    pipes = Pipes(PipeSettings(max_result_bytes=100_000))

    answer = await pipes.run(say("a", "${vars.x}" * 1000), vars={"x": "y" * 1000})

    assert answer["error"]["code"] == "RESPONSE_TOO_LARGE"
    assert pipes.tools.called == []


async def test_references_are_counted_also_if_they_yield_nothing(pipes: Pipes) -> None:
    repeated = {"$eq": ["${last.error}" * 1000, ""]}
    answer = await pipes.run(say("a", "x"), *(say(str(number), "x", **{"if": repeated}) for number in range(11)))

    assert answer["error"]["code"] == "INVALID_ARGUMENT"
    assert "too many references" in answer["error"]["message"]
    assert [*answer["steps"]][-1] == "10"


async def test_what_references_yield_is_bounded_for_all_conditions_together() -> None:
    """A condition runs no tool, and may be evaluated in every round of a loop."""
    pipes = Pipes(PipeSettings(max_result_bytes=100_000))
    condition = {"$not": {"$eq": [{"$ref": "vars.many"}, {"$ref": "vars.many"}]}}
    inner = {"steps": [say(str(number), "x", **{"if": condition}) for number in range(40)]}

    answer = await pipes.run({"id": "a", "pipe": inner, "foreach": [1, 2]}, vars={"many": [0] * 2500})

    assert answer["error"]["code"] == "RESPONSE_TOO_LARGE"
    (first,) = answer["steps"]["a"]["items"]
    assert sum("skipped" in step for step in first["steps"].values()) == 5


async def test_others_run_between_steps_that_are_skipped(pipes: Pipes) -> None:
    inner = {"steps": [say(str(number), "x", **{"if": False}) for number in range(40)]}
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        with anyio.fail_after(30):
            await pipes.run({"id": "a", "pipe": inner, "foreach": list(range(10))})
        tasks.cancel_scope.cancel()

    assert turns >= 400


async def test_a_path_has_a_bounded_number_of_elements(pipes: Pipes) -> None:
    answer = await pipes.run(say("a", "x", foreach={"$ref": "vars" + ".a" * 1000}))

    assert answer["error"]["code"] == "INVALID_REFERENCE"
    assert "1000 elements" in answer["error"]["message"]


async def test_integers_above_64_bits_are_passed_on_and_counted() -> None:
    pipes = Pipes(PipeSettings(max_result_bytes=100_000))
    number = 10**4000

    given = {"vars": {"n": number, "l": [number]}, "steps": [say("a", "${vars.n} ${vars.l}")]}

    result = await pipes.result({**given, "return": {"$ref": "vars.l"}})
    assert pipes.tools.called == [f"{number} [{number}]"]
    assert json.loads(result["content"][0]["text"])["result"] == [number]

    refused = await pipes.result({**given, "return": [{"$ref": "vars.n"}] * 100})
    assert refused["structuredContent"]["error"]["code"] == "RESPONSE_TOO_LARGE"


async def test_a_reference_to_a_list_counts_what_is_hidden_between_small_items(pipes: Pipes) -> None:
    listed: list[Any] = [0] * 258
    listed[1] = "x" * 1_000_000

    answer = await pipes.run(say("a", "x"), vars={"x": listed}, **{"return": [{"$ref": "vars.x"}] * 20})

    assert answer["error"]["code"] == "RESPONSE_TOO_LARGE"


@pytest.mark.parametrize(
    "step",
    [
        {"pipe": {"steps": [say("a", "x")], "return": "${vars.x}!"}},
        {"pipe": {"steps": [say("a", "x")], "return": {"$ref": "vars.x"}}},
        {"pipe": {"steps": [say("a", "x")], "vars": {"y": "${vars.x}!"}}},
        {"tool": "say", "args": {"text": "x"}, "foreach": ["${vars.x}!"]},
    ],
    ids=["a result", "a repeated result", "a variable", "a list"],
)
async def test_steps_cannot_multiply_a_text_without_bound(step: dict[str, Any]) -> None:
    pipes = Pipes(PipeSettings(max_result_bytes=20_000))
    steps = [{"id": str(number), **step} for number in range(10)]
    for wanted in (steps, [{"id": "group", "parallel": steps}]):
        answer = await pipes.run(*wanted, vars={"x": "y" * 5000}, **{"return": None})

        assert answer["error"]["code"] == "RESPONSE_TOO_LARGE"
        assert len(orjson.dumps(answer)) < 40_000


async def test_nested_results_that_are_repeated_are_bounded() -> None:
    pipes = Pipes(PipeSettings(max_result_bytes=50_000))
    step = say("a", "x" * 5000)
    for _ in range(5):
        step = {"id": "a", "pipe": {"steps": [step]}}

    result = await pipes.result({"steps": [step]})

    assert result["structuredContent"]["error"]["code"] == "RESPONSE_TOO_LARGE"
    assert len(orjson.dumps(result["structuredContent"])) < 150_000


async def test_arguments_of_steps_that_wait_are_not_in_memory() -> None:
    pipes = Pipes(PipeSettings(max_concurrent=2))
    children = [{"id": str(number), "tool": "overlap", "args": {"text": "${vars.x}" * 5}} for number in range(30)]
    tracemalloc.start()
    try:
        await pipes.run({"id": "all", "parallel": children}, vars={"x": "y" * 1_000_000})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100_000_000


async def test_the_results_of_all_steps_are_bounded_together() -> None:
    pipes = Pipes(PipeSettings(max_result_bytes=20_000))
    steps = [{"id": str(number), "tool": "say", "args": {"text": "x" * 100, "count": 30}} for number in range(10)]

    answer = await pipes.run(*steps)

    assert answer["error"]["code"] == "RESPONSE_TOO_LARGE"
    assert len(orjson.dumps(answer)) < 40_000


async def test_a_result_with_all_steps_does_not_contain_itself(pipes: Pipes) -> None:
    inner = {"vars": {"s": {"$ref": "steps"}}, "steps": [say("a", "x")], "return": {"$ref": "vars.s"}}

    answer = await pipes.run(say("first", "x"), {"id": "second", "pipe": inner})

    assert answer["result"]["result"] == {"first": answer["steps"]["first"]}


async def test_references_cannot_nest_a_value_without_bound(pipes: Pipes) -> None:
    inner = {"vars": {"s": {"$ref": "last"}}, "steps": [say("a", "x")], "return": [[[{"$ref": "vars.s"}]]]}

    answer = await pipes.run(*({"id": str(number), "pipe": inner} for number in range(24)), **{"return": None})

    assert "nested more than 64 levels" in answer["error"]["message"]


async def test_deeply_nested_json_text_is_refused(pipes: Pipes) -> None:
    error = await pipes.refused({"spec": '{"vars":' + "[" * 900 + "]" * 900 + "}"})

    assert error["code"] == "INVALID_ARGUMENT"


async def test_a_step_calls_only_what_the_endpoint_serves(pipes: Pipes) -> None:
    spec = {"steps": [say("a", "x"), {"id": "b", "tool": "fail", "args": {"text": "y"}}]}

    result = await pipes.result(spec, served=frozenset({"mcp_pipe", "say"}))

    assert result["structuredContent"]["error"]["code"] == "UNKNOWN_TOOL"
    assert pipes.tools.called == ["x"]


async def test_a_return_that_refers_to_nothing_fails_the_pipe(pipes: Pipes) -> None:
    answer = await pipes.run(say("a", "x"), **{"return": {"$ref": "steps.b"}})

    assert (answer["ok"], answer["result"], answer["error"]["code"]) == (False, None, "INVALID_REFERENCE")


@pytest.fixture
async def audited(tmp_path: Path) -> AsyncGenerator[tuple[Pipes, Path]]:
    file = tmp_path / "audit.sqlite"
    audit = AuditLog(file)
    yield Pipes(audit=audit), file
    audit.close()


async def test_each_step_is_recorded_with_its_own_redaction(audited: tuple[Pipes, Path]) -> None:
    pipes, file = audited
    secret = "confidential words"

    await pipes.run(say("a", "${vars.x}"), {"id": "b", "tool": "fail", "args": {"text": "y"}}, vars={"x": secret})

    def records() -> list[CallRecord]:
        return [record for _, record in read_records(file, AuditFilter(), last=10)]

    await eventually(lambda: len(records()) == 3)
    assert {(record.tool, record.outcome, record.code) for record in records()} == {
        ("say", "success", None),
        ("fail", "error", "UNWELL"),
        ("mcp_pipe", "error", "TOOL_FAILED"),
    }
    assert all(record.principal == "alice" and secret not in record.arguments for record in records())
