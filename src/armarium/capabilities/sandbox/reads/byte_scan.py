"""Counts lines, finds bytes and folds case, with StringZilla's vector code where CPython is slow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import stringzilla

Find = Callable[[bytes | bytearray, int, int], int]
"""Start of the first match in [start, stop) of a buffer, or -1. The bytes around it count for `^`, `$` and `\\b`."""

_vectors: Any = stringzilla  # it comes without types

_SMALL_BYTES = 1024
_NEWLINE_MARKS = bytes(byte == 10 for byte in range(256))
_FAST_COUNT = sys.version_info >= (3, 13)
_LOWER = bytes(range(256)).lower()


def count_newlines(buffer: bytes | bytearray, start: int, stop: int) -> int:
    """How many lines end in [start, stop)."""
    if _FAST_COUNT or stop - start <= _SMALL_BYTES:
        return buffer.count(b"\n", start, stop)
    return count_marks(buffer, start, stop)


def count_marks(buffer: bytes | bytearray, start: int, stop: int) -> int:
    """The same for older CPythons, which count byte by byte: adding up marks has no branch to mispredict."""
    return _vectors.bytesum(_vectors.translate(buffer, _NEWLINE_MARKS, start=start, end=stop))


def text_finder(text: bytes) -> Find:
    vectors_find = _vectors.find
    if len(text) == 1:
        return lambda buffer, start, stop: buffer.find(text, start, stop)
    return lambda buffer, start, stop: vectors_find(buffer, text, start, stop)


def lower_copy(buffer: bytearray, start: int, stop: int, into: bytearray) -> None:
    """Copy [start, stop) to the same offset of another buffer, with ASCII letters in lower case."""
    with memoryview(into) as view:
        _vectors.translate(buffer, _LOWER, start=start, end=stop, out=view[start:stop])
