"""Cuts what a process writes into lines, holding no more of any line than a limit allows."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEPT_OF_AN_END = 1024
# Where an id stands by itself: before the answer's content, or after all of it. Anywhere else it may be a part of it.
_ID_AT_THE_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_ID_AT_THE_END = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


@dataclass(frozen=True, slots=True)
class Oversized:
    """A line that was too long, of which only both ends are left."""

    head: bytes
    tail: bytes

    def request_id(self) -> int | None:
        """Which request it answered, if it was JSON-RPC."""
        found = _ID_AT_THE_START.match(self.head) or _ID_AT_THE_END.search(self.tail)
        return int(found[1]) if found else None


class Lines:
    """Takes chunks in, gives lines out. A line over the limit is dropped while it is read, and told as `Oversized`."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        self._tail = b""

    def cut(self, chunk: bytes) -> list[bytes | Oversized]:
        """The lines that end within the chunk, without their line break."""
        *ended, rest = chunk.split(b"\n")
        lines: list[bytes | Oversized] = []
        for piece in ended:
            self._take(piece)
            lines.append(self._finished())
        self._take(rest)
        return lines

    def rest(self) -> bytes | Oversized | None:
        """What came after the last line break."""
        return self._finished() if self._size else None

    def _take(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._head is not None:
            self._tail = (self._tail + piece)[-_KEPT_OF_AN_END:]
            return
        self._parts.append(piece)
        if self._size > self._limit:
            whole = b"".join(self._parts)
            self._head, self._tail = whole[:_KEPT_OF_AN_END], whole[-_KEPT_OF_AN_END:]
            self._parts.clear()

    def _finished(self) -> bytes | Oversized:
        line = b"".join(self._parts) if self._head is None else Oversized(self._head, self._tail)
        self._parts, self._size, self._head, self._tail = [], 0, None, b""
        return line
