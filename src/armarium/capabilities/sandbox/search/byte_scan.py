"""Finds bytes and folds case with StringZilla's vector code."""

from __future__ import annotations

from typing import Any

import stringzilla

from armarium.capabilities.sandbox.search.regex import Find

_vectors: Any = stringzilla  # it comes without types

_LOWER = bytes(range(256)).lower()


def byte_finder(byte: bytes) -> Find:
    """A function that finds a single byte."""

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return buffer.find(byte, start, stop)

    return find


def text_finder(text: bytes) -> Find:
    """A function that finds text of at least two bytes."""
    vectors_find = _vectors.find

    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return vectors_find(buffer, text, start, stop)

    return find


def lower_copy(buffer: bytearray, start: int, stop: int, into: bytearray) -> None:
    """Copy [start, stop) to the same offset of another buffer, with ASCII letters in lower case."""
    with memoryview(into) as view:
        _vectors.translate(buffer, _LOWER, start=start, end=stop, out=view[start:stop])
