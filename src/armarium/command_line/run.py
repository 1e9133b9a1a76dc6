"""Runs command lines: every outcome becomes an exit code, and errors are reported without a traceback."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from armarium.command_line.host import CommandHost
from armarium.command_line.output import FAILED, INTERRUPTED, OK, Misuse, leave_closed_pipe, prepare_streams
from armarium.foundation.concurrency.tasks import leaf_errors
from armarium.foundation.errors import ArmariumError, Internal

if TYPE_CHECKING:
    import typer

Run = Callable[[Sequence[str]], int]
"""Runs the arguments of a command line, and returns the exit code."""


@dataclass(frozen=True, slots=True)
class ErrorReporter:
    """How a program reports errors."""

    report: Callable[[ArmariumError], int]
    """Prints an error, and returns the exit code."""
    translate: Callable[[BaseException], BaseException] = lambda error: error
    """Replaces an exception of a library by the `ArmariumError` that the program reports for it, if it has one."""


def main(run: Run) -> NoReturn:
    # Imports create many objects and no garbage: collections took an eighth of the start of a server.
    gc.disable()
    prepare_streams()
    sys.exit(run(sys.argv[1:]))


def enable_garbage_collection() -> None:
    """Enable the garbage collection that `main` disabled. Commands that run for long call it."""
    # Imported modules are never freed, so collections can skip them.
    gc.freeze()
    gc.enable()


def run_until_interrupted(work: Callable[[], None]) -> None:
    enable_garbage_collection()
    with suppress(KeyboardInterrupt):
        work()


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the flag `--json` is given, even if the rest of the command line is invalid."""
    return "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)


def run_app(app: typer.Typer, name: str, arguments: Sequence[str], reporter: ErrorReporter, host: CommandHost) -> int:
    """Run a command line of an application; return the exit code. Commands find the host in `typer.Context.obj`."""
    import typer

    def work() -> object:
        try:
            return app([*arguments], prog_name=name, standalone_mode=False, obj=host)
        except typer.TyperException as error:
            context: typer.Context | None = getattr(error, "ctx", None)
            command = context.command_path if context else name
            message = " ".join(error.format_message().split()).rstrip(".")
            raise Misuse(message, hint=f"{command} --help shows how") from error
        except typer.Abort:
            raise KeyboardInterrupt from None

    return run_to_end(work, reporter)


def run_to_end(work: Callable[[], object], reporter: ErrorReporter) -> int:
    """Run the work of a command; return the exit code, which is the result of the work if that is an integer."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 the edge of the surface
        return _exit_code(error, reporter)
    return result if isinstance(result, int) else OK


def _exit_code(error: BaseException, reporter: ErrorReporter) -> int:
    causes = [reporter.translate(each) for each in leaf_errors(error)]
    cause = next((each for each in causes if isinstance(each, ArmariumError)), causes[0])
    if isinstance(cause, ArmariumError):
        return reporter.report(cause)
    if isinstance(cause, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(cause, BrokenPipeError):
        # The reader of the output is gone, so there is nothing to report.
        leave_closed_pipe()
        return FAILED
    if not isinstance(cause, Exception):
        raise error
    if os.environ.get("ARMARIUM_TRACEBACK"):
        traceback.print_exception(error)
    hint = "this is a bug in Armarium; ARMARIUM_TRACEBACK=1 prints the traceback"
    return reporter.report(Internal(f"{type(cause).__name__}: {cause}", hint=hint))
