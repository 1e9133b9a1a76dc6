"""Splits the output of a process into lines, with bounded memory per line."""

from __future__ import annotations

import re
from dataclasses import dataclass

_KEPT_BYTES = 1024
# The id is only trusted before or after the whole content of a response; elsewhere it may be part of the content.
_ID_AT_THE_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\s*,')
_ID_AT_THE_END = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """The beginning and the end of a line over the limit."""

    head: bytes
    tail: bytes

    def request_id(self) -> int | None:
        """The id of the request it responds to, if it was JSON-RPC."""
        found = _ID_AT_THE_START.match(self.head) or _ID_AT_THE_END.search(self.tail)
        return int(found[1]) if found else None


class LineSplitter:
    """Takes bytes and returns lines. A line over the limit is discarded while it is read, except for its ends."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        self._tail = b""

    def split(self, received: bytes) -> list[bytes | OversizedLine]:
        """The lines that are complete with these bytes, without their line breaks."""
        *ended, rest = received.split(b"\n")
        lines: list[bytes | OversizedLine] = []
        for piece in ended:
            self._take(piece)
            lines.append(self._finish())
        self._take(rest)
        return lines

    def _take(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        if self._head is not None:
            self._tail = (self._tail + piece)[-_KEPT_BYTES:]
            return
        self._parts.append(piece)
        if self._size > self._limit:
            line = b"".join(self._parts)
            self._head, self._tail = line[:_KEPT_BYTES], line[-_KEPT_BYTES:]
            self._parts.clear()

    def _finish(self) -> bytes | OversizedLine:
        line = b"".join(self._parts) if self._head is None else OversizedLine(self._head, self._tail)
        self._parts, self._size, self._head, self._tail = [], 0, None, b""
        return line
