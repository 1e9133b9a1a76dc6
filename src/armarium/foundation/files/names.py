r"""File names: escapes those that are not UTF-8 as JSON text, reversibly, and tells those of staged entries.

A file name on Linux can contain any byte except `/` and NUL. Inside the program a byte that is not UTF-8 is an unpaired
surrogate, from `os.fsdecode`. Outside, it is written as `\xNN`:

    b"caf\xe9.txt"    "caf\xe9.txt"

A real name may contain that text. Its backslash is written as `\x5c`, so that escaped names are unique:

    b"caf\\xe9.txt"   "caf\x5cxe9.txt"

All other names are unchanged. `unescape_name` is the inverse of `escape_name`. It rejects escapes that `escape_name`
does not produce, so each file has exactly one escaped name.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left

_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE = re.compile("[\udc80-\udcff]")
_LOOKS_ESCAPED = re.compile(r"\\(?=x(?:[89A-Fa-f][0-9A-Fa-f]|5[Cc]))")
_ESCAPE = re.compile(r"\\x([89A-Fa-f][0-9A-Fa-f]|5[Cc])")
_CHARACTERS = {f"{byte:02x}": chr(0xDC00 + byte) for byte in range(0x80, 0x100)} | {"5c": "\\"}

_STAGED_PREFIX = ".armarium-"
_STAGED_SUFFIX = ".tmp"
_RANDOM_BYTES = 8
# An exact match: a sweep must not remove users' files with similar names.
_STAGED = re.compile(rf"{re.escape(_STAGED_PREFIX)}[0-9a-f]{{{2 * _RANDOM_BYTES}}}{re.escape(_STAGED_SUFFIX)}")


class NotAnEscape(ValueError):
    """The text contains an unpaired surrogate, or an unnecessary escape."""


def escape_name(name: str) -> str:
    """The escaped form of a name or path from `os.fsdecode`."""
    if "\\" in name:
        name = _LOOKS_ESCAPED.sub(r"\\x5c", name)
    return name if name.isascii() else _BYTE.sub(lambda byte: f"\\x{ord(byte[0]) & 0xFF:02x}", name)


def unescape_name(text: str) -> str:
    """The name or path whose escaped form is this text. Raise `NotAnEscape` if there is none."""
    if not text.isascii() and _SURROGATE.search(text):
        raise NotAnEscape("no name contains an unpaired surrogate")
    if "\\x" not in text:
        return text
    raw = _ESCAPE.sub(lambda escape: _CHARACTERS[escape[1].lower()], text)
    # Bytes that form valid UTF-8 must not be escaped.
    name = os.fsdecode(os.fsencode(raw))
    if escape_name(name) != _ESCAPE.sub(lambda escape: escape[0].lower(), text):
        raise NotAnEscape("unnecessary escape")
    return name


def new_staged_name() -> str:
    """A new, unique name of a staged entry. Tools neither show nor accept such names."""
    return f"{_STAGED_PREFIX}{os.urandom(_RANDOM_BYTES).hex()}{_STAGED_SUFFIX}"


def is_staged(name: str) -> bool:
    """Whether the name has the form of `new_staged_name`."""
    return name.startswith(_STAGED_PREFIX) and _STAGED.fullmatch(name) is not None


def leads_through_staged(path: str) -> bool:
    """Whether the path contains a staged name."""
    return _STAGED_PREFIX in path and any(is_staged(name) for name in path.split("/"))


def drop_staged(names: list[str]) -> None:
    """Remove staged names, with or without a trailing "/", from a sorted list."""
    # They are adjacent, so that a directory costs two comparisons, not one per name.
    first = last = bisect_left(names, _STAGED_PREFIX)
    while last < len(names) and names[last].startswith(_STAGED_PREFIX):
        last += 1
    if last > first:
        names[first:last] = [name for name in names[first:last] if not is_staged(name.rstrip("/"))]
