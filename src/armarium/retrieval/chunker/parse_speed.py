"""Detects text that a parser would be too slow on, by parsing samples of it.

On text that is not code, error recovery takes the parser quadratic time, and it cannot be interrupted. A slow small
sample selects the place for a large one. Its time is compared with that of simple code of the same length on this
machine: real code takes up to 15 times as long, files that would take minutes 200 times or more. The limit is so far
from both that every machine splits a file in the same way.
"""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING

from armarium.retrieval.chunker.grammars import parser_for

if TYPE_CHECKING:
    from tree_sitter import Parser

_SAMPLE_EVERY_CHARS = 32_000
_SAMPLE_CHARS = 2_000
_LARGE_SAMPLE_CHARS = 16_000
_UNSAMPLED_CHARS = 8_000
_SIMPLE_CODE = ("def area(width, height):\n    return width * height\n\n\n" * 320)[:_LARGE_SAMPLE_CHARS]
_SUSPECT_SLOWDOWN = 25
_MAX_SLOWDOWN = 60


def parses_fast(parser: Parser, text: str, start: int, end: int) -> bool:
    if end - start <= _UNSAMPLED_CHARS:
        return True
    suspects = [
        at
        for at in range(start + _SAMPLE_CHARS, end, _SAMPLE_EVERY_CHARS)
        if _slowdown(parser, text[at : at + _SAMPLE_CHARS]) > _SUSPECT_SLOWDOWN
    ]
    if end - start > 2 * _SAMPLE_EVERY_CHARS:
        suspects.append(start)
    large = (text[at : min(end, at + _LARGE_SAMPLE_CHARS)] for at in suspects)
    # Twice, because the machine may have been busy.
    return not any(all(_slowdown(parser, sample) > _MAX_SLOWDOWN for _ in range(2)) for sample in large)


def _slowdown(parser: Parser, sample: str) -> float:
    """The parse time relative to simple code of the same length."""
    return parse_seconds(parser, sample) / (baseline_s_per_char() * max(1, len(sample)))


@cache
def baseline_s_per_char() -> float:
    """The parse time of simple code on this machine, per character."""
    parser = parser_for("python")
    return min(parse_seconds(parser, _SIMPLE_CODE) for _ in range(5)) / len(_SIMPLE_CODE)


def parse_seconds(parser: Parser, sample: str) -> float:
    began = time.thread_time()
    parser.parse(sample.encode(errors="replace"))
    return time.thread_time() - began
