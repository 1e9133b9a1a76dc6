"""What the readers of archive formats have in common: an entry as it stands in the archive, and what all may cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from armarium.capabilities.corpus.errors import ExtractFailed


@dataclass(frozen=True, slots=True)
class RawEntry:
    """One entry as the archive tells it; nothing about it has been believed yet."""

    name: str
    """Bytes that are not UTF-8 stand as half surrogates."""
    size_bytes: int
    mtime_unix: int
    is_directory: bool
    problem: str | None
    """Why it cannot be read, if that is known: a link, a device, encrypted."""
    read: Callable[[], bytes]
    """The content, exactly `size_bytes` of it, or `ExtractFailed`. Only until the next entry is asked for."""


class Budget:
    """What an archive, with everything nested in it, may still unpack."""

    def __init__(self, members: int, content_bytes: int) -> None:
        self.exhausted = False
        self._members = members
        self._bytes = content_bytes

    def spend_member(self) -> None:
        """Called for every entry, of whatever kind."""
        self._members -= 1
        if self._members < 0:
            self.exhausted = True
            raise ExtractFailed("the archive has too many members")

    def spend_bytes(self, count: int) -> None:
        """Called before so many bytes are unpacked, or right after a small piece was."""
        self._bytes -= count
        if self._bytes < 0:
            self.exhausted = True
            raise ExtractFailed("the archive unpacks to more than it may, in total or for its size")
