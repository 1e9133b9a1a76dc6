"""Which index a query goes to."""

from __future__ import annotations

import pytest

from armarium.retrieval.routing import (
    IndexChoice,
    compound_names,
    indexes_for,
    is_code_query,
    looks_like_code,
    names_something,
)


@pytest.mark.parametrize(
    "query",
    [
        "getUserName",
        "where is parse_config called",
        "os.path.join()",
        "std::vector iterator",
        "for (int i = 0; i < n; i++) {",
        "python sort a list of dicts",
        "function that returns the current user",
        "where is the class defined that implements the retry handler",
        "what does main.py do",
        "async def fetch(",
        "x == None",
    ],
)
def test_queries_about_code_go_to_code(query: str) -> None:
    assert is_code_query(query)


@pytest.mark.parametrize(
    "query",
    [
        "what is the function of the liver",
        "a method for calculating pressure on the surface of a wing",
        "How many points did the Panthers defense surrender?",
        "which class of passengers survived",
        "how should they react to the idea",
        "import duties on steel",
        "When was GitHub founded?",
        "the e.g. and i.e. abbreviations",
        "",
    ],
)
def test_queries_about_other_things_go_to_text(query: str) -> None:
    assert not is_code_query(query)


def test_a_name_is_what_programs_write_as_one_word() -> None:
    assert all(map(names_something, ["user_id", "fooBar", "run()", "a::b"]))
    assert not any(map(names_something, ["iPhone", "GitHub", "user id", "C", "U.S. Navy", "_"]))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("where is fit_tide called", "fittide"),
        ("getUserName or get_user_name", "getusername getusername"),
        ("MAX_SIZE in config.load_all()", "maxsize loadall"),
        ("run() of Foo::bar", ""),
        ("the history of ships", ""),
        ("", ""),
    ],
)
def test_names_are_told_as_the_words_that_the_word_index_has_them_as(query: str, names: str) -> None:
    assert compound_names(query) == names


@pytest.mark.parametrize(
    ("choice", "query", "targets_code", "available", "indexes"),
    [
        ("auto", "the history of ships", False, {"text", "code"}, ("text",)),
        ("auto", "the history of ships", True, {"text", "code"}, ("code",)),
        ("auto", "getUserName", False, {"text", "code"}, ("code",)),
        ("auto", "getUserName", False, {"text"}, ("text",)),
        ("auto", "the history of ships", False, {"code"}, ("code",)),
        ("auto", "the history of ships", False, set[str](), ("text",)),
        ("text", "getUserName", True, {"code"}, ("text",)),
        ("code", "the history of ships", False, {"text"}, ("code",)),
        ("both", "anything", False, {"text"}, ("text", "code")),
    ],
)
def test_the_choice_is_kept_and_auto_never_goes_where_nothing_is(
    choice: IndexChoice, query: str, targets_code: bool, available: set[str], indexes: tuple[str, ...]
) -> None:
    assert indexes_for(query, choice, targets_code=targets_code, available=available) == indexes  # type: ignore[arg-type]


def test_a_program_looks_like_code_and_prose_does_not() -> None:
    assert looks_like_code("def close(self):\n    self.stream.close()\n    return None\n")
    assert looks_like_code('int main(void) {\n  puts("hi");\n  return 0;\n}\n')
    assert not looks_like_code("The river rises in the hills.\nIt flows to the sea, slowly.\nNobody knows why.\n")
    assert not looks_like_code("")
