"""Applies a unified diff to the bytes of a file, strictly: every hunk has exactly one position, or nothing is changed.

Nothing is decoded and only LF ends a line, so CRLF, lone CR, form feeds, NUL and bytes that are not UTF-8 are
preserved. Two things come from the file instead of the patch, because text often loses them in transit:

- Line endings. If all lines of a patch end alike, the file's line endings are preserved, and an added line ends like
  the file's line before it in the hunk. A patch with both LF and CRLF lines is taken literally, and so is one that
  creates a file. (An insertion without context has no line to compare with; it gets the line endings of the file.)
- The newline at the end of the file. A line without "No newline at end of file" also matches a last line that has no
  newline. What the patch adds there ends in a newline; context stays unchanged. The contract requires this: "Hello
  World", with World changed to Agent, becomes "Hello Agent" and a newline. A marker in the patch must be true.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass
from typing import NoReturn

from armarium.capabilities.sandbox.errors import PatchFailed
from armarium.capabilities.sandbox.patch.hunks import Hunk, parse_patch, quoted

_REREAD = "read the file again and make the diff from what it holds now"
_MAX_LISTED_PLACES = 5
# Limit on line comparisons for hunks that are not at their stated line, about one second. Files with few different
# lines could otherwise be searched for hours.
_SEARCH_BUDGET = 10_000_000


@dataclass(frozen=True, slots=True)
class PatchedContent:
    """The patched file. `offsets` has, for each hunk, the distance in lines from its stated position."""

    content: bytes
    hunks_applied: int
    created: bool
    offsets: tuple[int, ...]


def apply_patch(original: bytes | None, patch: bytes, *, reveal: bool = True) -> PatchedContent:
    """Apply the patch to `original` (None: no file exists), or raise `PatchFailed`.

    Without `reveal` the error does not quote the file, for callers that may patch but not read it.
    """
    hunks, creates = parse_patch(patch)
    target = _Target(original, hunks, creates, reveal)
    output = _Output()
    done = offset = 0
    offsets: list[int] = []
    for hunk in hunks:
        place = target.find(hunk, earliest=done, offset=offset)
        output.keep(target, done, place)
        _rewrite(target, hunk, place, output)
        done = place + len(hunk.old)
        offset = place - hunk.begin
        offsets.append(offset)
    output.keep(target, done, len(target.lines))
    return PatchedContent(output.content(), len(hunks), original is None, tuple(offsets))


class _Output:
    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._last_ended = True

    def keep(self, target: _Target, start: int, end: int) -> None:
        if start < end:
            self._lines += target.lines[start:end]
            self._last_ended = target.ended(end - 1)

    def add(self, body: bytes, ended: bool, ending: bytes) -> None:
        if not self._last_ended and ending == b"\r":
            self._lines[-1] += ending  # the last line of the file had no line ending
        self._lines.append(body)
        self._last_ended = ended

    def content(self) -> bytes:
        if self._lines and self._last_ended:
            self._lines.append(b"")
        return b"\n".join(self._lines)


def _rewrite(target: _Target, hunk: Hunk, place: int, output: _Output) -> None:
    """Write the new lines of a hunk: context as in the file, additions with the file's line endings."""
    ending = target.ending_near(hunk, place)
    at = place
    for line in hunk.lines:
        if line.sign == b"+":
            body = line.body
            if ending is not None and line.ended:
                body = body.removesuffix(b"\r") + ending
            output.add(body, line.ended, ending or b"")
            continue
        if ending is not None and target.ended(at):
            ending = _carriage_return(target.lines[at])
        if line.sign == b" ":
            output.keep(target, at, at + 1)
        at += 1


class _Target:
    """The file being patched. It finds the position of each hunk."""

    def __init__(self, original: bytes | None, hunks: list[Hunk], creates: bool, reveal: bool) -> None:
        content = original or b""
        self._missing = original is None
        self._creates = creates
        self._hunks = hunks
        self._reveal = reveal
        self.lines = content.split(b"\n")
        self._last_ended = not self.lines[-1]
        if self._last_ended:
            self.lines.pop()
        self._file_ending = _uniform_ending(content)
        ended = [line.body for hunk in hunks for line in hunk.lines if line.ended]
        self._keep_endings = len({body.endswith(b"\r") for body in ended}) == 1
        # Compare the lines themselves, or without their CR if the file's line endings are preserved.
        self._keys = self.lines
        if self._keep_endings and b"\r\n" in content:
            self._keys = [_key(line, self.ended(at)) for at, line in enumerate(self.lines)]
        self._index: dict[bytes, array[int]] = {}
        """Where the file has the old lines of all hunks, once a hunk is not at its stated line."""
        self._budget = _SEARCH_BUDGET

    def ended(self, at: int) -> bool:
        return self._last_ended or at < len(self.lines) - 1

    def ending_near(self, hunk: Hunk, place: int) -> bytes | None:
        """The CR before LF in the file where the hunk applies, or nothing. None: take the patch literally."""
        if not self._keep_endings:
            return None
        if hunk.old and self.ended(place):
            return _carriage_return(self.lines[place])
        return self._file_ending

    def find(self, hunk: Hunk, *, earliest: int, offset: int) -> int:
        """The index where the hunk applies: its stated line, or else the only match after the previous hunk."""
        expected = hunk.begin + offset
        if self._creates and self.lines:
            if self.lines == hunk.new and self._last_ended == hunk.new_ended:
                self._fail_applied(hunk, 1)
            hint = "make a diff against the content the file has, or use write_file to replace it"
            self._fail(hunk, 1, "the patch creates the file, but it exists and is not empty", hint)
        if not hunk.old:
            return self._insertion_point(hunk, expected)
        old = self._keys_of(hunk.old, hunk.old_ended)
        if self._matches(hunk, old, expected):
            return expected
        places = self._search(hunk, old, earliest)
        if not places:
            self._fail_mismatch(hunk, old, expected)
        if len(places) > 1:
            self._fail_ambiguous(hunk, places, expected)
        return places[0]

    def _insertion_point(self, hunk: Hunk, expected: int) -> int:
        if not self.lines:
            return 0
        if expected > len(self.lines):
            problem = f"it adds after line {expected}, but the file has {len(self.lines)} lines"
            self._fail(hunk, len(self.lines) + 1, problem)
        if hunk.closes_file and expected < len(self.lines):
            self._fail(hunk, expected + 1, "it ends the file without a newline, but the file goes on")
        return expected

    def _keys_of(self, bodies: list[bytes], last_ended: bool) -> list[bytes]:
        if not self._keep_endings:
            return bodies
        last = len(bodies) - 1
        return [_key(body, last_ended or at < last) for at, body in enumerate(bodies)]

    def _matches(self, hunk: Hunk, old: list[bytes], place: int) -> bool:
        end = place + len(old)
        if end > len(self._keys) or self._keys[place:end] != old:
            return False
        return not hunk.closes_file or (end == len(self.lines) and (hunk.old_ended or not self._last_ended))

    def _search(self, hunk: Hunk, old: list[bytes], earliest: int) -> list[int]:
        """Indices at or after `earliest` where the old lines occur; only the first few if there are many."""
        index = self._index
        if not index:
            index.update({key: array("q") for hunk in self._hunks for key in self._keys_of(hunk.old, hunk.old_ended)})
            for at, key in enumerate(self._keys):
                if key in index:
                    index[key].append(at)
        rarest = min(range(len(old)), key=lambda at: len(index[old[at]]))
        occurrences = index[old[rarest]]
        places: list[int] = []
        for at in range(bisect_left(occurrences, earliest + rarest), len(occurrences)):
            place = occurrences[at] - rarest
            self._budget -= 1
            if self._ends_match(old, place):
                self._budget -= len(old)
                if self._matches(hunk, old, place):
                    places.append(place)
            if self._budget < 0:
                self._fail(hunk, hunk.old_start, "its lines are too common in the file to look for it elsewhere")
            if len(places) > _MAX_LISTED_PLACES:
                break
        return places

    def _ends_match(self, old: list[bytes], place: int) -> bool:
        end = place + len(old)
        return end <= len(self._keys) and self._keys[place] == old[0] and self._keys[end - 1] == old[-1]

    def _fail_mismatch(self, hunk: Hunk, old: list[bytes], expected: int) -> NoReturn:
        if self._missing:
            hint = "check the path; to create the file, send a diff that only adds lines"
            self._fail(hunk, 1, f"expected {quoted(hunk.old[0])}, but the file does not exist", hint)
        if self._holds_new_side(hunk, expected):
            self._fail_applied(hunk, expected + 1)
        for at, key in enumerate(old, expected):
            if at >= len(self._keys):
                self._fail(hunk, at + 1, f"expected {quoted(hunk.old[at - expected])}, found the end of the file")
            if key != self._keys[at]:
                self._fail(hunk, at + 1, f"expected {quoted(hunk.old[at - expected])}{self._found(at)}")
        end = expected + len(old)
        if end < len(self.lines):
            self._fail(hunk, end + 1, f"expected the end of the file{self._found(end)}")
        self._fail(hunk, end, "expected no newline at the end of the file, found one")

    def _found(self, at: int) -> str:
        return f", found {quoted(self.lines[at])}" if self._reveal else ""

    def _holds_new_side(self, hunk: Hunk, expected: int) -> bool:
        """Whether the hunk is already applied, at the expected line or at the new line in its header."""
        adds = any(line.sign == b"+" for line in hunk.lines)
        enclosed = hunk.lines[0].sign == hunk.lines[-1].sign == b" "
        if not (adds or enclosed):
            return False  # a deletion with context on one side only would match too easily
        new = self._keys_of(hunk.new, hunk.new_ended)
        for place in (expected, max(hunk.new_start - 1, 0)):
            end = place + len(new)
            if self._keys[place:end] == new and (hunk.new_ended or not self.ended(end - 1)):
                return True
        return False

    def _fail_applied(self, hunk: Hunk, line: int) -> NoReturn:
        hint = "nothing is left to do for this hunk; read the file again before sending another diff"
        self._fail(hunk, line, "it is already applied", hint)

    def _fail_ambiguous(self, hunk: Hunk, places: list[int], expected: int) -> NoReturn:
        numbers = ", ".join(str(place + 1) for place in places[:_MAX_LISTED_PLACES])
        more = " and more" if len(places) > _MAX_LISTED_PLACES else ""
        problem = f"its lines occur at lines {numbers}{more}, so its place is ambiguous"
        hint = "give the hunk its right line number, or more lines of context"
        self._fail(hunk, expected + 1, problem, hint)

    def _fail(self, hunk: Hunk, line: int, problem: str, hint: str = _REREAD) -> NoReturn:
        message = f"patch failed: hunk {hunk.number} does not match at line {line}: {problem}"
        raise PatchFailed(message, hint=hint, hunk=hunk.number, line=line)


def _carriage_return(line: bytes) -> bytes:
    return b"\r" if line.endswith(b"\r") else b""


def _key(line: bytes, ended: bool) -> bytes:
    return line.removesuffix(b"\r") if ended else line


def _uniform_ending(content: bytes) -> bytes | None:
    newlines = content.count(b"\n")
    with_carriage_return = content.count(b"\r\n")
    if not newlines or 0 < with_carriage_return < newlines:
        return None
    return b"\r" if with_carriage_return else b""
