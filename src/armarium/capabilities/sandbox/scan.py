"""Goes through bytes with the fastest code there is: StringZilla where it is installed, otherwise libc and CPython."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from armarium.capabilities.sandbox.regex import Find

try:
    import stringzilla as _stringzilla
except ImportError:
    _stringzilla = None

_vectors: Any = _stringzilla
HAS_VECTORS = _vectors is not None
"""Texts can be found, and folded, many bytes at a time."""

_NEAR_BYTES = 1024
_LOWER = bytes(range(256)).lower()
_FAST_COUNT = sys.version_info >= (3, 13)


def byte_finder(byte: bytes) -> Find:
    """Finds a single byte."""

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return buffer.find(byte, start, stop)

    return find


def text_finder(text: bytes) -> Find:
    """Finds text of at least two bytes."""
    if not HAS_VECTORS:
        return _Memmem(text)
    vectors_find = _vectors.find

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return vectors_find(buffer, text, start, stop)

    return find


def lower_copy(buffer: bytearray, start: int, stop: int, into: bytearray) -> None:
    """Copy [start, stop) to the same place of another buffer, with ASCII letters in lower case."""
    with memoryview(into) as view:
        _vectors.translate(buffer, _LOWER, start=start, end=stop, out=view[start:stop])


def count_newlines(buffer: bytearray, start: int, stop: int) -> int:
    """How many lines end in [start, stop)."""
    if HAS_VECTORS and not _FAST_COUNT and stop - start > _NEAR_BYTES:
        # Older CPythons count byte by byte.
        return _vectors.count(buffer, b"\n", start, stop)
    return buffer.count(b"\n", start, stop)


def _declare_memmem() -> Callable[[int, int, bytes, int], int | None] | None:
    function = getattr(ctypes.CDLL(None), "memmem", None)
    if function is not None:
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]
    return function


_libc_memmem = _declare_memmem()


class _Memmem:
    """Finds text with libc; what is close by is found without the price of a foreign call."""

    __slots__ = ("_address", "_buffer", "_pinned", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._buffer: bytearray | None = None
        self._pinned: ctypes.c_char | None = None
        self._address = 0

    def __call__(self, buffer: bytes | bytearray, start: int, stop: int) -> int:
        near = start + _NEAR_BYTES
        if near >= stop or _libc_memmem is None or isinstance(buffer, bytes):
            return buffer.find(self._text, start, stop)
        at = buffer.find(self._text, start, near)
        if at >= 0:
            return at
        if buffer is not self._buffer:
            # Holding the ctypes object pins the bytearray: it cannot be resized, so its address stays.
            self._pinned = ctypes.c_char.from_buffer(buffer)
            self._address = ctypes.addressof(self._pinned)
            self._buffer = buffer
        begin = max(start, near - len(self._text) + 1)
        place = _libc_memmem(self._address + begin, stop - begin, self._text, len(self._text))
        return -1 if place is None else place - self._address
