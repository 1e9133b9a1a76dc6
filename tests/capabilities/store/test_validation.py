"""What the store takes as a project, a path and content, by the rules of its contract."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from armarium.capabilities.store.errors import InvalidOffset, InvalidPath, InvalidQuery, PayloadTooLarge
from armarium.capabilities.store.validation import (
    checked_content,
    checked_inner_path,
    checked_number,
    checked_path,
    checked_prefix,
    checked_project,
    checked_query,
    name_of,
    parents_of,
)

PARTS = st.lists(st.text(alphabet="aZ9_-. \t\x7fé", min_size=1, max_size=3), min_size=1, max_size=3)
GOOD_PATHS = ["", "/a", "/a/b.txt", "/A-Z_0.9", "/.hidden", "/...", "/a..b/c", "/-", "/" + "x" * 511]
BAD_PATHS = [
    "a",
    "/",
    "a/b",
    "/a/",
    "//",
    "//a",
    "/a//b",
    "/.",
    "/..",
    "/a/./b",
    "/a/../b",
    "/..",
    "/a b",
    " /a",
    "/a\n",
    "/a\x00",
    "/a\x7f",
    "/ä",
    "/a%",
    "/a*",
    "/a\\b",
    "/a:b",
    "/\ud800",
    "/１",
    "/" + "x" * 512,
]


@pytest.mark.contract("S8.2-1")
@pytest.mark.parametrize("path", GOOD_PATHS)
def test_a_path_of_allowed_parts_is_taken(path: str) -> None:
    assert checked_path(path) == path


@pytest.mark.contract("S7-4", "S8.2-1", "S8.2-2", "S8.2-3", "S8.2-4")
@pytest.mark.parametrize("path", BAD_PATHS)
def test_a_path_that_breaks_a_rule_is_refused_without_being_repeated(path: str) -> None:
    with pytest.raises(InvalidPath) as refused:
        checked_path(path)
    assert refused.value.hint
    assert len(refused.value.message) < 100


@pytest.mark.contract("S8.2-2")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("a", "start with"),
        ("/a/", "end with"),
        ("/a//b", "empty part"),
        ("/a/../b", "'.' or '..'"),
        ("/" + "x" * 512, "512"),
        ("/ä", "only A-Z"),
    ],
)
def test_it_is_said_which_rule_a_path_breaks(path: str, said: str) -> None:
    with pytest.raises(InvalidPath, match=re.escape(said)):
        checked_path(path)


@pytest.mark.contract("S8.2-3", "S8.2-4")
@given(st.text(max_size=40) | st.text(alphabet="/.-_aZ9", max_size=40) | PARTS.map(lambda parts: "/" + "/".join(parts)))
def test_any_text_is_a_path_exactly_if_every_rule_says_so(text: str) -> None:
    follows = text == "" or (
        text.startswith("/")
        and not text.endswith("/")
        and all(part not in {"", ".", ".."} for part in text[1:].split("/"))
        and all(character.isascii() and (character.isalnum() or character in "/_-.") for character in text)
    )
    try:
        taken = checked_path(text) == text
    except InvalidPath:
        taken = False
    assert taken == follows


def test_the_root_is_a_path_but_no_file() -> None:
    with pytest.raises(InvalidPath):
        checked_inner_path("")
    assert checked_inner_path("/a") == "/a"


@pytest.mark.contract("S8.1-1")
@pytest.mark.parametrize("project", ["p", "A-Z_0.9", "x" * 128, "..."])
def test_a_project_of_safe_characters_is_taken(project: str) -> None:
    assert checked_project(project) == project


@pytest.mark.contract("S8.1-1")
@pytest.mark.parametrize("project", ["", "x" * 129, "a b", "a/b", "ä", "a\x00", "*", ".", "..", "a\n", "\udcff"])
def test_other_names_of_projects_are_refused(project: str) -> None:
    with pytest.raises(InvalidPath):
        checked_project(project)


def test_content_becomes_its_bytes() -> None:
    assert checked_content("hä", "utf-8", 3) == "hä".encode()
    assert checked_content("", "UTF-8", 1) == b""


@pytest.mark.parametrize("content", ["abcd", "ää"])
def test_the_limit_of_a_write_counts_bytes(content: str) -> None:
    assert checked_content(content, "utf-8", 4) == content.encode()
    with pytest.raises(PayloadTooLarge):
        checked_content(content, "utf-8", 3)


@pytest.mark.contract("S8.3-1")
@pytest.mark.parametrize(
    ("content", "encoding"), [("a\x00", "utf-8"), ("\ud800", "utf-8"), ("a", "latin-1"), ("a", "")]
)
def test_what_is_no_text_in_utf_8_is_refused(content: str, encoding: str) -> None:
    with pytest.raises(InvalidQuery):
        checked_content(content, encoding, 100)


def test_numbers_below_the_least_are_refused() -> None:
    assert checked_number("offset", 0, 0) == 0
    with pytest.raises(InvalidOffset, match="offset"):
        checked_number("offset", -1, 0)


@pytest.mark.contract("S9.7-1")
def test_a_query_is_trimmed_and_must_say_something() -> None:
    assert checked_query("  lamp \n") == "lamp"
    for empty in ("", " \t\n", "\u00a0", "x\x00y", "\ud800", "x" * 10_000):
        with pytest.raises(InvalidQuery):
            checked_query(empty)


def test_a_prefix_is_any_text_without_control_characters() -> None:
    assert checked_prefix("/no_t%es") == "/no_t%es"
    for bad in ("a\x00", "\n", "x" * 513, "\ud800"):
        with pytest.raises(InvalidPath):
            checked_prefix(bad)


def test_parents_and_names_of_paths() -> None:
    assert parents_of("/a/b/c") == ["/a", "/a/b"]
    assert parents_of("/a") == parents_of("") == []
    assert (name_of("/a/b.c"), name_of("")) == ("b.c", "")
