"""A tool made ready to be called: schemas compiled, counters at hand, and what of its arguments may be written down."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.redaction import HIDDEN, UNKNOWN, redacted
from armarium.foundation.schema import Json, SchemaCheck
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.argument_bounds import MOST_ARGUMENTS
from armarium.surfaces.json_text import Suspect, is_whole

_log = logging.getLogger("armarium.calls")

_DYNAMIC = "dynamic"
"""What metrics call every tool from a tool_provider: their names are without number, and may be anybody's."""


@dataclass(frozen=True, slots=True)
class Described:
    """The arguments of a call as the log and the audit trail have them."""

    arguments: str
    """JSON, without content, secrets and what nobody knows."""
    request_bytes: int
    hidden: frozenset[str] = frozenset()
    """Which of them nobody is to read later."""
    arguments_if_failed: str | None = None
    """The same for a call that fails, where that is another text: a secret may have been in the wrong place."""


def only_counted(arguments: Mapping[str, Any]) -> Described:
    """Arguments that nobody looked at."""
    return Described(_written({UNKNOWN: len(arguments)} if arguments else {}), size_of(arguments))


class PreparedTool:
    """A tool with its schemas compiled and its counters at hand."""

    def __init__(
        self,
        capability: str,
        tool: ToolSpec,
        metrics: Metrics,
        check_answers: bool = False,
        *,
        is_provided: bool = False,
    ) -> None:
        self.capability = capability
        self.tool = tool
        label = _DYNAMIC if is_provided else tool.name
        self.calls = {end: metrics.calls.labels(capability, label, end) for end in ("success", "error")}
        self.duration = metrics.duration.labels(capability, label)
        self._arguments, self._known = _checked(tool, any_schema=is_provided)
        self._answers = SchemaCheck(tool.output_schema) if check_answers and tool.output_schema else None

    def check_arguments(self, arguments: Mapping[str, Any], *, suspect: bool) -> None:
        """Raise `InvalidArgument` if they do not fit, or if one of suspect ones has half a character in it."""
        self._arguments.check(arguments)
        if suspect and (refusal := half_a_character(arguments)) is not None:
            raise refusal

    def described(self, arguments: Mapping[str, Any], *, failed: bool) -> Described:
        """The arguments for the log and the audit trail, when there are not many."""
        hidden = self.tool.secret_fields
        if hidden and failed:
            hidden |= self._arguments.misfits(arguments)
        return Described(self._written_down(arguments, hidden), size_of(arguments), hidden)

    def described_at_length(self, arguments: Mapping[str, Any]) -> Described:
        """The same for many, before anybody knows whether the call fails. Then nothing of them is shown where some
        may be a secret: to find out which costs too much."""
        secret = self.tool.secret_fields
        all_hidden = _written(dict.fromkeys(arguments.keys() & self._known, HIDDEN)) if secret else None
        return Described(self._written_down(arguments, secret), size_of(arguments), secret, all_hidden)

    def check_answer(self, answer: Json) -> None:
        """In tests: an answer that breaks its own schema is a fault of ours."""
        if self._answers is not None:
            try:
                self._answers.check(answer)
            except ArmariumError as error:
                raise AssertionError(f"{self.tool.name} answered against its schema: {error.message}") from error

    def _written_down(self, arguments: Mapping[str, Any], hidden: frozenset[str]) -> str:
        return _written(redacted(arguments, self._known, self.tool.content_fields, hidden))


def half_a_character(arguments: Mapping[str, Any]) -> InvalidArgument | None:
    """What is wrong with arguments that have half a character in them; None if they have not."""
    for name, value in arguments.items():
        if not is_whole(name):
            return InvalidArgument("the name of an argument has half a character in it")
        # Lists and the like are written out as they are: their own escapes cannot hide half a character.
        if not is_whole(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)):
            return InvalidArgument(f"`{name[:80]}` has half a character in it, which is no text", field=name)
    return None


def is_suspect(arguments: Mapping[str, Any]) -> bool:
    """Whether the text the arguments come from has half a character somewhere."""
    return isinstance(arguments, Suspect)


def writable(text: str) -> str:
    """Half characters, as host paths that are no UTF-8 have, would keep the record out of the log and the trail."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def bytes_of(text: str) -> int:
    """How long a text is in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of(arguments: Mapping[str, Any]) -> int:
    """The bytes of the texts among the arguments, as far as a call may have so many."""
    return sum(bytes_of(value) for value in islice(arguments.values(), MOST_ARGUMENTS) if isinstance(value, str))


def _written(arguments: Json) -> str:
    try:
        return orjson.dumps(arguments).decode()
    except TypeError:
        # Numbers and half characters that only the standard library writes must not keep a call off the record.
        return json.dumps(arguments, default=repr)


def _checked(tool: ToolSpec, *, any_schema: bool) -> tuple[SchemaCheck, frozenset[str]]:
    """What arguments must fit, and the names it knows. With `any_schema`, one that is none is as if there were none:
    whoever runs the tool has yet to look at its arguments, too."""
    try:
        return SchemaCheck(tool.input_schema), frozenset(tool.input_schema.get("properties", ()))
    except ValueError:
        if not any_schema:
            raise
        _log.warning("a tool has a schema that cannot be used", extra={"tool": writable(tool.name)})
        return SchemaCheck({"type": "object"}), frozenset()
