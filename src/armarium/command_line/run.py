"""Runs a command line to its end: every way it can end becomes an exit code, and no traceback reaches a user."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, cast

from armarium.command_line.host import CommandHost
from armarium.command_line.output import FAILED, INTERRUPTED, OK, Misuse, leave_closed_pipe, prepare_streams
from armarium.foundation.errors import ArmariumError, Internal

if TYPE_CHECKING:
    import typer

Run = Callable[[Sequence[str]], int]
"""Takes the arguments of a command line; the answer is its exit code."""


def _as_it_is(error: BaseException) -> BaseException:
    return error


@dataclass(frozen=True, slots=True)
class Reporting:
    """How one command tells what went wrong."""

    report: Callable[[ArmariumError], int]
    """Tells people and programs; the answer is the exit code."""
    known: Callable[[BaseException], BaseException] = _as_it_is
    """The error of ours that stands for another, where this command has one."""


def main(run: Run) -> NoReturn:
    """The entry point of a command."""
    # Importing makes many objects and no garbage: looking for some took an eighth of a server's start.
    gc.disable()
    prepare_streams()
    sys.exit(run(sys.argv[1:]))


def collect_garbage_from_here() -> None:
    """For commands that go on for long: begin with what `main` put off."""
    # What was imported stays, so no collection need ever look at it again.
    gc.freeze()
    gc.enable()


def until_interrupted(work: Callable[[], None]) -> None:
    """Do what goes on until Ctrl-C, which is how it ends."""
    collect_garbage_from_here()
    with suppress(KeyboardInterrupt):
        work()


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the flag is there, also on a command line too wrong to be understood."""
    return "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)


def run_app(app: typer.Typer, name: str, arguments: Sequence[str], reporting: Reporting, host: CommandHost) -> int:
    """Run one command line of an application. Commands find the host in `typer.Context.obj`."""
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

    return run_to_end(work, reporting)


def run_to_end(work: Callable[[], object], reporting: Reporting) -> int:
    """Do the work of a command; a number it returns is the exit code."""
    try:
        outcome = work()
    except BaseException as error:  # noqa: BLE001 the edge of the surface
        return _failed(error, reporting)
    return outcome if isinstance(outcome, int) else OK


def _failed(error: BaseException, reporting: Reporting) -> int:
    causes = [reporting.known(each) for each in _leaves(error)]
    cause = next((each for each in causes if isinstance(each, ArmariumError)), causes[0])
    if isinstance(cause, ArmariumError):
        return reporting.report(cause)
    if isinstance(cause, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(cause, BrokenPipeError):
        # Whoever read the output has left, so there is nobody to tell.
        leave_closed_pipe()
        return FAILED
    if not isinstance(cause, Exception):
        raise error
    if os.environ.get("ARMARIUM_TRACEBACK"):
        traceback.print_exception(error)
    hint = "this is a fault of ours; ARMARIUM_TRACEBACK=1 shows where"
    return reporting.report(Internal(f"{type(cause).__name__}: {cause}", hint=hint))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """What went wrong, behind errors that only gather others."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast(BaseExceptionGroup[BaseException], error).exceptions:
            yield from _leaves(each)
    else:
        yield error
