"""The output of commands: data on standard output, messages on standard error, and exit codes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

from armarium.foundation.errors import ArmariumError, ConfigError
from armarium.foundation.security.network import EXCLUDED, permits

if TYPE_CHECKING:
    import typer

    from armarium.foundation.tools import ErrorStyle

OK = 0
FAILED = 1
MISUSED = 2
"""The command line or the settings are invalid; the command did not run."""
INTERRUPTED = 130

# Control characters except tab and newline, other line separators, and characters that change the text direction.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SHORT_ESCAPES = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


class Misuse(ArmariumError, code="USAGE"):
    """The command line is invalid."""


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


def show_help(context: typer.Context) -> None:
    """Show the help of a group of commands, if none of them was named."""
    if context.invoked_subcommand is None:
        show(context.get_help())


def show_json(value: Any) -> None:
    """Print data as JSON: indented at a terminal, otherwise on one line."""
    at_terminal = sys.stdout.isatty()
    written = json.dumps(value, ensure_ascii=False, indent=2 if at_terminal else None)
    # An escaped character is still the same JSON string.
    show(_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", written) if at_terminal else written)


def confirm(question: str, *, default: bool, outcome: str, hint: str) -> None:
    """Ask a question; ends the command if the answer is no. `outcome` says what the command did then."""
    import typer

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse(f"there is no terminal to ask at, so {outcome}", hint=hint)
    try:
        typer.confirm(question, default=default, abort=True, err=True)
    except typer.Abort:
        say("stopped; nothing was changed")
        raise


def progress_lines() -> Callable[[str, int, int], None]:
    """Prints a line for every tenth of each phase of the work, at a terminal only."""
    printed: dict[str, int] = {}

    def show_progress(phase: str, done: int, total: int) -> None:
        tenth = done * 10 // total
        if sys.stderr.isatty() and printed.get(phase) != tenth:
            printed[phase] = tenth
            say(f"{phase}: {done} of {total}")

    return show_progress


def report(error: ArmariumError, *, as_json: bool, style: Callable[[], ErrorStyle] | None = None) -> int:
    """Print an error with its hint; return the exit code. As JSON it is what a tool returns, in the style of the
    capability whose command it is."""
    if as_json and style is not None:
        show_json(style().render(style().translate(error)))
    elif as_json:
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


def destinations_line(destinations: Iterable[tuple[str, str]]) -> str:
    """One line with every address to which text is sent, and the purposes."""
    used: dict[str, list[str]] = {}
    excluded: dict[str, list[str]] = {}
    for address, purpose in destinations:
        purposes = used if permits(address) else excluded
        purposes.setdefault(printable(without_credentials(address)), []).append(printable(purpose))
    line = f"Text is sent to {_listed(used)}" if used else "Text stays on this machine."
    return f"{line.rstrip(chr(46))}. Not used, because {EXCLUDED} them: {_listed(excluded)}" if excluded else line


def _listed(purposes: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{address} ({', '.join(why)})" for address, why in purposes.items())


def without_credentials(text: str) -> str:
    """The text, with user and password masked in every URL."""
    return re.sub(r"(?<=://)[^/@\s]+@", "***@", text)
