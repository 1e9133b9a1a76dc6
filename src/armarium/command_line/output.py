"""What commands say and how they end: data on standard output, talk on standard error, an exit code with a meaning."""

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
"""The command line or the settings are wrong: nothing was tried."""
INTERRUPTED = 130

# Control characters but for tab and new line, what else ends a line, and what turns the direction of writing.
_STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_UNPRINTABLE_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


class Misuse(ArmariumError):
    """The command cannot be run as it was written."""

    code = "USAGE"


def prepare_streams() -> None:
    """UTF-8 whatever the locale, and never a crash over a file name that is not."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # None where the caller closed it.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def leave_closed_pipe() -> None:
    """Keep the interpreter from complaining, at its end, about a pipe whose reader has left."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def say(text: str = "") -> None:
    """Talk to the person at the terminal."""
    print(readable(text), file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Hand out data."""
    print(text, flush=True)


def show_json(value: Any) -> None:
    """Hand out data as JSON: one line for a program, spread out for a person."""
    at_a_terminal = sys.stdout.isatty()
    written = json.dumps(value, ensure_ascii=False, indent=2 if at_a_terminal else None)
    # JSON has an escape for every character, so a reader of the text loses nothing by it.
    show(_STEERS.sub(lambda found: f"\\u{ord(found[0]):04x}", written) if at_a_terminal else written)


def report(error: ArmariumError, *, as_json: bool) -> int:
    """Tell what went wrong and what to do about it; the answer is the exit code."""
    if as_json:
        body = {"code": error.code, "message": error.message, "retryable": error.retryable}
        show_json({"error": body | ({"hint": error.hint} if error.hint else {})})
    say(f"armarium: {error.message}")
    if error.hint:
        say(f"hint: {error.hint}")
    return MISUSED if isinstance(error, ConfigError | Misuse) else FAILED


def printable(text: str) -> str:
    """Text that others wrote, on one line and unable to steer the terminal."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escaped(character) for character in text)


def readable(text: str) -> str:
    """Text that others wrote, in its lines, and unable to steer the terminal or to turn the direction of writing."""
    return _STEERS.sub(lambda found: _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return _UNPRINTABLE_ESCAPES.get(character) or character.encode("unicode_escape").decode()


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural unless it is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def without_credentials(text: str) -> str:
    """The text, with the user and password taken out of any address in it."""
    return re.sub(r"(?<=://)[^/@\s]+@", "***@", text)
