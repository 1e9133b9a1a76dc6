r"""Names that are not UTF-8, written as text that JSON can carry and that leads back to the same bytes.

A file name on Linux is any bytes but `/` and NUL. Inside the program a byte that is not UTF-8 is a lone surrogate, as
`os.fsdecode` makes it. Outside, it is written `\xNN`:

    b"caf\xe9.txt"    "caf\xe9.txt"

A real name may hold that very text. There the backslash is written `\x5c`, so that no two names look the same:

    b"caf\\xe9.txt"   "caf\x5cxe9.txt"

Every other name, with or without backslashes, is written as it is. `escape_name` and `unescape_name` are inverse to
each other; an escape that `escape_name` would not write is refused, so each file has exactly one spelling.
"""

from __future__ import annotations

import os
import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE = re.compile("[\udc80-\udcff]")
_LOOKS_ESCAPED = re.compile(r"\\(?=x(?:[89A-Fa-f][0-9A-Fa-f]|5[Cc]))")
_ESCAPE = re.compile(r"\\x([89A-Fa-f][0-9A-Fa-f]|5[Cc])")
_BACKSLASH = 0x5C


class NotAnEscape(ValueError):
    """The text holds a lone surrogate, or an escape of something that is written without one."""


def escape_name(name: str) -> str:
    """The name or path, from `os.fsdecode`, as callers see it."""
    if "\\" in name:
        name = _LOOKS_ESCAPED.sub(r"\\x5c", name)
    return name if name.isascii() else _BYTE.sub(_as_escape, name)


def unescape_name(text: str) -> str:
    """The name or path that `escape_name` shows as this text; raises `NotAnEscape` if there is none."""
    if not text.isascii() and _SURROGATE.search(text):
        raise NotAnEscape("a lone surrogate is not part of any name")
    if "\\x" not in text:
        return text
    raw = _ESCAPE.sub(_as_byte, text)
    # Bytes that together are UTF-8 have a spelling without escapes, which is the only one.
    name = os.fsdecode(os.fsencode(raw))
    if escape_name(name) != _ESCAPE.sub(_in_lower_case, text):
        raise NotAnEscape("an escape stands for something that is written without one")
    return name


def _as_escape(byte: re.Match[str]) -> str:
    return f"\\x{ord(byte[0]) & 0xFF:02x}"


def _as_byte(escape: re.Match[str]) -> str:
    byte = int(escape[1], 16)
    return "\\" if byte == _BACKSLASH else chr(0xDC00 + byte)


def _in_lower_case(escape: re.Match[str]) -> str:
    return f"\\x{escape[1].lower()}"
