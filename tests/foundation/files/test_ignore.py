"""Ignore lists: what they hide, long lists, and binary files."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from armarium.foundation.files import ignore
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.ignore import GitIgnores, IgnoreRules

LINES = st.sampled_from(
    [
        "a",
        "b/",
        "/a",
        "a/b",
        "*.c",
        "!a",
        "!*.c",
        "**/d",
        "a/**",
        "a/*/c",
        "# note",
        "",
        "\\#x",
        "[ab].c",
        "d?",
        "!/a/b",
    ]
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "d", "dd", "x.c", "a.c", "#x"]), min_size=1, max_size=4).map("/".join)


@settings(max_examples=500, deadline=None)
@given(st.lists(LINES, max_size=8), PATHS, st.booleans())
def test_a_list_hides_what_pathspec_says(lines: list[str], path: str, is_directory: bool) -> None:
    expected = GitIgnoreSpec.from_lines(lines, backend="simple").check_file(path + "/" * is_directory).include
    assert IgnoreRules.from_lines(lines).hides_entry(path, is_directory) is bool(expected)


def test_a_list_of_twenty_thousand_patterns_is_asked_in_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"dir{number}/*.tmp{number}" if number % 2 else f"name{number}.o" for number in range(20_000)]
    compiled: list[str] = []
    monkeypatch.setattr("pathspec.pattern.re.compile", lambda pattern, *_: compiled.append(pattern))
    rules = IgnoreRules.from_lines(lines)
    assert compiled == [], "each line is compiled by itself, which takes most of the time"
    assert len(rules._rules._specs) <= 20
    assert rules.hides("x/name4242.o", False)
    assert rules.hides("dir17/y.tmp17", False)
    assert not rules.hides("dir17/y.tmp19", False)


def test_a_later_line_overrides_an_earlier_one_however_long_the_list() -> None:
    # Longer than one set of compiled patterns.
    filler = [f"filler{number}" for number in range(1500)]
    assert not IgnoreRules.from_lines(["*.c", *filler, "!keep.c", *filler]).hides("keep.c", False)
    assert IgnoreRules.from_lines(["!keep.c", *filler, "*.c", *filler]).hides("keep.c", False)


def test_more_patterns_than_fit_into_one_set_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ignore, "_PATTERNS_PER_SET", 20_000)
    rules = IgnoreRules.from_lines([f"{number}*x?y*z{number}" for number in range(6000)])
    assert rules.hides("4321-x-y-z4321", False)
    assert not rules.hides("4321-x-y-z4322", False)


def test_the_faulty_line_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"name{number}" for number in range(50)]
    lines[31] = "!"
    with pytest.raises(InvalidPattern) as caught:
        IgnoreRules.from_lines(lines)
    assert caught.value.details["pattern"] == "!"


def test_a_binary_gitignore_hides_nothing_and_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".gitignore").write_bytes(b"\x7fELF\0\n*\n\0\xff\n")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert not GitIgnores().entering(fd, "sub/").hides_entry("sub/a.txt", False)
    finally:
        os.close(fd)
    (warning,) = [record for record in caplog.records if ".gitignore" in record.getMessage()]
    assert vars(warning)["path"] == "sub/.gitignore"


def test_a_line_that_cannot_be_read_spoils_no_other(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.o\n!\n*.tmp\n")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        rules = GitIgnores().entering(fd, "")
    finally:
        os.close(fd)
    assert rules.hides_entry("a.o", False)
    assert rules.hides_entry("a.tmp", False)
    assert not rules.hides_entry("a.c", False)
