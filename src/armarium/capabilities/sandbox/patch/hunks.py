"""Parses a unified diff of one file into hunks, with precise errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from armarium.capabilities.sandbox.errors import PatchFailed

# No file has more lines than twelve digits; converting a million digits would be slow.
_HUNK_HEADER = re.compile(rb"@@ -(\d{1,12})(?:,(\d{1,12}))? \+(\d{1,12})(?:,(\d{1,12}))? @@")
_HARMLESS_GIT_LINES = (b"index ", b"similarity index ", b"dissimilarity index ", b"new file mode 100")
_MODES = (b"old mode", b"new mode")
_BINARY = (b"GIT binary patch", b"Binary files ")
_REFUSED_GIT_LINES = (
    (b"rename ", "it renames the file", "use move, then patch the file under its new name"),
    (b"copy ", "it copies the file", "use copy, then patch the copy"),
    (b"deleted file mode", "it deletes the file", "use remove_file"),
    (_MODES, "it changes permissions", "leave out the 'old mode' and 'new mode' lines; only content is patched"),
    (b"new file mode", "it creates something that is not a regular file", "patch regular files only"),
    (_BINARY, "it is a binary patch", "use write_file to replace the whole content"),
)
_FORMAT_HINT = "send a unified diff of one file; every hunk starts with a header like @@ -start,count +start,count @@"


class HunkLine(NamedTuple):
    """One line of a hunk's body: b" " is context, b"-" is removed, b"+" is added."""

    sign: bytes
    body: bytes
    ended: bool
    """False if "\\ No newline at end of file" follows. The body never contains the newline."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One hunk; `old` and `new` are the bodies of the lines before and after the change."""

    number: int
    patch_line: int
    old_start: int
    new_start: int
    lines: list[HunkLine]
    old: list[bytes]
    new: list[bytes]
    old_ended: bool
    new_ended: bool

    @property
    def begin(self) -> int:
        """The index of its first line in the file. A hunk without old lines goes after its stated line."""
        return max(self.old_start - 1, 0) if self.old else self.old_start

    @property
    def closes_file(self) -> bool:
        """Whether it has "No newline at end of file", so that it must be at the end of the file."""
        return not (self.old_ended and self.new_ended)


def parse_patch(patch: bytes) -> tuple[list[Hunk], bool]:
    """Parse the patch, or raise `PatchFailed`. Returns its hunks in file order, and whether it creates the file.

    Text is allowed before the file header only (a mail's head, a fence). After it everything must be part of the
    diff: skipping a line there could silently skip a hunk whose header is damaged.
    """
    lines = _split(patch)
    at, creates = _read_file_header(lines)
    hunks: list[Hunk] = []
    while at < len(lines):
        if lines[at].startswith(b"@@"):
            hunk, at = _read_hunk(lines, at, len(hunks) + 1)
            _require_order(hunks, hunk)
            hunks.append(hunk)
        elif not lines[at].strip():
            at += 1
        elif _is_tail(lines, at):
            break
        else:
            if _starts_file(lines, at) or lines[at].startswith((b"diff ", b"Index: ")):
                _refuse_second_file(at)
            _fail_counts(lines, hunks[-1].patch_line - 1, hunks[-1].number)
    return hunks, creates


def _split(patch: bytes) -> list[bytes]:
    lines = patch.split(b"\n")
    if not lines[-1]:
        lines.pop()
    elif len(lines) > 1 and lines[-2].endswith(b"\r") and not lines[-1].endswith(b"\r"):
        lines[-1] += b"\r"  # the patch lost its last newline; assume the line ending of the line before
    # Tools never write headers with CRLF, so the whole patch was converted in transit.
    if all(line.endswith(b"\r") for line in lines):
        lines = [line[:-1] for line in lines]
    return lines


def _read_file_header(lines: list[bytes]) -> tuple[int, bool]:
    """The index of the first hunk header and whether the patch creates the file. Names in the file header are not used:
    the caller says which file is meant."""
    in_git_header = named = creates = False
    marked_line: int | None = None
    at = 0
    while at < len(lines) and not lines[at].startswith(b"@@"):
        line = lines[at]
        if _starts_file(lines, at):
            if named or (in_git_header and line.startswith(b"diff --git ")):
                _refuse_second_file(at)
            if line.startswith(b"diff --git "):
                in_git_header = True
            else:
                named = True
                creates = creates or _is_dev_null(line)
                if _is_dev_null(lines[at + 1]):
                    _refuse("it deletes the file", at + 1, "use remove_file")
                at += 1
        elif named and line.strip():
            _refuse_unreadable(at, line)
        elif in_git_header:
            _check_git_line(line, at)
            creates = creates or line.startswith(b"new file mode")
        elif line[:1] in (b" ", b"+", b"-", b"\\") and line.strip() and marked_line is None:
            marked_line = at
        at += 1
    if at == len(lines):
        for binary_at, line in enumerate(lines):
            if line.startswith(_BINARY):
                _refuse("it is a binary patch", binary_at, "use write_file to replace the whole content")
        _refuse("it has no hunks", 0)
    if marked_line is not None and not (named or in_git_header):
        _refuse_unreadable(marked_line, lines[marked_line])
    return at, creates


def _starts_file(lines: list[bytes], at: int) -> bool:
    if lines[at].startswith(b"--- "):
        return at + 1 < len(lines) and lines[at + 1].startswith(b"+++ ")
    return lines[at].startswith(b"diff --git ")


def _is_dev_null(header: bytes) -> bool:
    return header[4:].split()[:1] == [b"/dev/null"]


def _check_git_line(line: bytes, at: int) -> None:
    if not line.strip() or line.startswith(_HARMLESS_GIT_LINES):
        return
    for prefix, what, hint in _REFUSED_GIT_LINES:
        if line.startswith(prefix):
            _refuse(what, at, hint)
    _refuse_unreadable(at, line)


def _read_hunk(lines: list[bytes], header_at: int, number: int) -> tuple[Hunk, int]:
    """Parse the hunk whose header is at `header_at`. Returns it and the index after its last line."""
    old_start, old_count, new_start, new_count = _read_hunk_header(lines[header_at], header_at, number)
    body: list[HunkLine] = []
    old_left, new_left = old_count, new_count
    old_ended = new_ended = True
    at = header_at + 1
    while at < len(lines) and (old_left or new_left or lines[at].startswith(b"\\")):
        line = lines[at]
        # Editors strip the single space of an empty context line.
        sign, text = (b" ", line) if line in (b"", b"\r") else (line[:1], line[1:])
        if sign == b"\\":
            if not body or not body[-1].ended:
                _fail_hunk("a 'No newline' marker follows no line", number, old_start, at)
            body[-1] = body[-1]._replace(ended=False)
            old_ended = old_ended and body[-1].sign == b"+"
            new_ended = new_ended and body[-1].sign == b"-"
        elif sign in (b" ", b"-", b"+"):
            in_old, in_new = sign != b"+", sign != b"-"
            if (in_old and not old_left) or (in_new and not new_left):
                break
            if (in_old and not old_ended) or (in_new and not new_ended):
                _fail_hunk("lines follow its 'No newline at end of file'", number, old_start, at)
            body.append(HunkLine(sign, text, True))
            old_left -= in_old
            new_left -= in_new
        else:
            break
        at += 1
    if old_left or new_left:
        _fail_counts(lines, header_at, number)
    old = [line.body for line in body if line.sign != b"+"]
    new = [line.body for line in body if line.sign != b"-"]
    return Hunk(number, header_at + 1, old_start, new_start, body, old, new, old_ended, new_ended), at


def _read_hunk_header(line: bytes, at: int, number: int) -> list[int]:
    """Returns old start, old count, new start, new count. A missing count is 1."""
    match = _HUNK_HEADER.match(line)
    if match is None:
        problem = "combined diff of a merge" if line.startswith(b"@@@") else "malformed header"
        _fail_hunk(f"{problem}: {quoted(line)}", number, None, at)
    return [1 if field is None else int(field) for field in match.groups()]


def _require_order(earlier: list[Hunk], hunk: Hunk) -> None:
    if not earlier:
        return
    last = earlier[-1]
    if last.closes_file:
        problem = f"it follows hunk {last.number}, which ends the file"
    elif hunk.begin < last.begin + len(last.old):
        relation = "comes before" if hunk.begin + len(hunk.old) <= last.begin else "overlaps"
        problem = f"it {relation} hunk {last.number}, which starts at line {last.old_start}"
    else:
        return
    hint = "order the hunks by line and join those that touch the same lines"
    _fail_hunk(problem, hunk.number, hunk.old_start, hunk.patch_line - 1, hint)


def _is_tail(lines: list[bytes], at: int) -> bool:
    """What may follow the last hunk: a closing fence, or the signature of a mailed patch (two dashes, one line)."""
    rest = [line for line in lines[at + 1 :] if line.strip()]
    if lines[at].rstrip() == b"```":
        return not rest
    return lines[at].rstrip() == b"--" and len(rest) == 1 and rest[0][:1] not in (b" ", b"+", b"-", b"\\", b"@")


def _fail_counts(lines: list[bytes], header_at: int, number: int) -> NoReturn:
    """Report that the header's counts do not match the body: suggest a header, or name the invalid line."""
    old_start, old_declared, new_start, new_declared = _read_hunk_header(lines[header_at], header_at, number)
    body_end = header_at + 1
    while body_end < len(lines) and not _ends_body(lines, body_end):
        body_end += 1
    if body_end < len(lines) and not lines[body_end].startswith(b"@@") and not _starts_file(lines, body_end):
        problem = f"a line of its body starts with none of ' ', '+', '-': {quoted(lines[body_end])}"
        _fail_hunk(problem, number, old_start, body_end)
    while not lines[body_end - 1].strip() and body_end > header_at + 1:
        body_end -= 1  # blank lines at the end separate hunks
    signs = [line[:1] for line in lines[header_at + 1 : body_end]]
    old_count = sum(sign not in (b"+", b"\\") for sign in signs)
    new_count = sum(sign not in (b"-", b"\\") for sign in signs)
    counted = f"{old_count} and {new_count}"
    problem = f"its header counts {old_declared} old and {new_declared} new lines, its body has {counted}"
    header = f"@@ -{old_start},{old_count} +{new_start},{new_count} @@"
    _fail_hunk(problem, number, old_start, header_at, f"if the body is complete, its header should be {header}")


def _ends_body(lines: list[bytes], at: int) -> bool:
    line = lines[at]
    return (line[:1] not in (b" ", b"+", b"-", b"\\") and line not in (b"", b"\r")) or _starts_file(lines, at)


def _refuse_second_file(at: int) -> NoReturn:
    _refuse("it touches more than one file", at, "send one call for each file, with that file's part of the diff")


def _refuse_unreadable(at: int, line: bytes) -> NoReturn:
    _refuse(f"a line outside any hunk is not part of a diff: {quoted(line)}", at)


def _refuse(what: str, at: int, hint: str = _FORMAT_HINT) -> NoReturn:
    raise PatchFailed(f"patch failed: {what} (patch line {at + 1})", hint=hint, patch_line=at + 1)


def _fail_hunk(problem: str, number: int, line: int | None, at: int, hint: str = _FORMAT_HINT) -> NoReturn:
    """Raise. `line` is the line of the file in the hunk's header; None if the header is invalid."""
    place = "" if line is None else f" at line {line}"
    message = f"patch failed: hunk {number}{place} (patch line {at + 1}): {problem}"
    raise PatchFailed(message, hint=hint, hunk=number, line=line, patch_line=at + 1)


def quoted(line: bytes, limit: int = 80) -> str:
    """The line for a message: printable, at most `limit` characters, in double quotes."""
    text = line[: limit * 8].decode("utf-8", "replace")
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return f'"{shown}"' if len(shown) <= limit else f'"{shown[: limit - 1]}…"'
