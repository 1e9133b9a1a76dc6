"""Prepares a tool for calls: compiled schemas, labelled metrics, and redacted arguments for the record."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.schema import Json, SchemaCheck
from armarium.foundation.surrogates import has_unpaired_surrogate
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.json.bounds import MAX_ARGUMENTS

_log = logging.getLogger("armarium.calls")

_HIDDEN = "[hidden]"
"""Replaces secrets."""
_UNKNOWN = "[unknown]"
"""Stands for unknown arguments, which are only counted: their names and values may be anything."""
_LONGEST_PLAIN_TEXT = 1024
_DYNAMIC = "dynamic"
"""The metrics label of all tools of tool providers. Their names are unlimited in number and come from others."""


@dataclass(frozen=True, slots=True)
class RecordedArguments:
    """The arguments of a call as the log and the audit record show them."""

    arguments: str
    """JSON, without content, secrets and unknown arguments."""
    request_bytes: int
    hidden: frozenset[str] = frozenset()
    """The names of the arguments that are hidden."""
    arguments_if_failed: str | None = None
    """What to record instead if the call fails: a secret may be in the wrong argument."""


def count_arguments(arguments: Mapping[str, Any]) -> RecordedArguments:
    """Record only the number and the size of arguments that were not validated."""
    return RecordedArguments(_as_text({_UNKNOWN: len(arguments)} if arguments else {}), text_size(arguments))


class PreparedTool:
    """A tool with its schemas compiled and its metrics labelled."""

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
        self._arguments, self._known = _compile_schema(tool, ignore_invalid=is_provided)
        self._answers = SchemaCheck(tool.output_schema) if check_answers and tool.output_schema else None

    def check_arguments(self, arguments: Mapping[str, Any], *, may_have_surrogates: bool) -> None:
        """Raise `InvalidArgument` if the arguments do not fit the schema or contain an unpaired surrogate."""
        self._arguments.check(arguments)
        if may_have_surrogates and (error := surrogate_error(arguments)) is not None:
            raise error

    def describe(self, arguments: Mapping[str, Any], *, failed: bool) -> RecordedArguments:
        """Redact small arguments for the record."""
        hidden = self.tool.secret_fields
        if hidden and failed:
            hidden |= self._arguments.misfits(arguments)
        return RecordedArguments(self._redacted(arguments, hidden), text_size(arguments), hidden)

    def describe_large(self, arguments: Mapping[str, Any]) -> RecordedArguments:
        """Redact large arguments before the outcome is known. If the call fails and the tool takes secrets, all
        arguments are hidden: finding the misplaced ones costs too much."""
        secret = self.tool.secret_fields
        all_hidden = _as_text(dict.fromkeys(arguments.keys() & self._known, _HIDDEN)) if secret else None
        return RecordedArguments(self._redacted(arguments, secret), text_size(arguments), secret, all_hidden)

    def check_answer(self, answer: Json) -> None:
        """In tests: fail if an answer does not fit the tool's output schema."""
        if self._answers is not None:
            try:
                self._answers.check(answer)
            except ArmariumError as error:
                raise AssertionError(f"{self.tool.name} answered against its schema: {error.message}") from error

    def _redacted(self, arguments: Mapping[str, Any], hidden: frozenset[str]) -> str:
        return _as_text(redacted(arguments, self._known, self.tool.content_fields, hidden))


def redacted(
    arguments: Mapping[str, Any],
    known: Collection[str],
    content_fields: frozenset[str] = frozenset(),
    secret_fields: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The arguments without confidential values. File content and long values become fingerprints, secrets are
    replaced, and arguments that are not `known` are only counted."""
    written: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in known:
            continue
        if name in secret_fields:
            value = _HIDDEN
        elif name in content_fields or _is_long(value):
            value = _fingerprint(value)
        written[name] = value
    unknown = len(arguments) - len(written)
    return written | {_UNKNOWN: unknown} if unknown else written


def _is_long(value: object) -> bool:
    if isinstance(value, str):
        return len(value) > _LONGEST_PLAIN_TEXT
    return isinstance(value, list | dict) and len(repr(value)) > _LONGEST_PLAIN_TEXT  # pyright: ignore[reportUnknownArgumentType] any JSON


def _fingerprint(value: object) -> dict[str, Any]:
    """Length and hash of a value."""
    text = value if isinstance(value, str) else repr(value)
    encoded = text.encode("utf-8", "backslashreplace")
    return {"length": len(encoded), "sha256": hashlib.sha256(encoded).hexdigest()}


def surrogate_error(arguments: Mapping[str, Any]) -> InvalidArgument | None:
    """The error for arguments that contain an unpaired surrogate; None if they do not."""
    for name, value in arguments.items():
        if has_unpaired_surrogate(name):
            return InvalidArgument("the name of an argument contains an unpaired surrogate")
        # Written without escapes, so that a surrogate inside a list or an object stays visible.
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)
        if has_unpaired_surrogate(text):
            message = f"`{name[:80]}` contains an unpaired surrogate, which UTF-8 cannot encode"
            return InvalidArgument(message, field=name)
    return None


def escape_surrogates(text: str) -> str:
    """The text with escapes for surrogates. Host paths that are not UTF-8 have them, and no log can contain them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def utf8_length(text: str) -> int:
    """The length of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def text_size(arguments: Mapping[str, Any]) -> int:
    """The bytes of the strings among the arguments, up to the allowed number of arguments."""
    return sum(utf8_length(value) for value in islice(arguments.values(), MAX_ARGUMENTS) if isinstance(value, str))


def _as_text(arguments: Json) -> str:
    try:
        return orjson.dumps(arguments).decode()
    except TypeError:
        # orjson rejects large integers and surrogates; the call must be recorded all the same.
        return json.dumps(arguments, default=repr)


def _compile_schema(tool: ToolSpec, *, ignore_invalid: bool) -> tuple[SchemaCheck, frozenset[str]]:
    """The compiled input schema, and the names of its arguments. With `ignore_invalid`, an invalid schema is ignored:
    the server behind the tool validates the arguments."""
    try:
        return SchemaCheck(tool.input_schema), frozenset(tool.input_schema.get("properties", ()))
    except ValueError:
        if not ignore_invalid:
            raise
        _log.warning("the input schema of a tool is invalid and ignored", extra={"tool": escape_surrogates(tool.name)})
        return SchemaCheck({"type": "object"}), frozenset()
