"""Grep finds exactly the lines it should, whatever is in the files and however they are read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from armarium.capabilities.sandbox.reads import byte_scan
from armarium.capabilities.sandbox.search import lines as lines_module
from armarium.capabilities.sandbox.search import needles as needles_module
from armarium.capabilities.sandbox.search.grep import MAX_SHOWN_BYTES, Query, grep
from armarium.capabilities.sandbox.search.literals import requirements
from armarium.capabilities.sandbox.search.syntax import parse
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.errors import InvalidPattern
from support.file_search import bounds, grepped, lines, plant

MANY = 1_000_000


@dataclass(frozen=True)
class Pattern:
    """The same pattern as RE2 and, for the reference, as Python reads it in bytes."""

    re2: str
    python: bytes

    def __add__(self, other: Pattern) -> Pattern:
        return Pattern(self.re2 + other.re2, self.python + other.python)

    def wrapped(self, before: str, after: str) -> Pattern:
        return Pattern(before + self.re2 + after, before.encode() + self.python + after.encode())


ANY = rb"(?:[\x00-\x09\x0b-\x7f]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"
NOT_A = rb"(?:[\x00-\x09\x0b-\x60\x62-\x7f]|[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3})"


def _folded(char: str) -> Pattern:
    odd = {"s": b"|\xc5\xbf", "k": b"|\xe2\x84\xaa"}.get(char.lower(), b"")
    return Pattern(f"(?i:{char})", b"(?:[%s%s]%s)" % (char.lower().encode(), char.upper().encode(), odd))


ATOMS = st.one_of(
    st.sampled_from("abcsk Bé-").map(lambda char: Pattern(char, re.escape(char.encode()))),
    st.sampled_from(["ab", "task", "ba b", "éa", "aaa"]).map(lambda text: Pattern(text, re.escape(text.encode()))),
    st.sampled_from("abskS").map(_folded),
    st.sampled_from(
        [
            Pattern(".", ANY),
            Pattern("[^a]", NOT_A),
            Pattern("[ab]", b"[ab]"),
            Pattern("[a-c]", b"[a-c]"),
            Pattern(r"\w", rb"\w"),
            Pattern(r"\s", rb"[\t\n\f\r ]"),
            Pattern(r"\d", rb"[0-9]"),
            Pattern(r"\x61", b"a"),
            Pattern(r"\Qa-\E", b"a-"),
            Pattern(r"\r", b"\r"),
            Pattern(r"\n", rb"(?!)"),
        ]
    ),
)
PLACES = st.sampled_from(
    [
        Pattern("^", rb"\A"),
        Pattern("$", rb"\Z"),
        Pattern(r"\A", rb"\A"),
        Pattern(r"\z", rb"\Z"),
        Pattern(r"\b", rb"\b"),
        Pattern(r"\B", rb"(?!\b)"),
        Pattern("(?m)", b""),
        Pattern("(?-m)", b""),
    ]
)


def _joined(parts: list[Pattern]) -> Pattern:
    whole = Pattern("", b"")
    for part in parts:
        whole += part
    return whole


def _choice(branches: list[Pattern]) -> Pattern:
    return Pattern("(" + "|".join(b.re2 for b in branches) + ")", b"(?:" + b"|".join(b.python for b in branches) + b")")


def _repeated(part: Pattern, how: str) -> Pattern:
    return part.wrapped("(?:", ")").wrapped("", how)


PATTERNS = st.recursive(
    st.lists(st.one_of(ATOMS, ATOMS, PLACES), min_size=1, max_size=4).map(_joined),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(_choice),
        st.tuples(inner, st.sampled_from(["?", "*", "+", "{2}", "{1,2}", "{0,1}"])).map(lambda p: _repeated(*p)),
        st.lists(inner, min_size=1, max_size=3).map(_joined),
    ),
    max_leaves=5,
)
PIECES = [
    b"a", b"b", b"c", b"B", b"s", b"S", b"k", b"task", b"TASK", b"aaa", b" ", b"-", b"7", b"\r", b"\t",
    b"\xe9", b"\xff", "é".encode(), "\u017f".encode(), "\u212a".encode(),
]  # fmt: skip
LINES = st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join)
CONTENTS = st.one_of(
    st.tuples(
        st.lists(LINES, max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.sampled_from([b"", b"\n", b"\r\n", b"\n\n"])
    ).map(lambda parts: parts[1].join(parts[0]) + parts[2]),
    st.just(b"a\0b\n"),
    st.just(b""),
)
TREES = st.dictionaries(st.sampled_from(["a", "a.x", "b/c", "b/a/a", "b-", "z"]), CONTENTS, min_size=1, max_size=5)


@dataclass(frozen=True)
class Expected:
    """What a plain reading of the rules finds."""

    files: dict[str, bytes]
    pattern: bytes
    context: int = 0

    def hits(self) -> list[tuple[str, int, str, tuple[str, ...], tuple[str, ...]]]:
        found = []
        for path, content in sorted(self.files.items()):
            if b"\0" in content[:8192]:
                continue
            shown = [self._line(line) for line in content.removesuffix(b"\n").split(b"\n")] if content else []
            for index, line in enumerate(shown):
                if re.search(self.pattern, line):
                    before = shown[max(0, index - self.context) : index]
                    after = shown[index + 1 : index + 1 + self.context]
                    found.append((path, index + 1, *self._decoded([line]), self._decoded(before), self._decoded(after)))
        return found

    @staticmethod
    def _line(line: bytes) -> bytes:
        return line.removesuffix(b"\r")

    @staticmethod
    def _decoded(shown: list[bytes]) -> tuple[str, ...]:
        return tuple(line.decode("utf-8", "replace") for line in shown)


CHEAP, DEAR = 0.0, 1e12


@contextmanager
def priced(way: str) -> Iterator[None]:
    """Makes one way of searching look like the cheapest, so that it is taken."""
    with pytest.MonkeyPatch.context() as patch:
        if way == "never literals":
            patch.setattr(lines_module, "_REGEX_NS_PER_BYTE", -1.0)
        elif way != "as measured":
            patch.setattr(lines_module, "_REGEX_NS_PER_BYTE", DEAR * 1000)
            patch.setattr(byte_scan, "_SMALL_BYTES", 4)
            stop = CHEAP if way == "rare bytes" else DEAR
            patch.setattr(needles_module, "_STOP_AT_BYTE", stop)
            patch.setattr(needles_module, "_STOP_AT_BYTE_FOLDED", stop)
            patch.setattr(needles_module, "CANDIDATE_NS", CHEAP)
        yield


WAYS = ["as measured", "never literals", "rare bytes", "vectors"]


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=250, deadline=None)
@given(TREES, PATTERNS, st.booleans(), st.integers(0, 3), st.sampled_from([17, 40, 100, 4096]))
@example({"a": b"ab\r\n"}, Pattern("b$", rb"b\Z"), False, 0, 4096)
@example({"a": b"\r\n"}, Pattern("^$", rb"\A\Z"), False, 0, 4096)
@example({"a": b"\r\n\r"}, Pattern(r"$\B^", rb"\Z(?!\b)\A"), False, 0, 4096)
@example({"a": b"ab\r\n"}, Pattern(r"$\b", rb"\Z\b"), False, 0, 4096)
@example({"a": b"a\r\n", "b": b"\n"}, Pattern(r"a\r", rb"a\r"), False, 0, 4096)
def test_any_pattern_finds_the_lines_that_a_plain_reading_finds(
    way: str, files: dict[str, bytes], pattern: Pattern, fold: bool, context: int, buffer_bytes: int
) -> None:
    files = {path: content for path, content in files.items() if not any(o.startswith(f"{path}/") for o in files)}
    python = pattern.python
    if fold:
        # The reference reads bytes: no letters with a third case, and no class that says which letters it is not.
        fold = not re.search(r"[skSKé]|\[\^|\\w", pattern.re2)
        python = b"(?i)" + python if fold else python
    expected = Expected(files, python, context).hits()
    with tempfile.TemporaryDirectory() as base:
        plant(Path(base), files)
        query = Query(
            pattern.re2,
            case_insensitive=fold,
            context_lines=context,
            max_results=MANY,
            buffer_bytes=buffer_bytes,
        )
        with priced(way):
            result = grepped(Path(base), query)
    assert [tuple(hit[:5]) for hit in result.matches] == expected, pattern.re2
    assert result.files_searched == sum(bool(c) and b"\0" not in c for c in files.values())
    assert not result.truncated
    assert not result.timed_out


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.lists(LINES, max_size=10))
def test_every_matching_line_holds_the_literals_said_to_be_required(pattern: Pattern, candidates: list[bytes]) -> None:
    required = requirements(parse(pattern.re2, fold=False))
    for line in candidates:
        line = line.rstrip(b"\r\n")
        holds = [any(_holds(line, text, fold) for text, fold, _ in clause) for clause in required.clauses]
        matches = re.search(pattern.python, line) is not None
        assert not matches or all(holds), (pattern.re2, line, required)
        assert not required.exact or matches == holds[0], (pattern.re2, line, required)


def _holds(line: bytes, text: str, fold: bool) -> bool:
    if fold:
        line = line.replace("\u017f".encode(), b"s").replace("\u212a".encode(), b"k").lower()
    return text.encode() in line


@pytest.mark.parametrize(
    ("pattern", "clauses", "exact"),
    [
        ("needle", [["needle"]], True),
        ("TODO|FIXME", [["TODO", "FIXME"]], True),
        (r"\w+Panic\(", [["Panic("]], False),
        ("https?://x", [["http://x", "https://x"]], True),
        ("gr[ae]y", [["gray", "grey"]], True),
        ("ab+c", [["ab"], ["bc"]], False),
        (r"\bclass \w+Error\b", [["class "], ["Error"]], False),
        (r"(foo|bar\d)baz", [["foo", "bar"], ["baz"]], False),
        ("^import", [["import"]], False),
        ("(?i:foo)BAR", [["foobar"]], False),
        ("x{3}", [["xxx"]], True),
        ("a|b*", [], False),
        ("[a-z]+", [], False),
        ("(" * 200 + "a" + ")" * 200, [], False),
        ("a" * 20_000, [], False),
    ],
)
def test_required_literals_are_found_in_patterns(pattern: str, clauses: list[list[str]], exact: bool) -> None:
    required = requirements(parse(pattern, fold=False))
    assert [[literal.text for literal in clause] for clause in required.clauses] == clauses
    assert required.exact is exact


SOURCE = {
    "src/app.py": b"import os\n\ndef handler(event):\n    # TODO: handle Error\n    raise SystemError('x')\n",
    "src/crlf.txt": b"first TODO\r\nsecond\r\n\r\nlast TODO\r\n",
    "src/unterminated.txt": b"one\ntwo TODO",
    "src/empty.txt": b"",
    "src/blank.txt": b"\n\n\n",
    "src/latin1.txt": b"caf\xe9 TODO \xff\n",
    "src/utf8.txt": "naïve TODO – 日本語\n".encode(),
    "src/binary.bin": b"TODO\n\0\n",
    "src/many.txt": b"".join(b"line %d error\n" % number for number in range(500)),
    "docs/deep/er/notes.md": b"TODO fixme Fixme FIXME\n  indented\n\ttab\n",
}
PEER_PATTERNS = [
    "TODO", "todo", "TODO|FIXME", "fixme", "^import", "TODO$", "^$", r"\bline 4\d\b", "[0-9]{3}", r"^\s+\S", "é",
    "日本", r"error$", "x*", ".", r"(?i)system\w+", r"\(.*\)", "ne [0-9]*7", r"^[^#]*$", "i.*e",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("pattern", PEER_PATTERNS)
def test_hits_are_those_of_ripgrep(tmp_path: Path, pattern: str, fold: bool) -> None:
    plant(tmp_path, SOURCE)
    command = ["rg", "-uu", "-n", "--no-heading", "--null", "--crlf", *(["-i"] if fold else []), "-e", pattern, "."]
    output = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).stdout
    expected = []
    for row in output.splitlines(keepends=True):
        file, rest = row.split(b"\0")
        number, line = rest.split(b":", 1)
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace")
        expected.append((file.decode().removeprefix("./"), int(number), text))
    query = Query(pattern, case_insensitive=fold, max_results=MANY)
    assert lines(grepped(tmp_path, query)) == sorted(expected)


def test_context_stops_at_the_ends_of_the_file(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"other\n", "b": b"1\n2 hit\n3\n4 hit", "c": b"other\n"})
    hits = grepped(tmp_path, Query("hit", context_lines=2)).matches
    assert [(hit.context_before, hit.context_after) for hit in hits] == [
        (("1",), ("3", "4 hit")),
        (("2 hit", "3"), ()),
    ]


def test_a_carriage_return_is_neither_shown_nor_matched_at_the_end_of_a_line(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"one\r\ntwo\rmiddle\r\n"})
    assert lines(grepped(tmp_path, "one$")) == [("a", 1, "one")]
    assert lines(grepped(tmp_path, r"\r")) == [("a", 2, "two\rmiddle")]
    assert lines(grepped(tmp_path, r"\s$")) == []


@pytest.mark.parametrize(("position", "searched"), [(0, False), (8191, False), (8192, True)])
def test_a_file_is_binary_if_a_nul_is_in_its_first_8_kilobytes(tmp_path: Path, position: int, searched: bool) -> None:
    content = bytearray(b"needle\n" * 2000)
    content[position] = 0
    plant(tmp_path, {"a": bytes(content)})
    for buffer_bytes in (9000, 512 * 1024):
        result = grepped(tmp_path, Query("needle", buffer_bytes=buffer_bytes))
        assert bool(result.matches) is searched
        assert result.files_searched == int(searched)


def test_results_are_the_first_in_path_order_and_truncated_only_when_there_are_more(tmp_path: Path) -> None:
    plant(tmp_path, {f"f{i:02}": b"match\nno\nmatch\n" for i in range(30)})
    first = grepped(tmp_path, Query("match", max_results=5))
    assert [(file, number) for file, number, _ in lines(first)] == [
        ("f00", 1), ("f00", 3), ("f01", 1), ("f01", 3), ("f02", 1),
    ]  # fmt: skip
    assert first.truncated
    everything = grepped(tmp_path, Query("match", max_results=60))
    assert (len(everything.matches), everything.truncated) == (60, False)


def test_only_files_that_pass_the_filter_are_searched(tmp_path: Path) -> None:
    plant(tmp_path, {"a.go": b"x\n", "a.py": b"x\n", "d/b.go": b"x\n", "d/e/c.go": b"x\n"})

    def files(glob_filter: str) -> list[str]:
        return [file for file, _, _ in lines(grepped(tmp_path, Query("x", glob_filter=glob_filter)))]

    assert files("*.go") == ["a.go", "d/b.go", "d/e/c.go"]
    assert files("d/*.go") == ["d/b.go"]
    assert files("{a,b}.{go,py}") == ["a.go", "a.py", "d/b.go"]
    assert files("*.rs") == []


def test_a_very_long_line_is_shown_in_part_around_the_match(tmp_path: Path) -> None:
    plant(tmp_path, {"min.js": b"x" * 100_000 + "é NEEDLE é".encode() + b"y" * 100_000 + b"\nshort NEEDLE\n"})
    long, short = grepped(tmp_path, Query("NEEDLE", context_lines=1)).matches
    assert long.line_truncated
    assert "xé NEEDLE éy" in long.line_content
    assert len(long.line_content.encode()) <= MAX_SHOWN_BYTES
    assert (short.line_content, short.line_truncated) == ("short NEEDLE", False)
    assert len(short.context_before[0]) <= MAX_SHOWN_BYTES


def test_a_line_longer_than_memory_allows_is_one_result_with_the_right_number(tmp_path: Path) -> None:
    long_line = (b"x" * 90 + b"needle") * 50
    plant(tmp_path, {"a": b"first\n" + long_line + b"\nneedle\n" + long_line})
    result = grepped(tmp_path, Query("needle", max_results=MANY, buffer_bytes=64, max_line_bytes=256))
    assert [hit.line_number for hit in result.matches] == [2, 3, 4]


def test_a_large_file_is_searched_in_little_memory(tmp_path: Path) -> None:
    block = b"".join(b"line of text number %d\n" % number for number in range(10_000))
    with open(tmp_path / "large", "wb") as large:
        for _ in range(100):
            large.write(block)
        large.write(b"the needle\n")
    tracemalloc.start()
    try:
        result = grepped(tmp_path, Query("needle", context_lines=2))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (hit,) = result.matches
    assert (hit.line_number, hit.line_content) == (1_000_001, "the needle")
    assert hit.context_before == ("line of text number 9998", "line of text number 9999")
    assert (tmp_path / "large").stat().st_size > 20_000_000
    assert peak < 4_000_000


def test_line_numbers_go_on_across_the_pieces_of_a_file(tmp_path: Path) -> None:
    content = b"".join(b"needle %d\n" % n if n % 97 == 0 else b"%d\n" % n for n in range(1, 20_000))
    plant(tmp_path, {"a": content})
    result = grepped(tmp_path, Query(r"needle \d", max_results=MANY, context_lines=1, buffer_bytes=1000))
    assert all(hit.line_content == f"needle {hit.line_number}" for hit in result.matches)
    assert all(hit.context_after == (str(hit.line_number + 1),) for hit in result.matches)
    assert len(result.matches) == 19_999 // 97
    assert all(second.line_number - first.line_number == 97 for first, second in pairwise(result.matches))


def test_one_file_can_be_searched_by_itself(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"x\nneedle\n", "b": b"needle\n" * 100})
    for name, numbers, buffer_bytes in (("a", [2], 4096), ("b", list(range(1, 101)), 64)):
        fd = os.open(tmp_path / name, os.O_RDONLY)
        try:
            query = Query("needle", buffer_bytes=buffer_bytes, glob_filter="*.none")
            result = grep(fd, f"dir/{name}", query, bounds=bounds(), cancellation=Cancellation())
        finally:
            os.close(fd)
        assert [(hit.file, hit.line_number) for hit in result.matches] == [(f"dir/{name}", n) for n in numbers]
        assert result.files_searched == 1


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("[invalid", "missing closing ] at position 0"),
        ("é[z", "missing closing ] at position 1"),
        ("a(b(c)", "missing closing ) at position 1"),
        ("a(b))c", "unmatched ) at position 4"),
        (r"[)](\)", r"missing closing ) at position 3"),
        ("ab**", "bad repetition operator ** at position 2"),
        ("a*|*", "no argument for repetition operator * at position 3"),
        ("x(?=y)", "invalid perl operator (?= at position 1"),
        ("a[z-a]", "invalid character class range z-a at position 2"),
        (r"\p{Nothing}", r"invalid character class range at position 0"),
        ("a{1001}", "invalid repetition size {1001} at position 1"),
        ("ab\\", "trailing \\ at position 2"),
        ("a\ud800", "not valid Unicode at position 1"),
    ],
)
def test_an_invalid_pattern_is_refused_with_the_reason_and_the_position(
    tmp_path: Path, pattern: str, message: str
) -> None:
    with pytest.raises(InvalidPattern) as caught:
        grepped(tmp_path, pattern)
    shown = pattern.encode("utf-8", "backslashreplace").decode()
    assert caught.value.message == f'invalid pattern: invalid regex "{shown}": {message}'


def test_a_hostile_pattern_takes_linear_time(tmp_path: Path) -> None:
    plant(tmp_path, {"a": b"a" * 200_000 + b"\n"})
    assert lines(grepped(tmp_path, "(a*)*b")) == []
    assert lines(grepped(tmp_path, "(a|a)*$x")) == []


def test_letters_with_a_third_case_are_found(tmp_path: Path) -> None:
    plant(tmp_path, {"a": "ta\u017f\u212a\ntask\nTASK\n".encode(), "b": b"tAsk\n"})
    query = Query("task", case_insensitive=True)
    assert [hit.line_content for hit in grepped(tmp_path, query).matches] == ["ta\u017f\u212a", "task", "TASK", "tAsk"]


def test_literals_that_mislead_are_given_up(tmp_path: Path) -> None:
    rare = b"nothing of interest here\n" * 3000
    misleading = b"needle in vain\n" * 20_000 + b"needle7\n"
    plant(tmp_path, {"a": rare, "b": misleading, "c": misleading})
    query = Query(r"needle\d", max_results=MANY, buffer_bytes=100_000)
    assert [(file, number) for file, number, _ in lines(grepped(tmp_path, query))] == [("b", 20_001), ("c", 20_001)]


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000), st.integers(0, 9000), st.integers(0, 9000))
def test_newlines_are_counted_and_letters_folded_right_in_any_stretch(content: bytes, start: int, stop: int) -> None:
    buffer = bytearray(content.replace(b"\xff", b"\n") * 3)
    start, stop = sorted((min(start, len(buffer)), min(stop, len(buffer))))
    for count in (byte_scan.count_newlines, byte_scan.count_marks):
        assert count(buffer, start, stop) == bytes(buffer[start:stop]).count(b"\n")
    copy = bytearray(b"?" * len(buffer))
    byte_scan.lower_copy(buffer, start, stop, copy)
    assert copy == b"?" * start + bytes(buffer[start:stop]).lower() + b"?" * (len(buffer) - stop)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"b", b"ab" * 600, b"\0"]), max_size=8).map(b"".join), st.data())
def test_text_is_found_at_its_first_place_in_any_stretch(content: bytes, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([b"ab", b"ba", b"aa", b"a\0", b"bb", b"abababab", b"ab" * 600]))
    start = data.draw(st.integers(0, len(content)))
    stop = data.draw(st.integers(start, len(content)))
    find = byte_scan.text_finder(text)
    assert find(bytearray(content), start, stop) == content.find(text, start, stop)
    assert find(content, start, stop) == content.find(text, start, stop)
