"""What the archive readers have in common: an entry, its budget and the error for archives that cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ENCRYPTED: Final = "encrypted"


class ArchiveError(Exception):
    """The archive, or one of its members, is damaged, unsupported or over a limit."""


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry as the archive declares it. No field has been verified."""

    name: str
    """Bytes that are not UTF-8 are decoded as unpaired surrogates."""
    size_bytes: int
    mtime_unix: int
    is_directory: bool
    problem: str | None
    """Why the entry cannot be read, if that is known: a link, a device, encrypted."""
    read: Callable[[], bytes]
    """Returns the content, exactly `size_bytes` long, or raises `ArchiveError`. In a tar archive, valid only until the
    next entry is requested."""


class Budget:
    """How much an archive, including the archives nested in it, may still unpack. Unlimited by default."""

    def __init__(self, members: int = sys.maxsize, content_bytes: int = sys.maxsize) -> None:
        self.exhausted = False
        self._members = members
        self._bytes = content_bytes

    def spend_member(self) -> None:
        """Count one entry of any kind."""
        self._members -= 1
        if self._members < 0:
            self.exhausted = True
            raise ArchiveError("the archive has too many members")

    def spend_bytes(self, count: int) -> None:
        """Count unpacked bytes: before unpacking a whole member, or right after unpacking a small piece."""
        self._bytes -= count
        if self._bytes < 0:
            self.exhausted = True
            raise ArchiveError("the archive unpacks to more than the limit in total, or for its size")
