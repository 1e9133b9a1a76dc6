"""Selects the fastest way to find literal text in a large buffer.

StringZilla compares many bytes at a time. RE2 jumps with `memchr` to the first byte of a pattern, which is faster if
that byte is rare, and has a special automaton for text whose case is ignored. Each way has a cost, derived from
measurements on one core and from the frequency of the bytes in a sample.
"""

from __future__ import annotations

from typing import NamedTuple

from armarium.capabilities.sandbox.reads.byte_scan import Find, text_finder
from armarium.capabilities.sandbox.search.literals import Clause, Literal
from armarium.capabilities.sandbox.search.regex import bytes_finder, quoted

CANDIDATE_NS = 1500.0
"""Cost of checking one candidate line."""

# Costs in nanoseconds. Only their ratios matter, and a wrong one affects only speed.
_SKIP_PER_BYTE = 0.02
_STOP_AT_BYTE = 15.0
_STOP_AT_BYTE_FOLDED = 30.0
_FOLDED_AUTOMATON_PER_BYTE = 0.35
_VECTORS_PER_BYTE = 0.06
_FOLDING_PER_BYTE = 0.14
_SHORTEST_TAIL = 3


class Needle(NamedTuple):
    find: Find
    in_folded: bool = False
    """Whether to search a lower-case copy of the text."""


class Needles(NamedTuple):
    """How to find any literal of a clause."""

    needles: list[Needle]
    """The next candidate is the first occurrence of any of these."""
    price: float
    """Expected cost in nanoseconds per byte."""
    certain: bool
    """Whether every occurrence is one of a whole literal, not only of a part of it."""


def needles_for(clause: Clause, sample: bytes) -> Needles:
    """The cheapest way to find the literals of a clause in text like the sample."""
    each = _together([_folded(literal, sample) if literal.fold else _plain(literal, sample) for literal in clause])
    if not any(literal.fold for literal in clause):
        return each
    # The lower-case copy is created once for all literals.
    copied = _together([_in_copy(literal) if literal.fold else _plain(literal, sample) for literal in clause])
    copied = copied._replace(price=copied.price + _FOLDING_PER_BYTE)
    return min(each, copied, key=lambda needles: needles.price)


def rate(literal: Literal, sample: bytes) -> float:
    """Occurrences of a literal per byte of the sample."""
    content = sample.lower() if literal.fold else sample
    return content.count(literal.text.encode()) / max(1, len(content))


def _together(every: list[Needles]) -> Needles:
    return Needles(
        [needle for needles in every for needle in needles.needles],
        sum(needles.price for needles in every),
        all(needles.certain for needles in every),
    )


def _plain(literal: Literal, sample: bytes) -> Needles:
    text = literal.text.encode()
    if len(text) == 1:
        return Needles([Needle(text_finder(text))], _SKIP_PER_BYTE, certain=True)
    offset, price = _rarest_tail(text, sample, fold=False)
    if price >= _VECTORS_PER_BYTE:
        return Needles([Needle(text_finder(text))], _VECTORS_PER_BYTE, certain=True)
    return Needles([Needle(bytes_finder(quoted(text[offset:])))], price, certain=offset == 0)


def _in_copy(literal: Literal) -> Needles:
    return Needles([Needle(text_finder(literal.text.encode()), in_folded=True)], _VECTORS_PER_BYTE, certain=True)


def _folded(literal: Literal, sample: bytes) -> Needles:
    text = literal.text.encode()
    offset, price = _rarest_tail(text, sample, fold=True)
    if len(text) == 1 or price >= _FOLDED_AUTOMATON_PER_BYTE:
        return Needles([Needle(bytes_finder(quoted(text), fold=True))], _FOLDED_AUTOMATON_PER_BYTE, certain=True)
    first = text[offset : offset + 1]
    tail = b"(?i:" + quoted(text[offset + 1 :]) + b")"
    finds = [bytes_finder(quoted(byte) + tail) for byte in sorted({first, first.upper()})]
    return Needles([Needle(find) for find in finds], price, certain=offset == 0)


def _rarest_tail(text: bytes, sample: bytes, *, fold: bool) -> tuple[int, float]:
    """The offset in the text from which to search, so that false candidates are rare, and the cost."""
    stop = _STOP_AT_BYTE_FOLDED if fold else _STOP_AT_BYTE
    best, least = 0, float("inf")
    for offset in range(max(1, len(text) - _SHORTEST_TAIL + 1)):
        byte = text[offset : offset + 1]
        variants = {byte, byte.upper()} if fold else {byte}
        price = sum(_SKIP_PER_BYTE + stop * sample.count(variant) / max(1, len(sample)) for variant in variants)
        if price < least and offset > 0:
            # A tail has more occurrences than the whole text; the others are false candidates.
            price += CANDIDATE_NS * rate(Literal(text[offset:].decode("latin-1"), fold), sample)
        if price < least:
            best, least = offset, price
    return best, least
