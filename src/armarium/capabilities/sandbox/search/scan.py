"""Goes through bytes many at a time, with StringZilla's vector code."""

from __future__ import annotations

import sys
from typing import Any

import stringzilla

from armarium.capabilities.sandbox.search.regex import Find

_vectors: Any = stringzilla  # it comes without types

_NEAR_BYTES = 1024
_LOWER = bytes(range(256)).lower()
_NEWLINE_MARKS = bytes(byte == 10 for byte in range(256))
_FAST_COUNT = sys.version_info >= (3, 13)


def byte_finder(byte: bytes) -> Find:
    """Finds a single byte."""

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return buffer.find(byte, start, stop)

    return find


def text_finder(text: bytes) -> Find:
    """Finds text of at least two bytes."""
    vectors_find = _vectors.find

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return vectors_find(buffer, text, start, stop)

    return find


def lower_copy(buffer: bytearray, start: int, stop: int, into: bytearray) -> None:
    """Copy [start, stop) to the same place of another buffer, with ASCII letters in lower case."""
    with memoryview(into) as view:
        _vectors.translate(buffer, _LOWER, start=start, end=stop, out=view[start:stop])


def count_newlines(buffer: bytes | bytearray, start: int, stop: int) -> int:
    """How many lines end in [start, stop)."""
    if _FAST_COUNT or stop - start <= _NEAR_BYTES:
        return buffer.count(b"\n", start, stop)
    # Older CPythons count byte by byte. Marking the newlines and adding up the marks has no branch to mispredict.
    return _vectors.bytesum(_vectors.translate(buffer, _NEWLINE_MARKS, start=start, end=stop))
