"""Tools: generated schemas, descriptions, results and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

import anyio
import pytest
from pydantic import Field
from typing_extensions import TypedDict

from armarium.foundation.concurrency.cancellation import Cancellation, Stopped
from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.schema import SchemaCheck
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.tools import ERROR_ENVELOPE, Args, Call, ToolSpec, local_tool, remote_tool, render_error


class ReadArgs(Args):
    """Never shown to a model."""

    path: str
    """Path of the file."""
    limit: Annotated[int, Field(ge=1, le=10)] | None = None
    kind: Literal["text", "bytes"] = "text"


class Part(TypedDict):
    """Never shown to a model either."""

    text: str


class Answer(TypedDict):
    parts: list[Part]
    size: NotRequired[int]


async def read(call: Call, args: ReadArgs) -> Answer:
    """Read a file.

    Search first when you
    do not know the path.
    """
    return {"parts": [{"text": f"{args.path} {args.limit} {args.kind}"}]}


TOOL = local_tool("read", read, read_only=True, title="Read")


def test_the_docstring_is_the_manual_with_its_paragraphs() -> None:
    assert TOOL.description == "Read a file.\n\nSearch first when you do not know the path."


def test_the_arguments_schema_reads_as_a_person_would_write_it() -> None:
    assert TOOL.input_schema == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Path of the file."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 10},
            "kind": {"type": "string", "enum": ["text", "bytes"], "default": "text"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


def test_clients_are_told_that_the_answer_may_be_an_error() -> None:
    schema = TOOL.advertised_output()
    assert schema is not None
    assert schema["type"] == "object"
    check = SchemaCheck(schema)
    check.check({"parts": [{"text": "hi"}]})
    check.check(render_error(ArmariumError("no")))
    with pytest.raises(ArmariumError):
        check.check({"something": "else"})


def test_a_tool_without_an_output_schema_advertises_none() -> None:
    async def forward(call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    assert remote_tool("far", "Far away.", {"type": "object"}, forward).advertised_output() is None


async def test_a_local_tool_gets_its_arguments_typed_and_with_defaults() -> None:
    answer = await TOOL.run(Call(LOCAL), {"path": "a", "limit": 3})
    assert answer == {"parts": [{"text": "a 3 text"}]}


async def test_a_value_that_fits_the_schema_and_cannot_be_had_is_a_wrong_argument() -> None:
    loose = local_tool("read", read, input_schema={"type": "object", "properties": {"limit": {"type": "integer"}}})
    with pytest.raises(InvalidArgument) as refused:
        await loose.run(Call(LOCAL), {"path": "a", "limit": 1e30})
    assert refused.value.details == {"field": "limit"}


async def test_a_remote_tool_gets_its_arguments_as_they_came_and_its_schema_is_served_untouched() -> None:
    seen: list[Mapping[str, Any]] = []
    schema = {"type": "object", "title": "Kept", "properties": {"a": {"type": ["integer", "null"], "x-theirs": 1}}}

    async def forward(call: Call, arguments: Mapping[str, Any]) -> dict[str, Any]:
        seen.append(arguments)
        return {"ok": True}

    tool = remote_tool("far", "Far away.", schema, forward, open_world=True)
    assert await tool.run(Call(LOCAL), {"a": 1, "unknown": 2}) == {"ok": True}
    assert seen == [{"a": 1, "unknown": 2}]
    assert tool.input_schema == schema
    assert tool.open_world


def test_a_contracts_own_schema_is_served_instead_of_the_generated_one() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "title": "As the contract has it"}}}
    assert local_tool("read", read, input_schema=schema).input_schema is schema


def test_a_tool_that_teaches_nothing_is_refused() -> None:
    async def mute(call: Call, args: ReadArgs) -> Answer:
        return {"parts": []}

    with pytest.raises(AssertionError, match="docstring"):
        local_tool("mute", mute)


def test_an_error_has_a_code_a_message_and_whether_to_try_again() -> None:
    class Busy(ArmariumError):
        code, retryable = "BUSY", True

    error = Busy("wait a moment", hint="try again", private={"pid": 7}, holder="bob", since=None)
    rendered = render_error(error)
    assert rendered == {
        "error": {
            "code": "BUSY",
            "message": "wait a moment",
            "retryable": True,
            "hint": "try again",
            "details": {"holder": "bob"},
        }
    }
    SchemaCheck(ERROR_ENVELOPE.schema).check(rendered)
    assert render_error(ArmariumError("plain")) == {
        "error": {"code": "INTERNAL", "message": "plain", "retryable": False}
    }


def test_a_call_does_not_show_the_key_when_printed() -> None:
    assert "s3cret" not in repr(Call(LOCAL, credential="s3cret"))


def test_a_tool_is_a_value_that_does_not_change() -> None:
    with pytest.raises(AttributeError):
        TOOL.name = "other"  # type: ignore[misc]
    assert isinstance(TOOL, ToolSpec)


async def test_a_cancellation_ends_the_work_of_a_thread_at_its_next_checkpoint() -> None:
    cancellation = Cancellation()
    begun = anyio.Event()

    def work() -> str:
        done = 0
        try:
            while True:
                done += 1
                cancellation.checkpoint(done)
                if done == 100:
                    anyio.from_thread.run_sync(begun.set)
        except Stopped:
            return "stopped"

    async def stop() -> None:
        await begun.wait()
        cancellation.cancel()

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stop)
            assert await anyio.to_thread.run_sync(work) == "stopped"


def test_a_cancellation_reports_progress_but_not_at_every_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("armarium.foundation.concurrency.cancellation.time.monotonic", lambda: now[0])
    told: list[float] = []
    cancellation = Cancellation(lambda progress, total, message: told.append(progress))
    for done in range(1, 101):
        now[0] += 0.01
        cancellation.checkpoint(done)
    assert len(told) == 4, "four times a second"
    assert told == sorted(told)


def test_progress_of_another_party_is_forwarded_unthrottled_until_the_call_ends() -> None:
    told: list[object] = []
    cancellation = Cancellation(lambda *progress: told.append(progress))
    cancellation.report(0.5, 2, "halfway")
    cancellation.report(2)
    assert told == [(0.5, 2, "halfway"), (2, None, None)]
    cancellation.cancel()
    with pytest.raises(Stopped):
        cancellation.report(3)
    assert (cancellation.has_listener, Cancellation().has_listener) == (True, False)
