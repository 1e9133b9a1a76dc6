"""Which names a document's path may have, and how the others are shown.

A path is stored, sent as JSON and written into citations. Names that are not UTF-8 are in it as `escape_name` writes
them; names with control characters cannot be part of one.
"""

from __future__ import annotations

import unicodedata

ARCHIVE_MARK = "!"
"""Stands behind an archive's name in the path of a member: `outer.zip!/inner/name.md`."""
MEMBER_MARK = f"{ARCHIVE_MARK}/"
"""Between an archive's path and the path of a member in it."""

_LINE_ENDS = ("\u2028", "\u2029")


def is_storable(name: str) -> bool:
    """Whether a name can be part of a document's path."""
    if name.isprintable():
        return True
    return not any(unicodedata.category(char) in ("Cc", "Cs") or char in _LINE_ENDS for char in name)


def printable(path: str) -> str:
    """A path with what cannot be stored or shown escaped. Good to tell people about it, not to open it."""
    text = path.encode("utf-8", "surrogateescape" if _is_from_bytes(path) else "backslashreplace")
    readable = text.decode("utf-8", "backslashreplace")
    return "".join(char if is_storable(char) else char.encode("unicode_escape").decode() for char in readable)


def _is_from_bytes(path: str) -> bool:
    """Whether its half surrogates, if any, stand for bytes that are not UTF-8."""
    return all(char < "\ud800" or char > "\udfff" or "\udc80" <= char <= "\udcff" for char in path)
