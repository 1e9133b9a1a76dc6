"""The output of commands: data on standard output, messages on standard error, and exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
from io import TextIOWrapper
from typing import Any

from armarium.foundation.errors import ArmariumError, ConfigError

OK = 0
FAILED = 1
MISUSED = 2
"""The command line or the settings are invalid; the command did not run."""
INTERRUPTED = 130

# Control characters except tab and newline, other line separators, and characters that change the text direction.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SHORT_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


class Misuse(ArmariumError):
    """The command line is invalid."""

    code = "USAGE"


def prepare_streams() -> None:
    """Write UTF-8 in every locale, and escape what UTF-8 cannot encode, such as some file names."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None if the parent process closed it.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def leave_closed_pipe() -> None:
    """Redirect standard output to the null device, so that the interpreter can flush it without an error at exit."""
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), sys.stdout.fileno())


def say(text: str = "") -> None:
    """Print a message for people on standard error."""
    print(readable(text), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print data, the result of the command, on standard output."""
    print(text, flush=True)


def show_json(value: Any) -> None:
    """Print data as JSON: indented at a terminal, otherwise on one line."""
    at_terminal = sys.stdout.isatty()
    written = json.dumps(value, ensure_ascii=False, indent=2 if at_terminal else None)
    # An escaped character is still the same JSON string.
    show(_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", written) if at_terminal else written)


def report(error: ArmariumError, *, as_json: bool) -> int:
    """Print an error with its hint; return the exit code."""
    if as_json:
        body = {"code": error.code, "message": error.message, "retryable": error.retryable}
        show_json({"error": body | ({"hint": error.hint} if error.hint else {})})
    say(f"armarium: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")
    return MISUSED if isinstance(error, ConfigError | Misuse) else FAILED


def printable(text: str) -> str:
    """Untrusted text on one line, with control characters escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def readable(text: str) -> str:
    """Untrusted text with its line breaks, and with control and direction characters escaped."""
    return _CONTROLS.sub(lambda match: _escaped(match[0]), text)


def _escaped(character: str) -> str:
    return _SHORT_ESCAPES.get(character) or character.encode("unicode_escape").decode()


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def without_credentials(text: str) -> str:
    """The text, with user and password masked in every URL."""
    return re.sub(r"(?<=://)[^/@\s]+@", "***@", text)
