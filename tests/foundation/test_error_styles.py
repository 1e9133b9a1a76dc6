"""Error formats of contracts: codes, messages, schemas."""

from __future__ import annotations

from typing import Any

import anyio.lowlevel
import pytest
from typing_extensions import TypedDict

from armarium.foundation.errors import ArgumentOutOfRange, ArmariumError, InvalidArgument, MissingArgument
from armarium.foundation.schema import SchemaCheck
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Args, Call, ErrorStyle, ToolSpec, local_tool, message_and_hint
from armarium.surfaces.dispatch import Caller, Dispatcher


class TooMuch(ArmariumError):
    """More than this contract allows."""

    code = "TOO_MUCH"


def translated(error: ArmariumError) -> ArmariumError:
    return TooMuch(error.message, hint=error.hint) if isinstance(error, ArgumentOutOfRange) else error


STYLE = ErrorStyle(
    render=lambda error: {"problem": error.code},
    schema={"type": "object"},
    text=lambda error: f"ERROR: {error.code}: {error.message}",
    translate=translated,
    in_output_schema=False,
)
INPUT = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "k": {"type": "integer", "minimum": 1, "maximum": 50},
        "kinds": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "mode": {"enum": ["a", "b"]},
    },
    "required": ["query"],
}


class Query(Args):
    query: str
    k: int = 1


class Answer(TypedDict):
    text: str


async def search(call: Call, args: Query) -> Answer:
    """Find something."""
    if args.query == "nothing":
        raise ArmariumError("there is nothing", hint="ask for something")
    return {"text": args.query}


def tool(style: ErrorStyle | None = STYLE) -> ToolSpec:
    traits: dict[str, Any] = {} if style is None else {"errors": style}
    return local_tool("search", search, input_schema=INPUT, **traits)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ({}, MissingArgument),
        ({"query": 7}, InvalidArgument),
        ({"query": ""}, InvalidArgument),
        ({"query": "x", "mode": "c"}, InvalidArgument),
        ({"query": "x", "other": 1}, InvalidArgument),
        ({"query": "x", "k": "1"}, InvalidArgument),
        ({"query": "x", "k": 0}, ArgumentOutOfRange),
        ({"query": "x", "k": 51}, ArgumentOutOfRange),
        ({"query": "x", "kinds": ["a", "b", "c"]}, ArgumentOutOfRange),
        ({"query": "x", "kinds": [1]}, InvalidArgument),
    ],
)
def test_a_misfit_says_whether_something_is_missing_out_of_range_or_wrong(
    value: dict[str, Any], kind: type[InvalidArgument]
) -> None:
    with pytest.raises(InvalidArgument) as misfit:
        SchemaCheck(INPUT).check(value)
    assert type(misfit.value) is kind
    assert misfit.value.code == "INVALID_ARGUMENT"


def test_a_contract_may_want_its_output_schema_word_for_word() -> None:
    assert tool().advertised_output() == tool().output_schema
    assert "anyOf" in (tool(None).advertised_output() or {})


async def call(style: ErrorStyle | None, **arguments: Any) -> tuple[dict[str, Any], Metrics]:
    metrics = Metrics()
    dispatcher = Dispatcher([("fixture", tool(style))], metrics=metrics, audit=None, default_deadline_s=None)
    result = (await dispatcher.outcome(Caller(LOCAL, "test"), "search", arguments)).result
    await anyio.lowlevel.checkpoint()  # the record is written behind the answer
    return result, metrics


async def test_an_error_is_told_in_the_contracts_code_words_and_form() -> None:
    result, metrics = await call(STYLE, query="x", k=51)
    assert result["isError"] is True
    assert result["structuredContent"] == {"problem": "TOO_MUCH"}
    assert result["content"] == [{"type": "text", "text": "ERROR: TOO_MUCH: `k` must be at most 50"}]
    assert b'armarium_errors_total{capability="fixture",code="TOO_MUCH"} 1.0' in metrics.exposition()


async def test_without_a_style_an_error_is_its_message_and_what_to_do() -> None:
    result, _ = await call(None, query="nothing")
    assert result["content"][0]["text"] == "there is nothing\nhint: ask for something"
    assert result["structuredContent"]["error"]["code"] == "INTERNAL"


def test_a_message_without_a_hint_stands_alone() -> None:
    assert message_and_hint(ArmariumError("plain")) == "plain"
