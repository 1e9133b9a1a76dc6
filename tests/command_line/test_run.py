"""Command lines end with an exit code, and errors are reported without a traceback."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator

import pytest
import typer

from armarium.command_line.output import Misuse
from armarium.command_line.run import (
    ErrorReporter,
    enable_garbage_collection,
    run_app,
    run_to_end,
    run_until_interrupted,
    wants_json,
)
from armarium.foundation.errors import ArmariumError, BindFailed, Internal
from armarium.surfaces.cli.host import Host


class RecordingReport:
    """Records the reported errors; the exit code is 7."""

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
def test_the_json_flag_is_recognised_before_the_double_dash_only(arguments: list[str], expected: bool) -> None:
    assert wants_json(arguments) is expected


@pytest.mark.parametrize(("outcome", "code"), [(None, 0), ("text", 0), (0, 0), (3, 3)])
def test_an_integer_result_is_the_exit_code_and_any_other_result_is_success(outcome: object, code: int) -> None:
    assert run_to_end(lambda: outcome, ErrorReporter(RecordingReport())) == code


def test_an_armarium_error_is_reported_even_from_within_an_exception_group() -> None:
    report, ours = RecordingReport(), BindFailed("taken")
    several = ExceptionGroup("several", [ValueError("x"), ExceptionGroup("inner", [ours])])
    assert run_to_end(raising(ours), ErrorReporter(report)) == 7
    assert run_to_end(raising(several), ErrorReporter(report)) == 7
    assert report.errors == [ours, ours]


def test_a_program_can_translate_exceptions_of_libraries() -> None:
    report, full = RecordingReport(), BindFailed("full")
    reporter = ErrorReporter(report, translate=lambda error: full if isinstance(error, OSError) else error)
    group = ExceptionGroup("several", [ValueError("x"), OSError(28, "No space left on device")])
    assert run_to_end(raising(group), reporter) == 7
    assert report.errors == [full]


@pytest.mark.parametrize("traceback", ["", "1"])
def test_an_unexpected_error_shows_its_traceback_only_if_the_variable_is_set(
    traceback: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ARMARIUM_TRACEBACK", traceback)
    report = RecordingReport()
    assert run_to_end(raising(RuntimeError("the wheels came off")), ErrorReporter(report)) == 7
    assert isinstance(report.errors[0], Internal)
    assert report.errors[0].message == "RuntimeError: the wheels came off"
    assert ("Traceback" in capsys.readouterr().err) == bool(traceback)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), BaseExceptionGroup("all", [KeyboardInterrupt()])])
def test_an_interrupt_ends_with_130_and_prints_nothing(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    report = RecordingReport()
    assert run_to_end(raising(error), ErrorReporter(report)) == 130
    assert report.errors == []
    assert capsys.readouterr() == ("", "")


def test_system_exit_is_not_caught() -> None:
    with pytest.raises(SystemExit):
        run_to_end(raising(SystemExit(1)), ErrorReporter(RecordingReport()))


@pytest.fixture
def app() -> typer.Typer:
    """Two commands: one with a typed argument, and one that is aborted."""
    made = typer.Typer()

    @made.command()
    def count(number: int) -> None:
        raise typer.Exit(number)

    @made.command()
    def stop() -> None:
        raise typer.Abort

    return made


def test_an_application_ends_with_its_own_code_and_a_usage_error_is_reported(app: typer.Typer) -> None:
    report = RecordingReport()
    assert run_app(app, "abacus", ["count", "5"], ErrorReporter(report), Host()) == 5
    assert run_app(app, "abacus", ["stop"], ErrorReporter(report), Host()) == 130
    assert report.errors == []
    assert run_app(app, "abacus", ["count", "many"], ErrorReporter(report), Host()) == 7
    assert isinstance(report.errors[0], Misuse)
    assert report.errors[0].hint == "abacus count --help shows how"


@pytest.fixture
def disabled_garbage_collection() -> Generator[None]:
    """The state in which `main` starts a command."""
    gc.disable()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("disabled_garbage_collection")
def test_long_work_runs_with_garbage_collection_and_an_interrupt_ends_it_normally() -> None:
    seen: list[bool] = []

    def work() -> None:
        seen.append(gc.isenabled())
        raise KeyboardInterrupt

    run_until_interrupted(work)
    assert seen == [True]


@pytest.mark.usefixtures("disabled_garbage_collection")
def test_imported_objects_are_excluded_from_garbage_collection() -> None:
    enable_garbage_collection()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
