"""RE2 behind the few calls a search needs: compile, with an error that says where; find the next match in a buffer.

RE2 has the contract's Go syntax, takes time linear in the text whatever the pattern, and releases the GIL to search; it
holds the GIL to compile. Expressions are built here directly and not with `re2.compile`, whose cache is bounded by
number and not by memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

from armarium.capabilities.sandbox.search.syntax import unbalanced_parenthesis
from armarium.foundation.files.errors import InvalidPattern

Find = Callable[[bytes | bytearray, int, int], int]
"""Start of the first match in [start, stop) of a buffer, or -1; the bytes around it count for `^`, `$` and `\\b`."""

# The public search() makes three Python objects of every match; the class below it has no other name.
_engine: Any = cast(Any, re2)._re2.RE2
_UNANCHORED: Any = _engine.Anchor.UNANCHORED
_LITERAL_BYTES = 1024 * 1024
"""Memory for the automaton of a literal."""
_PROBE_BYTES = 256 * 1024
"""Memory for a pattern that is compiled for its error or its size only; RE2 stops soon where it is not enough."""
_TOO_LARGE = b"pattern too large"
_MAX_PLACES_TRIED = 16
_MAX_SHOWN = 80
_REPHRASED = {"missing ]": "missing closing ]", "missing )": "missing closing )", "unexpected )": "unmatched )"}


def _options(*, fold: bool, latin1: bool, max_bytes: int) -> Any:
    options: Any = cast(Any, re2).Options()
    options.log_errors = False
    options.never_capture = True
    options.never_nl = True
    options.case_sensitive = not fold
    options.max_mem = max_bytes
    if latin1:
        options.encoding = options.Encoding.LATIN1
    return options


def line_finder(pattern: str, *, fold: bool = False, max_bytes: int) -> Find:
    """Find a pattern whose match never includes a line end, or raise `InvalidPattern`."""
    return _checked(pattern, fold, _options(fold=fold, latin1=False, max_bytes=max_bytes))


def whole_finder(pattern: str, *, max_bytes: int) -> Find:
    """Find a pattern in text where a line end is a character like any other, or raise `InvalidPattern`."""
    options = _options(fold=False, latin1=False, max_bytes=max_bytes)
    options.never_nl = False
    return _checked(pattern, False, options)


def bytes_finder(pattern: bytes, *, fold: bool = False) -> Find:
    """Find a short pattern that is written in bytes, not characters; `fold` ignores the case of ASCII letters."""
    return _finder(_engine(pattern, _options(fold=fold, latin1=True, max_bytes=_LITERAL_BYTES)))


def program_size(pattern: str, *, fold: bool) -> int | None:
    """How many instructions RE2 makes of a small pattern; None when it refuses it."""
    regex = _engine(pattern.encode("utf-8", "replace"), _options(fold=fold, latin1=False, max_bytes=_PROBE_BYTES))
    return regex.ProgramSize() if regex.ok() else None


def _checked(pattern: str, fold: bool, options: Any) -> Find:
    try:
        encoded = pattern.encode()
    except UnicodeEncodeError as error:
        raise _invalid(pattern, "not valid Unicode", error.start) from error
    regex = _engine(encoded, options)
    if regex.ok():
        return _finder(regex)
    reason: bytes = regex.error()
    if reason.startswith(_TOO_LARGE):
        raise too_expensive()
    said = reason.decode("utf-8", "replace")
    raise _invalid(pattern, said, _position(pattern, said, fold))


def too_expensive() -> InvalidPattern:
    """The refusal of a pattern that is too large once its repetitions are written out."""
    return InvalidPattern(
        "invalid pattern: invalid regex: too large with its repetitions written out",
        hint="use + or * where a large class such as \\pL or [^a-z] is repeated a counted number of times",
    )


def _finder(regex: Any) -> Find:
    match = regex.Match

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return match(_UNANCHORED, buffer, start, stop)[0][0]

    return find


def quoted(text: bytes) -> bytes:
    """A pattern for `bytes_finder` that matches exactly this text."""
    return b"".join(b"\\x%02x" % byte for byte in text)


def _invalid(pattern: str, reason: str, position: int | None) -> InvalidPattern:
    said, _, fragment = reason.partition(": ")
    said = _REPHRASED.get(said, said)
    if fragment and fragment != pattern and not said.startswith("missing closing"):
        said = f"{said} {_shown(fragment)}"
    message = f'invalid pattern: invalid regex "{_shown(pattern)}": {said}'
    if position is None:
        return InvalidPattern(message, hint="simplify the expression")
    return InvalidPattern(
        f"{message} at position {position}",
        hint="use RE2 (Go) syntax; a backslash takes a special character literally",
        position=position,
    )


def _shown(text: str) -> str:
    cut = text[:_MAX_SHOWN]
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in cut)
    return shown if len(text) <= _MAX_SHOWN else f"{shown}…"


def _position(pattern: str, reason: str, fold: bool) -> int | None:
    """Where RE2's complaint points, in characters. It quotes the offending piece, which may stand there twice."""
    message, _, fragment = reason.partition(": ")
    if message in ("missing )", "unexpected )") and fragment == pattern:
        return unbalanced_parenthesis(pattern)
    if message == "trailing \\":
        return len(pattern) - 1
    if message == "missing ]":
        return len(pattern) - len(fragment)
    if not fragment or fragment not in pattern:
        return None
    first = start = pattern.find(fragment)
    for _ in range(_MAX_PLACES_TRIED):
        if start >= 0 and _refusal(pattern[: start + len(fragment)], fold) == reason:
            return start
        start = pattern.find(fragment, start + 1)
    return first


def _refusal(pattern: str, fold: bool) -> str | None:
    regex = _engine(pattern.encode(), _options(fold=fold, latin1=False, max_bytes=_PROBE_BYTES))
    return None if regex.ok() else regex.error().decode("utf-8", "replace")
