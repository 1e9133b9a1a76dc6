"""RE2 behind the few calls a search needs: compile, with an error that says where; find the next match in a buffer.

RE2 has the contract's Go syntax, takes time linear in the text whatever the pattern, and releases the GIL.
Expressions are built here directly and not with `re2.compile`, whose cache would keep a hundred callers' patterns,
and the automata grown for them, alive as long as the process.
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
_AUTOMATON_BYTES = 32 * 1024 * 1024
_MAX_PLACES_TRIED = 16

RegexError = cast(type[Exception], cast(Any, re2).error)


def _options(*, fold: bool, latin1: bool) -> Any:
    options: Any = cast(Any, re2).Options()
    options.log_errors = False
    options.never_capture = True
    options.never_nl = True
    options.case_sensitive = not fold
    options.max_mem = _AUTOMATON_BYTES
    if latin1:
        options.encoding = options.Encoding.LATIN1
    return options


def line_finder(pattern: str, *, fold: bool = False) -> Find:
    """Find a pattern whose match never includes a line end. The pattern has been checked."""
    return _finder(_engine(pattern.encode(), _options(fold=fold, latin1=False)))


def whole_finder(pattern: str) -> Find:
    """Find a pattern in text where a line end is a character like any other. The pattern has been checked."""
    options = _options(fold=False, latin1=False)
    options.never_nl = False
    return _finder(_engine(pattern.encode(), options))


def bytes_finder(pattern: bytes, *, fold: bool = False) -> Find:
    """Find a pattern that is written in bytes, not characters; `fold` ignores the case of ASCII letters."""
    return _finder(_engine(pattern, _options(fold=fold, latin1=True)))


def _finder(regex: Any) -> Find:
    match = regex.Match

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return match(_UNANCHORED, buffer, start, stop)[0][0]

    return find


def quoted(text: bytes) -> bytes:
    """A pattern for `bytes_finder` that matches exactly this text."""
    return b"".join(b"\\x%02x" % byte for byte in text)


def check_regex(pattern: str, *, fold: bool = False) -> None:
    """Raise InvalidPattern, with RE2's reason and the place, unless the pattern can be used."""
    try:
        encoded = pattern.encode()
    except UnicodeEncodeError as error:
        raise _invalid("not valid Unicode", error.start) from error
    reason = _refusal(encoded, fold)
    if reason is not None:
        raise _invalid(reason, _position(pattern, reason, fold))


def _refusal(pattern: bytes, fold: bool) -> str | None:
    regex = _engine(pattern, _options(fold=fold, latin1=False))
    return None if regex.ok() else regex.error().decode("utf-8", "replace")


def _invalid(reason: str, position: int | None) -> InvalidPattern:
    if position is None:
        return InvalidPattern(f"invalid pattern: {reason}", hint="simplify the expression")
    return InvalidPattern(
        f"invalid pattern: {reason} at position {position}",
        hint="use RE2 (Go) syntax; a backslash takes a special character literally",
        position=position,
    )


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
        if start >= 0 and _refusal(pattern[: start + len(fragment)].encode(), fold) == reason:
            return start
        start = pattern.find(fragment, start + 1)
    return first
