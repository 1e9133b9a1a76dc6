"""Globs and path regexes select the right paths, and the walk reads no other directories."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.errors import InvalidPattern
from armarium.foundation.files.glob_patterns import filter_selection, glob_selection
from armarium.foundation.files.walk import Selection
from support.file_search import CountingCancellation, bounds, globbed, paths, plant


@dataclass
class Entry:
    """As much of an entry as a pattern looks at."""

    name: str
    directory: bool = False

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        assert not follow_symlinks
        return self.directory


def selects(selection: Selection, path: str) -> bool:
    """Whether a walk with this selection comes to the path and chooses it; "x/" is a directory."""
    is_directory = path.endswith("/")
    *above, name = path.rstrip("/").split("/")
    here: Selection | None = selection
    for directory in above:
        here = here.enter(directory)
        if here is None:
            return False
    return bool(here.choose([Entry(name, is_directory)], ""))  # type: ignore[list-item]


TABLE = [
    ("*.go", "a.go b.go .go", "a.txt x/a.go a.gox"),
    ("**/*.go", "a.go x/a.go x/y/z/a.go", "a.txt x/a.txt"),
    ("src/**/*.go", "src/a.go src/x/a.go src/x/y/a.go", "a.go x/src/a.go"),
    ("src/**", "src/ src/a src/a/b", "srcx x/src"),
    ("**", "a a/b a/b/c", ""),
    ("**/test", "test a/test a/b/test", "test/a atest"),
    ("**/a/**/b/**", "a/b x/a/b x/a/y/z/b a/b/c/d", "a b b/a"),
    ("a/**/**/b", "a/b a/x/b a/x/y/b", "ab"),
    ("a/*/c", "a/b/c a/x/c", "a/c a/b/b/c"),
    ("a**b", "ab axxb", "a/b"),
    ("**.go", "a.go", "x/a.go"),
    ("?", "a é", "ab a/b"),
    ("a?c", "abc a.c", "ac a/c abbc"),
    ("[abc]", "a b c", "d ab"),
    ("[a-c]x", "ax bx cx", "dx -x"),
    ("[!a-c]x", "dx éx", "ax bx"),
    ("[^a]", "b", "a"),
    ("[a-]", "a -", "b"),
    ("[]", None, None),
    ("[\\]a]", "] a", "b"),
    ("[.]x", ".x", "ax"),
    ("[a/b]", "a b", "a/b"),
    ("{a,b}", "a b", "c ab"),
    ("*.{ts,tsx}", "x.ts x.tsx", "x.t x.tsxx"),
    ("{a,b{c,d}}/x", "a/x bc/x bd/x", "b/x"),
    ("{a/**,b}/c", "a/c a/x/y/c b/c", "b/x/c"),
    ("a{,x}", "a ax", "b"),
    ("a{}", "a", "b"),
    ("{a}", "a", "{a}"),
    ("a,b", "a,b", "a b"),
    ("{[,],x}", ", x", "["),
    ("\\*", "*", "a"),
    ("\\{a,b\\}", "{a,b}", "a"),
    ("a\\b", "ab", "a\\b"),
    ("\\[a]", "[a]", "a"),
    ("/a", "a", "x/a"),
    ("./a/./b", "a/b", "b"),
    ("a/", "a/", "a"),
    ("**/", "a/ a/b/", "a a/b"),
    ("a//b", "a/b", "ab"),
    ("", "", "a"),
    ("*a*b*c", "abc xaxbxc aabbcc", "acb abcx"),
    ("a.b", "a.b", "axb"),
    ("(a|b)+$", "(a|b)+$", "a"),
    ("*", "with\nnewline", "a/b"),
    ("É*", "Éa", "éa"),
]


@pytest.mark.parametrize(("pattern", "chosen", "refused"), TABLE)
def test_a_glob_selects_by_doublestar_rules(pattern: str, chosen: str | None, refused: str | None) -> None:
    if chosen is None or refused is None:
        with pytest.raises(InvalidPattern):
            glob_selection(pattern)
        return
    selection = glob_selection(pattern)
    assert [path for path in _split(chosen) if not selects(selection, path)] == []
    assert [path for path in _split(refused) if selects(selection, path)] == []


def _split(text: str) -> list[str]:
    return [piece for piece in text.split(" ") if piece]


@pytest.mark.parametrize(
    ("pattern", "chosen", "refused"),
    [
        ("*.go", "a.go x/a.go x/y/a.go", "a.txt"),
        ("Makefile", "Makefile x/Makefile", "Makefile.am"),
        ("*.{py,pyi}", "a.py x/y.pyi", "a.pyx"),
        ("src/*.go", "src/a.go", "a.go x/src/a.go src/x/a.go"),
        ("/*.go", "a.go", "x/a.go"),
        ("**/x/*.go", "x/a.go a/x/b.go", "a.go"),
    ],
)
def test_a_filter_speaks_about_names_unless_it_has_a_slash(pattern: str, chosen: str, refused: str) -> None:
    selection = filter_selection(pattern)
    assert [path for path in _split(chosen) if not selects(selection, path)] == []
    assert [path for path in _split(refused) if selects(selection, path)] == []


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("a[bc", 1),
        ("[", 0),
        ("x[!", 1),
        ("[]a]", 0),
        ("a[z-a]", 2),
        ("{a,b", 0),
        ("x{a,{b}", 1),
        ("a}b", 1),
        ("ab\\", 2),
        ("[a\\", 0),
        ("[a-", 0),
        ("{a,b}" * 20, 45),
        ("{" * 30 + "}" * 30, 20),
    ],
)
def test_an_invalid_glob_is_refused_with_its_position(pattern: str, position: int) -> None:
    for compile_pattern in (glob_selection, filter_selection):
        with pytest.raises(InvalidPattern) as caught:
            compile_pattern(pattern)
        assert caught.value.details["position"] == position
        assert caught.value.message.startswith("invalid pattern: ")
        assert caught.value.message.endswith(f" at position {position}")


@pytest.mark.parametrize("pattern", ["..", "../a", "a/../b", "{a,..}/b", "x" * 100_000])
def test_a_glob_that_leads_out_or_is_endless_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        glob_selection(pattern)


def test_a_hostile_glob_takes_no_time() -> None:
    selection = glob_selection("**/" + "*a" * 100 + "b")
    started = time.monotonic()
    for _ in range(20):
        assert not selects(selection, "x/" + "a" * 250)
    assert time.monotonic() - started < 2


def naive_match(pattern: str, path: str) -> bool:
    """The rules in the plainest words, at any cost."""
    return any(naive_names(single.split("/"), path.split("/")) for single in naive_braces(pattern))


def naive_braces(pattern: str) -> list[str]:
    opened = pattern.find("{")
    if opened < 0:
        return [pattern]
    depth, start, options = 0, opened + 1, []
    for at in range(opened, len(pattern)):
        if pattern[at] == "{":
            depth += 1
        elif pattern[at] == "}":
            depth -= 1
        if (pattern[at] == "," and depth == 1) or depth == 0:
            options.append(pattern[start:at])
            start = at + 1
        if depth == 0:
            break
    return [single for option in options for single in naive_braces(pattern[:opened] + option + pattern[start:])]


def naive_names(pattern: list[str], path: list[str]) -> bool:
    pattern = [name for name in pattern if name not in ("", ".")]
    if not pattern:
        return not path
    if pattern[0] == "**":
        return naive_names(pattern[1:], path) or (bool(path) and naive_names(pattern, path[1:]))
    return bool(path) and naive_name(pattern[0], path[0]) and naive_names(pattern[1:], path[1:])


def naive_name(pattern: str, name: str) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "*":
        return naive_name(pattern[1:], name) or (bool(name) and naive_name(pattern, name[1:]))
    if not name:
        return False
    if pattern[0] == "[":
        members, rest = pattern[1:].split("]", 1)
        negated = members[0] == "!"
        inside = name[0] in members[negated:]
        return inside != negated and naive_name(rest, name[1:])
    return pattern[0] in ("?", name[0]) and naive_name(pattern[1:], name[1:])


PIECES = st.sampled_from(["a", "b", "ab", "*", "?", "**", "/", "/**/", "[ab]", "[!a]", "."])
PATTERNS = st.recursive(
    st.lists(PIECES, min_size=1, max_size=5).map("".join),
    lambda inner: st.tuples(inner, st.lists(inner, min_size=1, max_size=3), inner).map(
        lambda parts: f"{parts[0]}{{{','.join(parts[1])}}}{parts[2]}"
    ),
    max_leaves=4,
)
PATHS = st.lists(st.text(alphabet="abc", min_size=1, max_size=3), min_size=1, max_size=4).map("/".join)


@settings(max_examples=300, deadline=None)
@given(PATTERNS, st.lists(PATHS, min_size=1, max_size=5))
def test_any_glob_selects_what_the_plain_rules_say(pattern: str, candidates: list[str]) -> None:
    if any(".." in single.split("/") for single in naive_braces(pattern)):
        with pytest.raises(InvalidPattern):
            glob_selection(pattern)
        return
    only_directories = [single for single in naive_braces(pattern) if single.endswith("/")]
    selection = glob_selection(pattern)
    for path in candidates:
        expected = naive_match(pattern, path)
        assert selects(selection, path + "/") == expected, (pattern, path)
        if not only_directories:
            assert selects(selection, path) == expected, (pattern, path)


def test_a_glob_finds_entries_with_their_type_size_and_time(tmp_path: Path) -> None:
    plant(tmp_path, {"src/a.go": b"12345", "src/pkg/b.go": b"1", "src/pkg/": b"", "c.txt": b""})
    os.symlink("a.go", tmp_path / "src/link.go")
    os.utime(tmp_path / "src/a.go", ns=(0, 1_234_567_890_123_456_789))
    found = globbed(tmp_path, "**/*.go").matches
    assert [(entry.path, entry.type) for entry in found] == [
        ("src/a.go", "file"),
        ("src/link.go", "symlink"),
        ("src/pkg/b.go", "file"),
    ]
    assert found[0].size == 5
    assert found[0].modified_ns == 1_234_567_890_123_456_789
    assert paths(globbed(tmp_path, "**/*.go", type_filter="symlink")) == ["src/link.go"]
    assert paths(globbed(tmp_path, "**", type_filter="directory")) == ["src", "src/pkg"]
    assert paths(globbed(tmp_path, "*.xyz")) == []


def test_results_are_truncated_only_when_there_are_more(tmp_path: Path) -> None:
    plant(tmp_path, {f"f{i}": b"" for i in range(5)} | {"zz/not": b""})
    exact = globbed(tmp_path, "f*", max_results=5)
    assert (len(exact.matches), exact.truncated) == (5, False)
    fewer = globbed(tmp_path, "f*", max_results=4)
    assert (paths(fewer), fewer.truncated) == (["f0", "f1", "f2", "f3"], True)


def test_directories_that_cannot_hold_a_match_are_not_read(tmp_path: Path) -> None:
    plant(
        tmp_path, {"src/a/x.py": b"", "src/b/y.py": b""} | {f"other/{i}/{j}": b"" for i in range(9) for j in range(9)}
    )

    def entries_read(pattern: str) -> int:
        cancellation = CountingCancellation()
        globbed(tmp_path, pattern, cancellation=cancellation)
        globbed(tmp_path, pattern, cancellation=cancellation)
        return cancellation.done

    assert entries_read("src/*/*.py") <= 2 + 2 + 2
    assert entries_read("*") <= 2
    assert entries_read("src/**/*.py") <= 2 + 2 + 2
    assert entries_read("**/*.py") > 80


@pytest.mark.parametrize(
    ("regex", "expected"),
    [
        (r"test_\d+\.go", ["a/test_2.go", "test_1.go"]),
        (r"^test_", ["test_1.go"]),
        (r"^a/", ["a/test_2.go", "a/x\ny"]),
        (r"go$", ["a/test_2.go", "test_1.go"]),
        (r"\Aa", ["a", "a/test_2.go", "a/x\ny"]),
        (r"(?i)MAIN", ["main.rs"]),
        (r"^main\.rs\z", ["main.rs"]),
        (r"x\sy", ["a/x\ny"]),
        (r"(?s)a.*y", ["a/x\ny"]),
        (r"^$", []),
        (r"caf.$", []),
        (r"caf", ["caf\udce9"]),
        (r"", ["a", "a/test_2.go", "a/x\ny", "caf\udce9", "main.rs", "test_1.go"]),
    ],
)
def test_a_regex_is_searched_for_in_the_relative_path(tmp_path: Path, regex: str, expected: list[str]) -> None:
    plant(tmp_path, {"test_1.go": b"", "a/test_2.go": b"", "main.rs": b"", "a/x\ny": b""})
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))).touch()
    assert paths(globbed(tmp_path, regex=regex)) == expected
    assert paths(globbed(tmp_path, regex=regex, prefix="p")) == [f"p/{path}" for path in expected]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(alphabet="ab.\n\r", min_size=1, max_size=4), unique=True, min_size=1, max_size=6),
    st.sampled_from(["a", "^a", "b$", "^$", "a.b", "^a*$", "[^a]", r"\s", r"\bb", r"\Aa|b\z", "a|", r"(?-m)^b", r"\C"]),
)
def test_any_list_of_names_is_searched_as_if_one_by_one(names: list[str], regex: str) -> None:
    from armarium.capabilities.sandbox.search.lines import PathSearch

    one_by_one = re.compile(
        regex.replace(r"\z", r"\Z").replace("$", r"\Z").replace(r"\C", "(?s:.)").replace("(?-m)", "")
    )
    expected = [index for index, name in enumerate(names) if one_by_one.search(name)]
    assert PathSearch(regex).matching(names) == expected


@pytest.mark.parametrize(
    ("regex", "position"), [("[unclosed", 0), ("a(b", 1), ("ab)", 2), ("a**", 1), ("x|*y", 2), ("a\\", 1)]
)
def test_an_invalid_regex_is_refused_with_its_position(tmp_path: Path, regex: str, position: int) -> None:
    with pytest.raises(InvalidPattern) as caught:
        globbed(tmp_path, regex=regex)
    assert caught.value.code == "INVALID_PATTERN"
    assert caught.value.message.startswith("invalid pattern: ")
    assert caught.value.message.endswith(f" at position {position}")


def test_exactly_one_of_pattern_and_regex_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="exactly one of pattern or regex"):
        globbed(tmp_path, "*.go", regex="x")
    with pytest.raises(InvalidArgument, match="exactly one of pattern or regex"):
        globbed(tmp_path)


def test_max_depth_bounds_a_pattern_that_goes_deeper(tmp_path: Path) -> None:
    plant(tmp_path, {"a/b/c": b"", "a/c": b"", "c": b""})
    assert paths(globbed(tmp_path, "**/c", limits=bounds(max_depth=2))) == ["a/c", "c"]
