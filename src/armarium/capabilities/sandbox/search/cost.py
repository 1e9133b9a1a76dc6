"""Estimates the cost of compiling a pattern before compiling it, because RE2 compiles with the GIL held.

A class of characters is many instructions, because RE2 matches bytes: `\\pL` is 1,200, and `\\pL{700}` is 700 times
that. The estimate counts the instructions of every element, times how often it is repeated.
"""

from __future__ import annotations

from functools import lru_cache

from armarium.capabilities.sandbox.search.regex import program_size, too_expensive
from armarium.capabilities.sandbox.search.syntax import Anchor, Char, Choice, Node, Repeat, Sequence, Unknown
from armarium.foundation.files.errors import InvalidPattern

MAX_LENGTH = 10_000
"""Maximum length of a pattern, in characters."""
MAX_INSTRUCTIONS = 30_000
"""About 15 ms of compilation."""
_UNREAD = 2_500
_FIXED = 4
"""Instructions of every program in addition to those of its pattern."""
_MEMORY = 2 * 1024 * 1024
_MEMORY_PER_INSTRUCTION = 800
"""With half of it, RE2 runs out of memory for its automaton on ordinary text and becomes thirty times slower."""


def memory_for(instructions: int) -> int:
    """Memory limit of RE2 for a pattern, including the automata that it builds during the search."""
    return _MEMORY + _MEMORY_PER_INSTRUCTION * instructions


def affordable(node: Node | None) -> int:
    """Estimate the number of instructions of a pattern, or raise `InvalidPattern` if there are too many.

    For None, a pattern that could not be read, it is a guess: RE2 gets no more memory than for so many.
    """
    instructions = _UNREAD if node is None else _cost(node, MAX_INSTRUCTIONS)
    if instructions > MAX_INSTRUCTIONS:
        raise too_expensive()
    return instructions


def require_length(pattern: str) -> None:
    """Raise `InvalidPattern` if the pattern is too long."""
    if len(pattern) > MAX_LENGTH:
        raise InvalidPattern(
            f"invalid pattern: invalid regex: longer than {MAX_LENGTH} characters",
            hint="search for fewer alternatives at once",
            limit=MAX_LENGTH,
        )


def _cost(node: Node, room: int) -> int:
    """Number of instructions of a node. Counting stops above `room`, so that counting is always cheap."""
    match node:
        case Char(text, fold):
            # Two ASCII letters have a third form outside ASCII.
            return 4 if fold and text in "ks" else len(text.encode())
        case Unknown(source, fold):
            return _class_cost(source, fold)
        case Anchor():
            return 1
        case Sequence(parts) | Choice(parts):
            total = 0
            for part in parts:
                total += 1 + _cost(part, room - total)
                if total > room:
                    break
            return total
        case Repeat(part, least, most):
            times = least + 1 if most is None else max(least, most)
            return 1 if times == 0 else times * (1 + _cost(part, room // times))


@lru_cache(maxsize=512)
def _class_cost(source: str, fold: bool) -> int:
    """Number of instructions of a character class, from RE2, which has the tables. Compiling one class is cheap."""
    size = program_size(source, fold=fold)
    return 1 if size is None else max(1, size - _FIXED)
