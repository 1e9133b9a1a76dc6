"""How any command line ends: with an exit code, told in the command's own words."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator

import pytest
import typer

from armarium.command_line.output import Misuse
from armarium.command_line.run import (
    Reporting,
    collect_garbage_from_here,
    run_app,
    run_to_end,
    until_interrupted,
    wants_json,
)
from armarium.foundation.errors import ArmariumError, BindFailed, Internal
from armarium.surfaces.cli.host import Host


class Told:
    """Remembers what was reported; every error ends with 7."""

    def __init__(self) -> None:
        self.errors: list[ArmariumError] = []

    def __call__(self, error: ArmariumError) -> int:
        self.errors.append(error)
        return 7


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--json", "up"], True),
        (["ask", "why", "--json"], True),
        (["ask", "--json", "--", "why"], True),
        (["ask", "--", "--json"], False),
        (["ask", "--jsonl"], False),
        ([], False),
    ],
)
def test_only_a_flag_is_the_flag_json(arguments: list[str], expected: bool) -> None:
    assert wants_json(arguments) is expected


@pytest.mark.parametrize(("outcome", "code"), [(None, 0), ("text", 0), (0, 0), (3, 3)])
def test_work_that_ends_well_is_a_success_unless_it_says_otherwise(outcome: object, code: int) -> None:
    assert run_to_end(lambda: outcome, Reporting(Told())) == code


def test_an_error_of_ours_is_told_also_from_among_others() -> None:
    told, ours = Told(), BindFailed("taken")
    several = ExceptionGroup("several", [ValueError("x"), ExceptionGroup("inner", [ours])])
    assert run_to_end(raising(ours), Reporting(told)) == 7
    assert run_to_end(raising(several), Reporting(told)) == 7
    assert told.errors == [ours, ours]


def test_a_command_may_know_an_error_by_another_name() -> None:
    told, full = Told(), BindFailed("full")
    reporting = Reporting(told, known=lambda error: full if isinstance(error, OSError) else error)
    group = ExceptionGroup("several", [ValueError("x"), OSError(28, "No space left on device")])
    assert run_to_end(raising(group), reporting) == 7
    assert told.errors == [full]


@pytest.mark.parametrize("traceback", ["", "1"])
def test_a_fault_of_ours_has_its_traceback_only_for_who_asks(
    traceback: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARMARIUM_TRACEBACK", traceback)
    told = Told()
    assert run_to_end(raising(RuntimeError("the wheels came off")), Reporting(told)) == 7
    assert isinstance(told.errors[0], Internal)
    assert told.errors[0].message == "RuntimeError: the wheels came off"
    assert ("Traceback" in capsys.readouterr().err) == bool(traceback)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("all", [KeyboardInterrupt()])])
def test_an_interrupt_ends_with_130_and_without_a_word(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    told = Told()
    assert run_to_end(raising(error), Reporting(told)) == 130
    assert told.errors == []
    assert capsys.readouterr() == ("", "")


def test_an_exit_that_was_decided_elsewhere_stays_one() -> None:
    with pytest.raises(SystemExit):
        run_to_end(raising(SystemExit(1)), Reporting(Told()))


@pytest.fixture
def app() -> typer.Typer:
    """Two commands: one that can be misused, and one that somebody stops."""
    made = typer.Typer()

    @made.command()
    def count(number: int) -> None:
        raise typer.Exit(number)

    @made.command()
    def stop() -> None:
        raise typer.Abort

    return made


def test_an_application_ends_with_its_own_code_or_is_told_to_be_misused(app: typer.Typer) -> None:
    told = Told()
    assert run_app(app, "abacus", ["count", "5"], Reporting(told), Host()) == 5
    assert run_app(app, "abacus", ["stop"], Reporting(told), Host()) == 130
    assert told.errors == []
    assert run_app(app, "abacus", ["count", "many"], Reporting(told), Host()) == 7
    assert isinstance(told.errors[0], Misuse)
    assert told.errors[0].hint == "abacus count --help shows how"


@pytest.fixture
def uncollected() -> Generator[None]:
    """As `main` leaves it: nobody looks for garbage."""
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_what_goes_on_for_long_has_its_garbage_collected_and_ends_well_with_an_interrupt() -> None:
    seen: list[bool] = []

    def work() -> None:
        seen.append(gc.isenabled())
        raise KeyboardInterrupt

    until_interrupted(work)
    assert seen == [True]


@pytest.mark.usefixtures("uncollected")
def test_what_was_imported_is_not_looked_at_again() -> None:
    collect_garbage_from_here()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
