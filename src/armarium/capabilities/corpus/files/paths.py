"""Which names can be part of a document's path, and how other names are shown.

A path is stored, sent as JSON and written into citations. Names that are not UTF-8 are escaped by `escape_name`. Names
with control characters cannot be part of a path.
"""

from __future__ import annotations

import unicodedata

ARCHIVE_MARK = "!"
"""Follows an archive's name in the path of a member: `outer.zip!/inner/name.md`."""
MEMBER_MARK = f"{ARCHIVE_MARK}/"
"""Separates the path of an archive from the path of a member."""

_LINE_ENDS = ("\u2028", "\u2029")


def is_storable(name: str) -> bool:
    if name.isprintable():
        return True
    return not any(unicodedata.category(char) in ("Cc", "Cs") or char in _LINE_ENDS for char in name)


def printable(path: str) -> str:
    """A path with all unprintable parts escaped. For display only, not for opening."""
    # Whether all unpaired surrogates stand for bytes that are not UTF-8.
    is_from_bytes = all(char < "\ud800" or char > "\udfff" or "\udc80" <= char <= "\udcff" for char in path)
    text = path.encode("utf-8", "surrogateescape" if is_from_bytes else "backslashreplace")
    readable = text.decode("utf-8", "backslashreplace")
    return "".join(char if is_storable(char) else char.encode("unicode_escape").decode() for char in readable)
