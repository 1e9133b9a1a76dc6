"""Finds literal text in large buffers as fast as the machine allows without a compiler.

No single method is fastest. libc's `memmem` is, for text made of common letters. RE2 jumps with `memchr` to the first
byte of a pattern, which beats it when that byte is rare in what is searched; and RE2 has a special automaton for text
whose case does not matter. So each is given a price, from figures measured on one core and from how often the bytes
occur in a sample, and the cheapest is taken.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from armarium.capabilities.sandbox.literals import Clause, Literal
from armarium.capabilities.sandbox.regex import Find, bytes_finder, quoted

CANDIDATE_NS = 1500.0
"""Price of looking closely at one line."""

# The prices matter relative to each other, and a wrong one costs speed only. In nanoseconds, as is the one above.
_SKIP_PER_BYTE = 0.02
_STOP_AT_BYTE = 15.0
_STOP_AT_BYTE_FOLDED = 30.0
_FOLDED_AUTOMATON_PER_BYTE = 0.35
_SHORTEST_TAIL = 3
_NEAR_BYTES = 1024


@dataclass(slots=True)
class Sample:
    """Some of the bytes to be searched, to guess from how often others occur."""

    content: bytes

    def share(self, byte: int) -> float:
        """Which part of the sample this byte is."""
        return self.content.count(byte) / max(1, len(self.content))

    def rate(self, literal: Literal) -> float:
        """Occurrences for each byte of the sample."""
        content = self.content.lower() if literal.fold else self.content
        return content.count(literal.text.encode()) / max(1, len(content))


class Needles(NamedTuple):
    """How to find any literal of a clause."""

    finds: list[Find]
    """The next place that may be in a line of interest is the least of these."""
    price: float
    """Expected nanoseconds for each byte."""
    certain: bool
    """Each place found is an occurrence of a literal, not only of a part of one."""


def needles_for(clause: Clause, sample: Sample) -> Needles:
    """The cheapest way to find the literals of a clause in text like the sample."""
    every = [_folded(literal, sample) if literal.fold else _plain(literal, sample) for literal in clause]
    return Needles(
        [find for needles in every for find in needles.finds],
        sum(needles.price for needles in every),
        all(needles.certain for needles in every),
    )


def _plain(literal: Literal, sample: Sample) -> Needles:
    text = literal.text.encode()
    if len(text) == 1:
        return Needles([_one_byte(text)], _SKIP_PER_BYTE, certain=True)
    offset, price = _rarest_tail(text, sample, fold=False)
    price_of_all = 0.06 + 0.6 / (len(text) - 1)
    if price_of_all <= price:
        return Needles([_Memmem(text)], price_of_all, certain=True)
    return Needles([bytes_finder(quoted(text[offset:]))], price, certain=offset == 0)


def _folded(literal: Literal, sample: Sample) -> Needles:
    text = literal.text.encode()
    offset, price = _rarest_tail(text, sample, fold=True)
    if price >= _FOLDED_AUTOMATON_PER_BYTE or len(text) == 1:
        return Needles([bytes_finder(quoted(text), fold=True)], _FOLDED_AUTOMATON_PER_BYTE, certain=True)
    tail = quoted(text[offset + 1 :])
    first = text[offset : offset + 1]
    finds = [bytes_finder(quoted(byte) + b"(?i:" + tail + b")") for byte in {first, first.upper()}]
    return Needles(finds, price, certain=offset == 0)


def _rarest_tail(text: bytes, sample: Sample, *, fold: bool) -> tuple[int, float]:
    """From which byte of the text to search, so that the search seldom stops; and the price."""
    stop = _STOP_AT_BYTE_FOLDED if fold else _STOP_AT_BYTE
    best = (0, float("inf"))
    for offset in range(max(1, len(text) - _SHORTEST_TAIL + 1)):
        byte = text[offset : offset + 1]
        variants = {byte, byte.upper()} if fold else {byte}
        price = sum(_SKIP_PER_BYTE + stop * sample.share(variant[0]) for variant in variants)
        if price < best[1]:
            tail = Literal(text[offset:].decode("latin-1"), fold)
            best = min(
                best, (offset, price + CANDIDATE_NS * sample.rate(tail) * (offset > 0)), key=lambda plan: plan[1]
            )
    return best


def _one_byte(byte: bytes) -> Find:
    def find(buffer: bytes | bytearray, start: int, stop: int) -> int:
        return buffer.find(byte, start, stop)

    return find


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
        begin = near - len(self._text) + 1
        place = _libc_memmem(self._address + begin, stop - begin, self._text, len(self._text))
        return -1 if place is None else place - self._address
