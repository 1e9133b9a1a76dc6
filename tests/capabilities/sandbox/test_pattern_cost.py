"""The cost of a pattern is estimated before it is compiled, and the cache of patterns is bounded."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from armarium.capabilities.sandbox.reads import byte_scan
from armarium.capabilities.sandbox.search import patterns, regex
from armarium.capabilities.sandbox.search.syntax import buffer_pattern, parse
from armarium.foundation.files.errors import InvalidPattern
from support.file_search import globbed, grepped, lines, paths, plant

EXPENSIVE = [
    r"\pL{700}\d",
    r"(\pL{1,40}\s){1,20}Q",
    r"[^a-c\pN]{900}x",
    r"(?:(?:\PL{10}){10}){5}",
    r"a|b|(\p{L}|x){1,500}",
    r"(?i)[\pL\pM]{100}",
]


@pytest.mark.parametrize("pattern", EXPENSIVE)
def test_a_pattern_that_is_expensive_to_compile_is_refused_before_it_is_compiled(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = _count_compilations(monkeypatch)
    for search in (lambda: grepped(tmp_path, pattern), lambda: globbed(tmp_path, regex=pattern)):
        with pytest.raises(InvalidPattern) as caught:
            search()
        assert "invalid regex" in caught.value.message
        assert caught.value.hint
    assert compiled == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"\pL+\d",
        r"\pL{20}",
        r"(?i)[\pL\pN_]{1,15}",
        r"\w{1000}",
        r".{1000}",
        r"(?i)(foo|bar|task){300}",
        r"[^a]{1000}",
        r"\p{Han}{100}",
        "é" * 5000,
        "|".join(f"name{number}" for number in range(900)),
        r"(((a{10}){10}){10})",
        r"\S{1000}$",
    ],
)
def test_a_pattern_within_the_limit_is_compiled_and_is_about_as_large_as_estimated(
    tmp_path: Path, pattern: str
) -> None:
    plant(tmp_path, {"a": b"nothing\n"})
    grepped(tmp_path, pattern)
    estimated = patterns.estimated_cost(parse(pattern, fold=False))
    real = regex.program_size(pattern, fold=False, max_bytes=1 << 26)
    assert real is not None
    assert real <= 1.2 * estimated + 20


def test_a_pattern_that_could_not_be_read_gets_no_more_memory_than_others(tmp_path: Path) -> None:
    nested = "(" * 150 + r"\pL{900}" + ")" * 150
    assert parse(nested, fold=False) is None
    with pytest.raises(InvalidPattern, match="invalid regex: too large"):
        grepped(tmp_path, nested)


def test_a_pattern_has_a_longest_length(tmp_path: Path) -> None:
    plant(tmp_path, {"a" * 200: b"x" * 10_000 + b"\n"})
    assert len(lines(grepped(tmp_path, "x" * 10_000))) == 1
    for search in (lambda: grepped(tmp_path, "x" * 10_001), lambda: globbed(tmp_path, regex="x" * 10_001)):
        with pytest.raises(InvalidPattern, match="longer than 10000 characters"):
            search()


def test_a_pattern_is_compiled_once_for_all_searches_that_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = [plant(tmp_path / str(number), {"a": b"once7\n", "b": b"once\n"}) for number in range(8)]
    compiled = _count_compilations(monkeypatch)
    start = threading.Barrier(8)

    def search(tree: Path) -> list[tuple[str, int, str]]:
        start.wait(60)
        return lines(grepped(tree, r"o[nm]ce\d+"))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(search, trees))
    assert found == [[("a", 1, "once7")]] * 8
    assert compiled == [r"o[nm]ce\d+"]


def test_an_expression_for_lines_with_carriage_returns_is_compiled_only_when_one_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = _count_compilations(monkeypatch)
    plant(tmp_path, {"a": b"an end\n"})
    assert lines(grepped(tmp_path, r"e[mn]d$")) == [("a", 1, "an end")]
    assert len(compiled) == 1
    plant(tmp_path, {"a": b"an end\r\n"})
    assert lines(grepped(tmp_path, r"e[mn]d$")) == [("a", 1, "an end")]
    assert len(compiled) == 2


def test_cached_patterns_are_bounded_by_their_memory_and_the_last_used_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = patterns.PatternCache(max_bytes=5 * 2 * patterns.memory_for(100))
    monkeypatch.setattr(patterns, "pattern_cache", cache)
    for number in range(50):
        patterns.line_pattern("first", fold=False)
        patterns.line_pattern(f"other {number}", fold=True)
    assert cache.bytes <= cache.max_bytes
    assert len(cache) >= 5
    assert ("line", "first", False) in cache
    assert ("line", "other 0", True) not in cache


def test_a_pattern_larger_than_the_cache_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "pattern_cache", patterns.PatternCache(max_bytes=1000))
    plant(tmp_path, {"a": b"needle\n"})
    assert len(lines(grepped(tmp_path, "ne+dle"))) == 1
    assert paths(globbed(tmp_path, regex="^a$")) == ["a"]


def test_compiling_the_most_expensive_pattern_is_short() -> None:
    # Relative to the work of a plain loop, so that a busy machine is slow at both.
    begun = time.thread_time()
    sum(range(3_000_000))
    unit = time.thread_time() - begun
    begun = time.thread_time()
    patterns.line_pattern(r"\pL{24}x", fold=False)
    assert time.thread_time() - begun < 10 * unit


def _count_compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Patterns as they are compiled to be searched with; classes that are only measured do not count."""
    compiled: list[str] = []

    def counted(pattern: str, **options: Any) -> byte_scan.Find:
        compiled.append(pattern)
        return regex.finder(pattern, **options)

    monkeypatch.setattr(patterns, "finder", counted)
    monkeypatch.setattr(patterns, "pattern_cache", patterns.PatternCache(patterns.CACHE_BYTES))
    return compiled


@pytest.mark.parametrize("piece", ["[", "[a", "\\p{", "\\P{a", "(?P<", "(?<a"])
def test_nothing_is_read_behind_what_is_never_closed(piece: str) -> None:
    # Each piece would be looked for to the end of the pattern, which takes seconds for the longest one.
    pattern = "a" + piece * (9_000 // len(piece))
    assert parse(pattern, fold=False) is None
    assert buffer_pattern(pattern, None, strip_cr=True) is None
    with pytest.raises(InvalidPattern):
        patterns.line_pattern(pattern, fold=False)


@pytest.mark.parametrize("piece", ["?", "*", "+", "a{2}{3}", "??"])
def test_repetitions_of_repetitions_are_refused_however_many_there_are(piece: str) -> None:
    with pytest.raises(InvalidPattern):
        patterns.line_pattern("a" + piece * (9_000 // len(piece)), fold=False)


@pytest.mark.parametrize(
    "pattern", ["(?:a*)*", "[]a]", "[^]a]", "[[:alpha:][]", r"[\]]", r"\p{L}", "(?P<n>a)", "(?<n>a)b??"]
)
def test_what_is_closed_is_read(pattern: str) -> None:
    assert parse(pattern, fold=False) is not None
    patterns.line_pattern(pattern, fold=False)
