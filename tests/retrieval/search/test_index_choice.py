"""The indexes that a query searches, and the recognition of code and identifiers."""

from __future__ import annotations

import time

import pytest

from armarium.retrieval.search.index_choice import IndexChoice, contains_identifier, indexes_for, looks_like_code


def test_a_name_is_what_programs_write_as_one_word() -> None:
    assert all(map(contains_identifier, ["user_id", "fooBar", "run()", "a::b"]))
    assert not any(map(contains_identifier, ["iPhone", "GitHub", "user id", "C", "U.S. Navy", "_"]))


@pytest.mark.parametrize(
    ("choice", "available", "indexes"),
    [
        ("auto", {"text", "code"}, ("text", "code")),
        ("auto", {"text"}, ("text",)),
        ("auto", {"code"}, ("code",)),
        ("auto", set[str](), ("text",)),
        ("text", {"code"}, ("text",)),
        ("code", {"text"}, ("code",)),
        ("both", {"text"}, ("text", "code")),
    ],
)
def test_the_choice_is_kept_and_auto_goes_wherever_something_is(
    choice: IndexChoice, available: set[str], indexes: tuple[str, ...]
) -> None:
    assert indexes_for(choice, available) == indexes  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["a", "a_", "a[", "a[a]", "aB", "ab.", "a::", "_", "{ ", "x ", "\u00e9a", "(a"])
def test_reading_the_wording_of_a_query_costs_time_linear_in_its_length(unit: str) -> None:
    """RE2 guarantees it; this would notice another engine, which takes 16 or 64 times as long for 4 times the text."""
    short, long = unit * 50_000, unit * 200_000

    def cpu_s(query: str) -> float:
        taken: list[float] = []
        for _ in range(3):
            began = time.thread_time()
            contains_identifier(query)
            taken.append(time.thread_time() - began)
        return min(taken)

    assert cpu_s(long) < 10 * cpu_s(short) + 0.1


def test_a_very_long_line_is_looked_at_in_linear_time() -> None:
    began = time.thread_time()
    looks_like_code("\n".join(["a(" * 100_000] * 2))
    assert time.thread_time() - began < 5


def test_a_program_looks_like_code_and_prose_does_not() -> None:
    assert looks_like_code("def close(self):\n    self.stream.close()\n    return None\n")
    assert looks_like_code('int main(void) {\n  puts("hi");\n  return 0;\n}\n')
    assert not looks_like_code("The river rises in the hills.\nIt flows to the sea, slowly.\nNobody knows why.\n")
    assert not looks_like_code("")
