"""Errors cannot be changed; context is added to a copy."""

from __future__ import annotations

import pytest

from armarium.foundation.errors import ArmariumError, InvalidArgument


class Refused(InvalidArgument):
    """An error with a field of its own."""

    def __init__(self, message: str, *, problems: tuple[str, ...]) -> None:
        super().__init__(message, hint="correct it", private={"attempted": "/etc"}, field="a")
        self.problems = problems


def raised(error: ArmariumError) -> ArmariumError:
    try:
        raise error from ValueError("the cause")
    except ArmariumError as caught:
        return caught


@pytest.mark.parametrize("attribute", ["message", "hint", "details", "private"])
def test_an_error_cannot_be_changed(attribute: str) -> None:
    error = ArmariumError("broken", hint="repair it", private={"path": "/a"}, root="a")
    with pytest.raises(AttributeError):
        setattr(error, attribute, {})
    for fields in (error.details, error.private):
        with pytest.raises(TypeError):
            fields["more"] = "x"  # pyright: ignore[reportIndexIssue] that is the point


def test_context_is_added_to_a_copy() -> None:
    error = raised(Refused("refused", problems=("one", "two")))

    located = error.with_context(message="refused: b.txt", private={"resolved": "/b"}, root="r", field="other")

    assert type(located) is Refused
    assert (located.message, str(located), located.hint) == ("refused: b.txt", "refused: b.txt", "correct it")
    assert located.details == {"root": "r", "field": "a"}, "what was known closer to the cause stays"
    assert located.private == {"attempted": "/etc", "resolved": "/b"}
    assert located.problems == ("one", "two")
    assert located.__cause__ is error.__cause__
    assert located.__traceback__ is error.__traceback__
    assert (error.message, error.details, error.private) == ("refused", {"field": "a"}, {"attempted": "/etc"})


def test_context_that_is_not_given_is_copied() -> None:
    error = ArmariumError("broken", hint="repair it", private={"path": "/a"}, root="a")
    copy = error.with_context()
    assert (copy.message, copy.hint, copy.private, copy.details) == (
        "broken",
        "repair it",
        {"path": "/a"},
        {"root": "a"},
    )
    assert error.with_context(hint="try again").hint == "try again"
