"""How large a passage may become, and how small it should not stay."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Sizes of passages, in characters and, for code, in lines."""

    max_chars: int = 2500
    """No passage is ever longer."""
    overlap_chars: int = 250
    """How much of a passage the next one repeats, where the cut went through something that belongs together."""
    min_chars: int = 200
    """Smaller neighbours are put together, if they belong under the same heading or definition."""
    code_max_lines: int = 200
    code_overlap_lines: int = 30
    """How many lines windows over code repeat, as long as these are no more than `overlap_chars`."""

    def __post_init__(self) -> None:
        if self.max_chars < 1 or self.code_max_lines < 1:
            raise ValueError("a passage holds at least one character and one line")
        if min(self.overlap_chars, self.min_chars, self.code_overlap_lines) < 0:
            raise ValueError("overlaps and least sizes are not negative")

    @property
    def least(self) -> int:
        """`min_chars`, as far as `max_chars` leaves room for it: two such passages always fit into one."""
        return min(self.min_chars, self.max_chars // 2)
