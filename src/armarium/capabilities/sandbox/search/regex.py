"""Wraps RE2: compiles patterns with precise errors, and finds the next match in a buffer.

RE2 has the contract's Go syntax, takes linear time for every pattern, and releases the GIL during a search, but not
while it compiles. Expressions are created directly instead of with `re2.compile`, whose cache is not bounded by memory.
"""

from __future__ import annotations

from typing import Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs] the package has no type information

from armarium.capabilities.sandbox.reads.byte_scan import Find
from armarium.capabilities.sandbox.search.syntax import unbalanced_parenthesis
from armarium.foundation.files.errors import InvalidPattern

# The public search() creates three Python objects for every match; only this private class avoids that.
_engine: Any = cast(Any, re2)._re2.RE2
_UNANCHORED: Any = _engine.Anchor.UNANCHORED
_LITERAL_BYTES = 1024 * 1024
"""Memory for the automaton of a literal."""
_PROBE_BYTES = 256 * 1024
"""Memory limit for a pattern that is compiled only for its error or its size."""
_MAX_PLACES_TRIED = 16
_MAX_SHOWN = 80
_REPHRASED = {"missing ]": "missing closing ]", "missing )": "missing closing )", "unexpected )": "unmatched )"}


def _compiled(pattern: bytes, *, fold: bool, max_bytes: int, latin1: bool = False, across_lines: bool = False) -> Any:
    options: Any = cast(Any, re2).Options()
    options.log_errors = False
    options.never_capture = True
    options.never_nl = not across_lines
    options.case_sensitive = not fold
    options.max_mem = max_bytes
    if latin1:
        options.encoding = options.Encoding.LATIN1
    return _engine(pattern, options)


def bytes_finder(pattern: bytes, *, fold: bool = False) -> Find:
    """Compile a short pattern of bytes, not characters. `fold` ignores the case of ASCII letters."""
    return _finder(_compiled(pattern, fold=fold, latin1=True, max_bytes=_LITERAL_BYTES))


def program_size(pattern: str, *, fold: bool, max_bytes: int = _PROBE_BYTES) -> int | None:
    """Number of RE2 instructions of a small pattern; None if RE2 rejects it."""
    regex = _compiled(pattern.encode("utf-8", "replace"), fold=fold, max_bytes=max_bytes)
    return regex.ProgramSize() if regex.ok() else None


def finder(pattern: str, *, fold: bool = False, max_bytes: int, across_lines: bool = False) -> Find:
    """Compile a pattern, or raise `InvalidPattern`. A match includes line feeds only with `across_lines`."""
    try:
        encoded = pattern.encode()
    except UnicodeEncodeError as error:
        raise _invalid(pattern, "not valid Unicode", error.start) from error
    regex = _compiled(encoded, fold=fold, max_bytes=max_bytes, across_lines=across_lines)
    if regex.ok():
        return _finder(regex)
    reason: str = regex.error().decode("utf-8", "replace")
    if reason.startswith("pattern too large"):
        raise too_expensive()
    raise _invalid(pattern, reason, _position(pattern, reason, fold))


def too_expensive() -> InvalidPattern:
    """The error for a pattern that is too large once its repetitions are expanded."""
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
    """The pattern for `bytes_finder` that matches exactly this text."""
    return b"".join(b"\\x%02x" % byte for byte in text)


def _invalid(pattern: str, reason: str, position: int | None) -> InvalidPattern:
    problem, _, fragment = reason.partition(": ")
    problem = _REPHRASED.get(problem, problem)
    if fragment and fragment != pattern and not problem.startswith("missing closing"):
        problem = f"{problem} {_shown(fragment)}"
    message = f'invalid pattern: invalid regex "{_shown(pattern)}": {problem}'
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
    """Position of RE2's error, in characters. RE2 only quotes the invalid part, which may occur more than once."""
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
        if start >= 0:
            regex = _compiled(pattern[: start + len(fragment)].encode(), fold=fold, max_bytes=_PROBE_BYTES)
            if not regex.ok() and regex.error().decode("utf-8", "replace") == reason:
                return start
        start = pattern.find(fragment, start + 1)
    return first
