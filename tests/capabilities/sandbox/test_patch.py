"""The patch applier: what it accepts, what it refuses and how, and that it agrees with git and GNU patch."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from armarium.capabilities.sandbox.errors import PatchFailed
from armarium.capabilities.sandbox.patch.diffs import unified_diff
from armarium.capabilities.sandbox.patch.patcher import apply_patch

FILE = b"--- a/f\n+++ b/f\n"
NEW_FILE = b"--- /dev/null\n+++ b/f\n"
GIT = b"diff --git a/f b/f\n"
NO_NEWLINE = b"\\ No newline at end of file\n"
ABC = b"a\nb\nc\n"
B_TO_CAPITAL = b"@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


def numbered(count: int) -> bytes:
    return b"".join(b"%d\n" % number for number in range(1, count + 1))


def case(name: str, *values: Any) -> Any:
    return pytest.param(*values, id=name)


def failure(original: bytes | None, patch: bytes) -> PatchFailed:
    with pytest.raises(PatchFailed) as caught:
        apply_patch(original, patch)
    return caught.value


def refusal(original: bytes | None, patch: bytes) -> PatchFailed | None:
    """Why the patch is refused, or None; any other exception passes through and fails the test."""
    try:
        apply_patch(original, patch)
    except PatchFailed as error:
        return error
    return None


APPLIED = [
    case("a plain diff", ABC, FILE + B_TO_CAPITAL, b"a\nB\nc\n"),
    case("hunks without any header", ABC, B_TO_CAPITAL, b"a\nB\nc\n"),
    case("a count of one may be left out", b"a\n", FILE + b"@@ -1 +1 @@\n-a\n+b\n", b"b\n"),
    case("text after the second @@ is a heading", ABC, B_TO_CAPITAL.replace(b"@@\n", b"@@ def f():\n"), b"a\nB\nc\n"),
    case(
        "a git header with index and timestamps",
        ABC,
        GIT
        + b"index 1234567..89abcde 100644\n--- a/f\t2024-01-01 00:00:00\n+++ b/f\t2024-01-02 00:00:00\n"
        + B_TO_CAPITAL,
        b"a\nB\nc\n",
    ),
    case("quoted names", ABC, b'--- "a/caf\\303\\251 \\"x\\""\n+++ "b/caf\\303\\251"\n' + B_TO_CAPITAL, b"a\nB\nc\n"),
    case("names that point elsewhere are not used", ABC, b"--- a/../../x\n+++ /etc/x\n" + B_TO_CAPITAL, b"a\nB\nc\n"),
    case("a git header without names", ABC, GIT + B_TO_CAPITAL, b"a\nB\nc\n"),
    case(
        "a mailed patch with its message and signature",
        ABC,
        b"From 1234 Mon Sep 17\nSubject: x\n\n- a list\n---\n f | 2 +-\n\n"
        + GIT
        + FILE
        + B_TO_CAPITAL
        + b"-- \n2.39.5\n\n",
        b"a\nB\nc\n",
    ),
    case("a plain diff after prose", ABC, b"- a list\n\n" + FILE + B_TO_CAPITAL, b"a\nB\nc\n"),
    case("hunks without any header after prose", ABC, b"Here it is:\n\n" + B_TO_CAPITAL, b"a\nB\nc\n"),
    case("a fenced patch", ABC, b"```diff\n" + FILE + B_TO_CAPITAL + b"```\n", b"a\nB\nc\n"),
    case("blank lines after the patch", ABC, FILE + B_TO_CAPITAL + b"\n\n \n", b"a\nB\nc\n"),
    case(
        "blank lines between hunks",
        numbered(9),
        b"@@ -1 +1 @@\n-1\n+X\n\n@@ -9 +9 @@\n-9\n+Y\n",
        b"X\n2\n3\n4\n5\n6\n7\n8\nY\n",
    ),
    case("a patch that lost its last newline", ABC, (FILE + B_TO_CAPITAL).rstrip(), b"a\nB\nc\n"),
    case(
        "an empty context line without its space", b"a\n\nc\n", FILE + b"@@ -1,3 +1,3 @@\n a\n\n-c\n+C\n", b"a\n\nC\n"
    ),
    case("a removed line that starts with two dashes", b"-- x\nb\n", FILE + b"@@ -1,2 +1 @@\n--- x\n b\n", b"b\n"),
    case("an added line that starts with two pluses", b"b\n", FILE + b"@@ -1 +1,2 @@\n+++ x\n b\n", b"++ x\nb\n"),
    case(
        "lines that look like a file header inside the body",
        b"-- x\nb\n",
        FILE + b"@@ -1,2 +1,2 @@\n--- x\n+++ y\n b\n",
        b"++ y\nb\n",
    ),
    case(
        "lines that look like a hunk header inside the body",
        b"@@ -1 +1 @@\n",
        b"@@ -1 +1 @@\n-@@ -1 +1 @@\n+x\n",
        b"x\n",
    ),
    case("a hunk that changes nothing", ABC, FILE + b"@@ -1,2 +1,2 @@\n a\n b\n", ABC),
    case("a hunk with no line at all", ABC, FILE + b"@@ -2,0 +2,0 @@\n", ABC),
    case("an insertion without context", ABC, FILE + b"@@ -2,0 +3 @@\n+X\n", b"a\nb\nX\nc\n"),
    case("an insertion at the top without context", ABC, FILE + b"@@ -0,0 +1 @@\n+X\n", b"X\na\nb\nc\n"),
    case("an insertion at the end without context", ABC, FILE + b"@@ -3,0 +4 @@\n+X\n", b"a\nb\nc\nX\n"),
    case("all lines removed", b"a\nb\n", FILE + b"@@ -1,2 +0,0 @@\n-a\n-b\n", b""),
    case("hunks that touch", numbered(4), b"@@ -1,2 +1 @@\n 1\n-2\n@@ -3,2 +2 @@\n-3\n 4\n", b"1\n4\n"),
    # The end of the file
    case(
        "no newline before and after",
        b"a\nb",
        FILE + b"@@ -1,2 +1,2 @@\n a\n-b\n" + NO_NEWLINE + b"+B\n" + NO_NEWLINE,
        b"a\nB",
    ),
    case("a newline added at the end", b"a\nb", b"@@ -1,2 +1,2 @@\n a\n-b\n" + NO_NEWLINE + b"+b\n", b"a\nb\n"),
    case("a newline removed at the end", b"a\nb\n", b"@@ -1,2 +1,2 @@\n a\n-b\n+b\n" + NO_NEWLINE, b"a\nb"),
    case("a last context line without newline", b"a\nb", b"@@ -1,2 +1,2 @@\n-a\n+A\n b\n" + NO_NEWLINE, b"A\nb"),
    case("a marker in another language", b"a", b"@@ -1 +1 @@\n-a\n\\ Kein Zeilenumbruch\n+b\n\\ Kein\n", b"b"),
    case("an insertion that ends the file", b"a\n", b"@@ -1,0 +2 @@\n+b\n" + NO_NEWLINE, b"a\nb"),
    case(
        "a last line without newline, replaced by a diff that lacks the marker",
        b"Hello World",
        b"@@ -1 +1 @@\n-Hello World\n+Hello Agent\n",
        b"Hello Agent\n",
    ),
    case(
        "the same diff on a file that has the newline",
        b"Hello World\n",
        b"@@ -1 +1 @@\n-Hello World\n+Hello Agent\n",
        b"Hello Agent\n",
    ),
    case(
        "a last context line without newline stays without when the marker is missing",
        b"a\nb",
        b"@@ -1,2 +1,2 @@\n-a\n+A\n b\n",
        b"A\nb",
    ),
    case("a line added after a last line without newline", b"a", b"@@ -1 +1,2 @@\n a\n+b\n", b"a\nb\n"),
    case("a last line without newline removed", b"a\nb", b"@@ -1,2 +1 @@\n a\n-b\n", b"a\n"),
    case("a line added without context after a last line without newline", b"a", b"@@ -1,0 +2 @@\n+b\n", b"a\nb\n"),
    # Line endings
    case("a CRLF diff of a CRLF file", b"a\r\nb\r\n", FILE + b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n", b"a\r\nB\r\n"),
    case(
        "an LF diff keeps a CRLF file's endings",
        b"a\r\nb\r\n",
        FILE + b"@@ -1,2 +1,3 @@\n+X\n a\n-b\n+B\n",
        b"X\r\na\r\nB\r\n",
    ),
    case("a CRLF diff keeps an LF file's endings", b"a\nb\n", FILE + b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n", b"a\nB\n"),
    case("a diff sent with CRLF throughout, LF file", ABC, (FILE + B_TO_CAPITAL).replace(b"\n", b"\r\n"), b"a\nB\nc\n"),
    case(
        "a diff sent with CRLF throughout, CRLF file",
        b"a\r\nb\r\nc\r\n",
        (FILE + B_TO_CAPITAL).replace(b"\n", b"\r\n"),
        b"a\r\nB\r\nc\r\n",
    ),
    case(
        "an insertion without context takes the file's CRLF", b"a\r\nb\r\n", b"@@ -1,0 +2 @@\n+X\n", b"a\r\nX\r\nb\r\n"
    ),
    case(
        "an LF diff replaces a CRLF file's last line, which has no newline",
        b"a\r\nb",
        b"@@ -1,2 +1,2 @@\n a\n-b\n+B\n",
        b"a\r\nB\r\n",
    ),
    case("a CRLF diff that lost its last newline", b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B", b"a\r\nB\r\n"),
    case(
        "a line added by an LF diff after a CRLF file's last line, which has no newline",
        b"a\r\nb",
        b"@@ -1,2 +1,3 @@\n a\n b\n+c\n",
        b"a\r\nb\r\nc\r\n",
    ),
    case(
        "in a mixed file an added line ends like the one before it",
        b"a\r\nb\nc\r\n",
        b"@@ -1,3 +1,5 @@\n a\n+X\n b\n+Y\n c\n",
        b"a\r\nX\r\nb\nY\nc\r\n",
    ),
    case("a CRLF insertion without context takes the file's LF", b"a\nb\n", b"@@ -1,0 +2 @@\n+X\r\n", b"a\nX\nb\n"),
    case(
        "a CRLF diff with a marker on an LF file",
        b"a\nb\nc",
        b"@@ -1,3 +1,2 @@\n a\r\n-b\r\n c\n" + NO_NEWLINE,
        b"a\nc",
    ),
    case("a diff that names both endings is literal", b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+b\n", b"a\r\nb\n"),
    case("a file converted from LF to CRLF", b"a\n", b"@@ -1 +1 @@\n-a\n+a\r\n", b"a\r\n"),
    case("a new CRLF file", None, NEW_FILE + b"@@ -0,0 +1 @@\n+a\r\n", b"a\r\n"),
    # Bytes
    case("bytes that are not UTF-8", b"a\xff\nb\n", b"@@ -1,2 +1,2 @@\n a\xff\n-b\n+\xfe\n", b"a\xff\n\xfe\n"),
    case(
        "form feeds and other line separators inside lines",
        b"a\x0cz\x0b\xe2\x80\xa8\nb\n",
        b"@@ -1,2 +1,2 @@\n a\x0cz\x0b\xe2\x80\xa8\n-b\n+B\n",
        b"a\x0cz\x0b\xe2\x80\xa8\nB\n",
    ),
    case("a lone CR inside a line", b"a\rz\nb\n", b"@@ -1,2 +1,2 @@\n a\rz\n-b\n+B\n", b"a\rz\nB\n"),
    case("NUL bytes", b"a\0\nb\n", b"@@ -1,2 +1,2 @@\n a\0\n-b\n+\0\n", b"a\0\n\0\n"),
    # Creation
    case("a new file", None, NEW_FILE + b"@@ -0,0 +1,2 @@\n+a\n+b\n", b"a\nb\n"),
    case(
        "a new file by git",
        None,
        GIT + b"new file mode 100755\nindex 0000000..1111111\n" + NEW_FILE + b"@@ -0,0 +1 @@\n+a\n",
        b"a\n",
    ),
    case("a new file without a final newline", None, NEW_FILE + b"@@ -0,0 +1 @@\n+a\n" + NO_NEWLINE, b"a"),
    case("a new file without /dev/null in the header", None, FILE + b"@@ -0,0 +1 @@\n+a\n", b"a\n"),
    case("a new file whose hunk counts from line one", None, FILE + b"@@ -1,0 +1 @@\n+a\n", b"a\n"),
    case("a creation over an empty file", b"", NEW_FILE + b"@@ -0,0 +1 @@\n+a\n", b"a\n"),
    # Offsets
    case("a hunk below its stated place", b"1\n2\n3\n" + ABC, FILE + B_TO_CAPITAL, b"1\n2\n3\na\nB\nc\n"),
    case("a hunk above its stated place", ABC, b"@@ -40,3 +40,3 @@\n a\n-b\n+B\n c\n", b"a\nB\nc\n"),
    case("a hunk that counts lines from zero", ABC, b"@@ -0,3 +0,3 @@\n a\n-b\n+B\n c\n", b"a\nB\nc\n"),
    case("repeated lines at the stated place", ABC * 3, b"@@ -4,3 +4,3 @@\n a\n-b\n+B\n c\n", ABC + b"a\nB\nc\n" + ABC),
    case(
        "repeated lines where the hunk before was moved as far",
        b"new\nonly\n" + b"x\n" * 6,
        b"@@ -1 +1 @@\n-only\n+ONLY\n@@ -3 +3 @@\n-x\n+X\n",
        b"new\nONLY\nx\nX\nx\nx\nx\nx\n",
    ),
    case(
        "repeated lines of which one is after the hunk before",
        b"x\na\nx\n",
        b"@@ -1,2 +1,2 @@\n x\n-a\n+A\n@@ -9 +9 @@\n-x\n+X\n",
        b"x\nA\nX\n",
    ),
    case("repeated lines of which one ends the file", b"x\nx", b"@@ -7 +7 @@\n-x\n" + NO_NEWLINE + b"+y\n", b"x\ny\n"),
]


@pytest.mark.parametrize(("original", "patch", "expected"), APPLIED)
def test_a_patch_is_applied_byte_for_byte(original: bytes | None, patch: bytes, expected: bytes) -> None:
    assert apply_patch(original, patch).content == expected


def test_an_answer_tells_hunks_creation_and_offsets() -> None:
    patched = apply_patch(
        b"new\n" + numbered(20), b"@@ -1 +1 @@\n-1\n+X\n@@ -20 +20 @@\n-20\n+Y\n@@ -20,0 +21 @@\n+Z\n"
    )
    assert (patched.hunks_applied, patched.created, patched.offsets) == (3, False, (1, 1, 1))
    assert apply_patch(None, b"@@ -0,0 +1 @@\n+a\n").created


# original, patch, hunk, line of the file, words the caller must see
HUNK_FAILURES = [
    case(
        "a context line differs",
        b"line A\nline B\nline C\n",
        b"@@ -1,3 +1,3 @@\n line A\n-line X\n+line Y\n line C\n",
        1,
        2,
        'expected "line X", found "line B"',
    ),
    case(
        "the second hunk differs",
        numbered(30),
        b"@@ -1 +1 @@\n-1\n+X\n@@ -20,2 +20,2 @@\n 20\n-nope\n+X\n",
        2,
        21,
        '"nope"',
    ),
    case("the file ends too early", ABC, b"@@ -3,2 +3,2 @@\n c\n-d\n+D\n", 1, 4, "end of the file"),
    case("the hunk starts after the end of the file", ABC, b"@@ -42 +42 @@\n-x\n+X\n", 1, 42, "end of the file"),
    case("an insertion after the end of the file", ABC, b"@@ -9,0 +10 @@\n+X\n", 1, 4, "the file has 3 lines"),
    case(
        "the marker is there but the file ends in a newline",
        b"a\n",
        b"@@ -1 +1 @@\n-a\n" + NO_NEWLINE + b"+b\n",
        1,
        1,
        "expected no newline",
    ),
    case(
        "the marker is there but the file goes on",
        ABC,
        b"@@ -1 +1 @@\n-a\n+b\n" + NO_NEWLINE,
        1,
        2,
        'expected the end of the file, found "b"',
    ),
    case(
        "an insertion that ends the file in its middle",
        ABC,
        b"@@ -1,0 +2 @@\n+x\n" + NO_NEWLINE,
        1,
        2,
        "the file goes on",
    ),
    case(
        "a literal diff and other line endings", b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\n+B\n", 1, 2, 'found "b\\r"'
    ),
    case(
        "an ambiguous offset",
        ABC * 3,
        b"@@ -2,3 +2,3 @@\n a\n-b\n+B\n c\n",
        1,
        2,
        "lines 1, 4, 7, so its place is ambiguous",
    ),
    case(
        "an ambiguous offset with many places",
        b"y\n" + b"x\n" * 9,
        b"@@ -1 +1 @@\n-x\n+X\n",
        1,
        1,
        "lines 2, 3, 4, 5, 6 and more",
    ),
    case(
        "an ambiguous offset, all places listed",
        b"y\n" + b"x\n" * 5,
        b"@@ -1 +1 @@\n-x\n+X\n",
        1,
        1,
        "lines 2, 3, 4, 5, 6, so",
    ),
    case(
        "the lines stand before the hunk before",
        b"x\nb\nc\n",
        b"@@ -2 +2 @@\n-b\n+B\n@@ -3 +3 @@\n-x\n+X\n",
        2,
        3,
        '"x"',
    ),
    case("a replacement that is already applied", b"a\nB\nc\n", FILE + B_TO_CAPITAL, 1, 1, "already applied"),
    case(
        "an insertion that is already applied", b"a\nX\nb\n", b"@@ -1,2 +1,3 @@\n a\n+X\n b\n", 1, 1, "already applied"
    ),
    case("a removal that is already applied", b"a\nc\n", b"@@ -1,3 +1,2 @@\n a\n-b\n c\n", 1, 1, "already applied"),
    case(
        "applied already, below its old place",
        b"new\n" + numbered(5) + b"X\n7\n",
        b"@@ -6,2 +7,2 @@\n-6\n+X\n 7\n",
        1,
        6,
        "already applied",
    ),
    case("already applied, without newline", b"b", b"@@ -1 +1 @@\n-a\n+b\n" + NO_NEWLINE, 1, 1, "already applied"),
    case(
        "already applied but for the newline",
        b"b\n",
        b"@@ -1 +1 @@\n-a\n+b\n" + NO_NEWLINE,
        1,
        1,
        'expected "a", found "b"',
    ),
    case(
        "a creation that is already applied",
        b"a\nb\n",
        NEW_FILE + b"@@ -0,0 +1,2 @@\n+a\n+b\n",
        1,
        1,
        "already applied",
    ),
    case("a removal whose line is another one", b"a\nb\n", b"@@ -1,2 +1 @@\n a\n-x\n", 1, 2, 'expected "x", found "b"'),
    case("a creation over content", b"old\n", NEW_FILE + b"@@ -0,0 +1 @@\n+a\n", 1, 1, "it exists and is not empty"),
    case(
        "a creation by git over content",
        b"old\n",
        GIT + b"new file mode 100644\n@@ -0,0 +1 @@\n+a\n",
        1,
        1,
        "not empty",
    ),
    case("lines expected of a file that does not exist", None, FILE + B_TO_CAPITAL, 1, 1, "the file does not exist"),
]


@pytest.mark.parametrize(("original", "patch", "hunk", "line", "words"), HUNK_FAILURES)
def test_a_hunk_that_does_not_match_is_named_with_its_line(
    original: bytes | None, patch: bytes, hunk: int, line: int, words: str
) -> None:
    error = failure(original, patch)
    assert error.message.startswith(f"patch failed: hunk {hunk} does not match at line {line}: ")
    assert words in error.message
    assert error.details == {"hunk": hunk, "line": line}
    assert error.code == "PATCH_FAILED"
    assert error.hint


# patch (against 30 numbered lines), hunk, line the header names, line of the patch, words in the message or the hint
MALFORMED_HUNKS = [
    case("counts too large", b"@@ -1,9 +1,9 @@\n 1\n-2\n+X\n 3\n", 1, 1, 1, "@@ -1,3 +1,3 @@"),
    case("counts too small", b"@@ -4,2 +4,2 @@\n 4\n-5\n+X\n 6\n", 1, 4, 1, "@@ -4,3 +4,3 @@"),
    case("too many removals", b"@@ -4,1 +4,2 @@\n-4\n-5\n+X\n+Y\n", 1, 4, 1, "@@ -4,2 +4,2 @@"),
    case("the second hunk's counts", b"@@ -1 +1 @@\n-1\n+X\n@@ -9,3 +9,2 @@\n-9\n+Y\n\n", 2, 9, 4, "@@ -9,1 +9,1 @@"),
    case(
        "counts too large before another hunk",
        b"@@ -1,5 +1,5 @@\n-1\n+X\n\n@@ -9 +9 @@\n-9\n+Y\n",
        1,
        1,
        1,
        "@@ -1,1 +1,1 @@",
    ),
    case("a cut-off hunk", b"@@ -1,3 +1,3 @@\n 1\n-2\n", 1, 1, 1, "its body has 2 and 1"),
    case("a hunk without body", b"@@ -1,3 +1,3 @@\n", 1, 1, 1, "its body has 0 and 0"),
    case("a hunk of blank lines", b"@@ -1,3 +1,3 @@\n\n", 1, 1, 1, "its body has 0 and 0"),
    case("a context line without its space", b"@@ -1,3 +1,3 @@\n 1\n-2\n+X\n3\n", 1, 1, 5, "starts with none of"),
    case("a line after the body that is none", b"@@ -1 +1 @@\n-1\n+X\nword\n", 1, 1, 4, '"word"'),
    case("a damaged header of the next hunk", b"@@ -1 +1 @@\n-1\n+X\nX@ -9 +9 @@\n-9\n+Y\n", 1, 1, 4, '"X@ -9 +9 @@"'),
    case("a fence before the end", b"@@ -1 +1 @@\n-1\n+X\n```\nmore\n", 1, 1, 4, '"```"'),
    case("two dashes that are no signature", b"@@ -1 +1 @@\n-1\n+X\n--\n", 1, 1, 1, "@@ -1,2 +1,1 @@"),
    case("a header without numbers", b"@@ ... @@\n-1\n+X\n", 1, None, 1, "malformed header"),
    case("a header without its end", b"@@ -1,3 +1,3\n-1\n+X\n", 1, None, 1, "malformed header"),
    case("a header of endless digits", b"@@ -" + b"9" * 5000 + b" +1 @@\n-1\n+X\n", 1, None, 1, "malformed header"),
    case("a malformed second header", b"@@ -1 +1 @@\n-1\n+X\n@@\n-9\n+Y\n", 2, None, 4, "malformed header"),
    case("a merge's combined diff", b"@@@ -1,2 -1,2 +1,2 @@@\n  1\n", 1, None, 1, "combined diff"),
    case(
        "overlapping hunks",
        b"@@ -1,3 +1,3 @@\n 1\n-2\n+X\n 3\n@@ -3,2 +3,2 @@\n 3\n-4\n+Y\n",
        2,
        3,
        6,
        "overlaps hunk 1",
    ),
    case(
        "an insertion inside the hunk before",
        b"@@ -1,3 +1,3 @@\n 1\n-2\n+X\n 3\n@@ -2,0 +3 @@\n+Y\n",
        2,
        2,
        6,
        "overlaps",
    ),
    case("hunks out of order", b"@@ -9 +9 @@\n-9\n+Y\n@@ -1 +1 @@\n-1\n+X\n", 2, 1, 4, "comes before hunk 1"),
    case(
        "a hunk after the end of the file",
        b"@@ -1 +1 @@\n-1\n+X\n" + NO_NEWLINE + b"@@ -9 +9 @@\n-9\n+Y\n",
        2,
        9,
        5,
        "ends the file",
    ),
    case("a marker before any line", b"@@ -1 +1 @@\n" + NO_NEWLINE + b"-1\n+X\n", 1, 1, 2, "marker follows no line"),
    case("a marker twice", b"@@ -1 +1 @@\n-1\n+X\n" + NO_NEWLINE * 2, 1, 1, 5, "marker follows no line"),
    case(
        "a marker before the last line",
        b"@@ -1,2 +1,2 @@\n-1\n" + NO_NEWLINE + b"-2\n+X\n+Y\n",
        1,
        1,
        4,
        "lines follow",
    ),
]


@pytest.mark.parametrize(("patch", "hunk", "line", "patch_line", "words"), MALFORMED_HUNKS)
def test_a_malformed_hunk_is_named_with_its_line_in_the_patch(
    patch: bytes, hunk: int, line: int | None, patch_line: int, words: str
) -> None:
    error = failure(numbered(30), patch)
    place = "" if line is None else f" at line {line}"
    assert error.message.startswith(f"patch failed: hunk {hunk}{place} (patch line {patch_line}): ")
    assert words in f"{error.message} {error.hint}"
    assert error.details == {"hunk": hunk, "line": line, "patch_line": patch_line}


# patch, line of the patch, words in the message, words in the hint
REFUSED_PATCHES = [
    case("an empty patch", b"", 1, "no hunk", "@@ -start"),
    case("prose", b"please change b to B\n", 1, "no hunk", "@@ -start"),
    case("a word", b"change", 1, "no hunk", "@@ -start"),
    case("a file header cut off", b"--- a/f\n", 1, "no hunk", "@@ -start"),
    case("headers without hunks", FILE, 1, "no hunk", "@@ -start"),
    case("a context diff", b"*** a/f\n--- b/f\n***************\n", 1, "no hunk", "@@ -start"),
    case("an empty file created by git", GIT + b"new file mode 100644\n", 1, "no hunk", "@@ -start"),
    case("a deletion", b"--- a/f\n+++ /dev/null\n@@ -1,3 +0,0 @@\n-a\n-b\n-c\n", 2, "deletes", "remove_file"),
    case("a deletion by git", GIT + b"deleted file mode 100644\n--- a/f\n+++ /dev/null\n", 2, "deletes", "remove_file"),
    case(
        "a rename", b"diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", 3, "renames", "use move"
    ),
    case(
        "a rename with content",
        b"diff --git a/f b/g\nrename from f\nrename to g\n" + FILE + B_TO_CAPITAL,
        2,
        "renames",
        "use move",
    ),
    case("a copy", b"diff --git a/f b/g\nsimilarity index 100%\ncopy from f\ncopy to g\n", 3, "copies", "use copy"),
    case("a change of mode", GIT + b"old mode 100644\nnew mode 100755\n", 2, "permissions", "leave out"),
    case(
        "a change of mode with content",
        GIT + b"old mode 100644\nnew mode 100755\n" + FILE + B_TO_CAPITAL,
        2,
        "permissions",
        "leave out",
    ),
    case(
        "a new symbolic link",
        GIT + b"new file mode 120000\n" + NEW_FILE + b"@@ -0,0 +1 @@\n+/x\n",
        2,
        "regular file",
        "regular files",
    ),
    case("a binary patch", GIT + b"index 1..2 100644\nGIT binary patch\nliteral 3\n", 3, "binary", "write_file"),
    case("binary files that differ, by git", GIT + b"Binary files a/f and b/f differ\n", 2, "binary", "write_file"),
    case("binary files that differ, by diff", b"Binary files f and g differ\n", 1, "binary", "write_file"),
    case(
        "two files",
        FILE + B_TO_CAPITAL + b"--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n",
        8,
        "more than one file",
        "each file",
    ),
    case(
        "two files by git", GIT + FILE + B_TO_CAPITAL + GIT + FILE + B_TO_CAPITAL, 9, "more than one file", "each file"
    ),
    case("two files by another tool", FILE + B_TO_CAPITAL + b"Index: g\n===\n", 8, "more than one file", "each file"),
    case("two file headers", FILE + FILE + B_TO_CAPITAL, 3, "more than one file", "each file"),
    case("two git headers", GIT + GIT + B_TO_CAPITAL, 2, "more than one file", "each file"),
    case(
        "a damaged first hunk header",
        FILE + b"X@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-c\n+C\n",
        3,
        "not part of a diff",
        "@@ -start",
    ),
    case(
        "a damaged first hunk header without file header",
        b"X@ -1 +1 @@\n-a\n+A\n@@ -3 +3 @@\n-c\n+C\n",
        2,
        "not part of a diff",
        "@@ -start",
    ),
    case("an unknown git header", GIT + b"whatever\n" + B_TO_CAPITAL, 2, "not part of a diff", "@@ -start"),
    case("half a file header", b"--- a/f\n" + B_TO_CAPITAL, 1, "not part of a diff", "@@ -start"),
]


@pytest.mark.parametrize(("patch", "patch_line", "words", "advice"), REFUSED_PATCHES)
def test_what_is_no_change_of_one_file_is_refused(patch: bytes, patch_line: int, words: str, advice: str) -> None:
    error = failure(ABC, patch)
    assert error.message.startswith("patch failed: ")
    assert error.message.endswith(f"(patch line {patch_line})")
    assert words in error.message
    assert advice in (error.hint or "")
    assert error.details == {"patch_line": patch_line}


def test_a_quoted_line_is_short_and_printable() -> None:
    error = failure(b"\xff\x1b[31m\t" + b"x" * 10_000 + b"\n", b"@@ -1 +1 @@\n-" + b"y" * 10_000 + b"\n+z\n")
    shown = "\ufffd\\x1b[31m\\t"
    cut = shown + "x" * (79 - len(shown))
    assert error.message.endswith(': expected "' + "y" * 79 + '…", found "' + cut + '…"')
    assert '"' + "y" * 80 + '"' in failure(b"x\n", b"@@ -1 +1 @@\n-" + b"y" * 80 + b"\n+z\n").message


def test_a_failure_does_not_quote_the_file_to_a_caller_who_may_not_read_it() -> None:
    secret = b"secret 1\nsecret 2\n"
    patches = [
        b"@@ -1 +1 @@\n-guess\n+x\n",
        b"@@ -1 +1 @@\n-secret 1\n+x\n" + NO_NEWLINE,
        NEW_FILE + b"@@ -0,0 +1 @@\n+x\n",
    ]
    for patch in patches:
        with pytest.raises(PatchFailed) as caught:
            apply_patch(secret, patch, reveal=False)
        assert "secret" not in caught.value.message


DIFFS = [
    case(
        "a changed line has three lines of context",
        numbered(9),
        numbered(9).replace(b"5", b"X"),
        FILE + b"@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+X\n 6\n 7\n 8\n",
    ),
    case(
        "changes far apart make two hunks",
        numbered(11),
        numbered(11).replace(b"2\n", b"").replace(b"10\n", b"X\n"),
        FILE + b"@@ -1,5 +1,4 @@\n 1\n-2\n 3\n 4\n 5\n@@ -7,5 +6,5 @@\n 7\n 8\n 9\n-10\n+X\n 11\n",
    ),
    case(
        "changes close together make one",
        numbered(8),
        numbered(8).replace(b"1\n", b"").replace(b"8\n", b""),
        FILE + b"@@ -1,8 +1,6 @@\n-1\n 2\n 3\n 4\n 5\n 6\n 7\n-8\n",
    ),
    case("a new file", None, b"a\n", NEW_FILE + b"@@ -0,0 +1,1 @@\n+a\n"),
    case("an emptied file", b"a\n", b"", FILE + b"@@ -1,1 +0,0 @@\n-a\n"),
    case("a lost final newline", b"a\n", b"a", FILE + b"@@ -1,1 +1,1 @@\n-a\n+a\n" + NO_NEWLINE),
    case("other line endings", b"a\r\n", b"a\n", FILE + b"@@ -1,1 +1,1 @@\n-a\r\n+a\n"),
    case("moved lines", b"a\nb\nc\nd\n", b"b\nc\nd\na\n", FILE + b"@@ -1,4 +1,4 @@\n-a\n b\n c\n d\n+a\n"),
    case("no change", b"a", b"a", b""),
    case("no change of no file", None, b"", b""),
]


@pytest.mark.parametrize(("before", "after", "expected"), DIFFS)
def test_a_diff_is_written_as_diff_tools_write_it(before: bytes | None, after: bytes, expected: bytes) -> None:
    assert unified_diff(before, after, "f") == expected


def test_a_shown_diff_replaces_bytes_that_are_not_utf8() -> None:
    expected = b"--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n-\xff\n+" + "é\r\n".encode()
    assert unified_diff(b"\xff\n", "é\r\n".encode(), "f") == expected


NAMES = [
    case("a plain name", "src/é.py", "a/src/é.py"),
    case("a name with spaces", "a b.py", "a/a b.py\t"),
    case("a name with quotes", 'a "b".py', '"a/a \\042b\\042.py"'),
    case("a name with a newline and a tab", "a\n\tb\x7f", '"a/a\\012\\011b\\177"'),
]


@pytest.mark.parametrize(("path", "name"), NAMES)
def test_a_name_in_a_header_is_quoted_where_it_must_be(path: str, name: str) -> None:
    new_name = name.replace("a/", "b/", 1)
    assert unified_diff(b"x\n", b"y\n", path).startswith(f"--- {name}\n+++ {new_name}\n@@ ".encode())


# Properties. The lines are the hostile ones: they look like parts of a diff, end in CR, or are not text at all.

HOSTILE_LINES = (
    b"", b"a", b"b", b"c", b" ", b"\t}", b"a\r", b"\r", b"a\rb", b"\x0c", b"x\x0by\x1c\x85", b"\0", b"\xff\xfe",
    b"\xe2\x80\xa8", b"-- x", b"++ y", b"--- a/f", b"+++ b/f", b"-", b"+", b"@@ -1 +1 @@", b"@@",
    b"\\ No newline at end of file", b"diff --git a/f b/f", b"```",
)  # fmt: skip
hostile_line = st.sampled_from(HOSTILE_LINES) | st.binary(max_size=6).map(lambda body: body.replace(b"\n", b"\r"))
content = st.builds(
    lambda lines, end: b"\n".join(lines) + end, st.lists(hostile_line, max_size=30), st.just(b"") | st.just(b"\n")
)


@st.composite
def versions(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A file and the same file with some edits, or two files that have little in common."""
    before = draw(content)
    if draw(st.booleans()):
        return before, draw(content)
    lines = before.split(b"\n")
    for _ in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, len(lines)))
        end = draw(st.integers(start, min(start + 3, len(lines))))
        lines[start:end] = draw(st.lists(hostile_line, max_size=3))
    return before, b"\n".join(lines)


@settings(deadline=None)
@given(versions(), st.booleans())
@example((b"a\r\nb", b"a\r\nB\nC\n"), False)
@example((b"a", b"b\r"), False)
def test_a_diff_we_write_applies_to_exactly_the_new_version(pair: tuple[bytes, bytes], is_new: bool) -> None:
    before, after = pair
    original = None if is_new else before
    patch = unified_diff(original, after, "f")
    if (original or b"") == after:
        assert patch == b""
    else:
        patched = apply_patch(original, patch)
        assert patched.content == after
        assert set(patched.offsets) == {0}


@settings(deadline=None)
@given(versions(), st.data())
def test_a_damaged_patch_is_applied_or_refused_and_nothing_else(pair: tuple[bytes, bytes], data: st.DataObject) -> None:
    patch = bytearray(unified_diff(*pair, "f"))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(patch)))
        cut = data.draw(st.integers(0, 20) if at % 2 else st.just(1))
        patch[at : at + cut] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"\n", b"\r\n", b"@@ -1 +1 @@\n", NO_NEWLINE])
        )
    error = refusal(pair[0], bytes(patch))
    if error is not None:
        assert error.message.startswith("patch failed: ")
        assert error.hint
        assert {"hunk", "patch_line"} & error.details.keys()


@settings(deadline=None)
@given(versions(), st.data())
def test_a_patch_whose_context_was_altered_never_applies(pair: tuple[bytes, bytes], data: st.DataObject) -> None:
    before, after = pair
    lines = unified_diff(before, after, "f").split(b"\n")
    old_lines = [at for at, line in enumerate(lines) if at > 2 and line[:1] in (b" ", b"-")]
    if not old_lines:
        return
    at = data.draw(st.sampled_from(old_lines))
    lines[at] = lines[at][:1] + b"<no line of the file>" + data.draw(st.sampled_from([b"", lines[at][1:]]))
    error = failure(before, b"\n".join(lines))
    assert error.details["hunk"] >= 1
    assert error.details["line"] >= 1
    assert f"hunk {error.details['hunk']} does not match at line {error.details['line']}" in error.message


@settings(deadline=None)
@given(st.binary(max_size=40) | content, st.lists(hostile_line, max_size=12).map(b"\n".join))
def test_any_bytes_are_a_patch_or_refused(original: bytes, patch: bytes) -> None:
    for text in (patch, FILE + patch, b"@@ -1,2 +1,3 @@\n" + patch):
        error = refusal(original, text)
        assert error is None or error.code == "PATCH_FAILED"


# Agreement with the common tools, many files in one call of each.


def random_versions(seed: int, count: int) -> list[tuple[bytes, bytes]]:
    chosen = random.Random(seed)
    pairs: list[tuple[bytes, bytes]] = []
    while len(pairs) < count:
        lines = [chosen.choice(HOSTILE_LINES) for _ in range(chosen.randrange(40))]
        edited = list(lines)
        for _ in range(chosen.randrange(1, 6)):
            start = chosen.randrange(len(edited) + 1)
            edited[start : start + chosen.randrange(4)] = chosen.choices(HOSTILE_LINES, k=chosen.randrange(4))
        before = b"\n".join(lines) + chosen.choice([b"", b"\n"])
        after = b"\n".join(edited) + chosen.choice([b"", b"\n"])
        if before != after:
            pairs.append((before, after))
    return pairs


def run(command: list[str], directory: Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run git or patch with no configuration of the machine and no repository around the directory."""
    environment = {
        **os.environ,
        "HOME": str(directory),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(directory.parent),
        "LC_ALL": "C",
    }
    return subprocess.run(
        command, cwd=directory, input=stdin, capture_output=True, env=environment, timeout=60, check=False
    )


def write_files(directory: Path, contents: list[bytes]) -> None:
    directory.mkdir()
    for number, file_content in enumerate(contents):
        (directory / f"{number:04}").write_bytes(file_content)


TOOLS = {
    "git": ["git", "apply", "--whitespace=nowarn", "-"],
    "patch": ["patch", "--batch", "--binary", "--fuzz=0", "--silent", "-p1"],
}


@pytest.mark.parametrize("tool", TOOLS)
def test_git_and_gnu_patch_read_our_diffs_as_we_do(tool: str, tmp_path: Path) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    pairs = [*random_versions(seed=1, count=400), (b"a\n", b""), (b"", b"a\n"), (b"", b"a")]
    write_files(tmp_path / "files", [before for before, _ in pairs])
    patch = b"".join(unified_diff(before, after, f"{number:04}") for number, (before, after) in enumerate(pairs))
    patch += unified_diff(None, b"new\r\n", 'dir ectory/a "name".txt') + unified_diff(None, b"new", "dir ectory/é")
    outcome = run(TOOLS[tool], tmp_path / "files", patch)
    assert outcome.returncode == 0, outcome.stderr.decode("utf-8", "replace")
    for number, (_, after) in enumerate(pairs):
        assert (tmp_path / "files" / f"{number:04}").read_bytes() == after
    assert (tmp_path / "files" / 'dir ectory/a "name".txt').read_bytes() == b"new\r\n"
    assert (tmp_path / "files" / "dir ectory/é").read_bytes() == b"new"


@pytest.mark.parametrize("context", [1, 3, 10])
def test_we_read_the_diffs_of_git(context: int, tmp_path: Path) -> None:
    pairs = random_versions(seed=2, count=200)
    write_files(tmp_path / "old", [before for before, _ in pairs])
    write_files(tmp_path / "new", [after for _, after in pairs])
    command = ["git", "diff", "--no-index", "--text", f"--unified={context}", "old", "new"]
    diffs = (b"\n" + run(command, tmp_path).stdout).split(b"\ndiff --git ")[1:]
    assert len(diffs) == len(pairs)
    for diff, (before, after) in zip(diffs, pairs, strict=True):
        assert apply_patch(before, b"diff --git " + diff + b"\n").content == after


# Size. The deadlines are many times what is needed; work that grows with the square would take minutes.


def within(seconds: float, started: float) -> bool:
    """Of CPU time: a busy machine makes nothing slower."""
    return time.process_time() - started < seconds


def test_a_thousand_hunks_on_ten_megabytes_are_written_and_applied_in_seconds() -> None:
    lines = [b"%07d %s\n" % (number, b"." * 31) for number in range(256_000)]
    edited = list(lines)
    edited[100::256] = [b"changed %d\n" % number for number in range(1000)]
    before, after = b"".join(lines), b"".join(edited)
    started = time.process_time()
    patch = unified_diff(before, after, "f")
    patched = apply_patch(before, patch)
    assert within(20, started)
    assert patched.content == after
    assert patched.hunks_applied == 1000
    assert len(patch) < 500_000

    moved = [line for at in range(0, len(lines), 256) for line in (*lines[at : at + 256], b"an extra line\n")]
    started = time.process_time()
    patched = apply_patch(b"".join(moved), patch)
    assert within(20, started)
    assert patched.offsets == tuple(range(1000))


def test_a_hunk_that_almost_matches_everywhere_is_given_up() -> None:
    period = b" a\n b\n" * 20_000
    patch = b"@@ -1,80002 +1,80002 @@\n" + period + b" a\n a\n" + period
    started = time.process_time()
    error = failure(b"a\nb\n" * 500_000, patch)
    assert within(20, started)
    assert "too common" in error.message
    assert error.details == {"hunk": 1, "line": 1}


def test_files_with_nothing_in_common_are_compared_in_bounded_time() -> None:
    chosen = random.Random(3)
    before, after = (b"".join(chosen.choices([b"a\n", b"b\n"], k=100_000)) for _ in range(2))
    started = time.process_time()
    patch = unified_diff(before, after, "f")
    assert within(30, started)
    assert apply_patch(before, patch).content == after


def test_few_changes_in_a_file_of_repeated_lines_give_a_short_diff() -> None:
    lines = [b"{\n", b"  1,\n", b"}\n"] * 10_000
    edited = [*lines[:100], b"new\n", *lines[100:20_000], *lines[20_001:]]
    assert unified_diff(b"".join(lines), b"".join(edited), "f").count(b"\n") == 2 + 2 * 8
