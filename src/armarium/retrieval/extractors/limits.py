"""How much one document may make us do before we stop reading it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of extraction. Time is the caller's to bound: extraction runs where it can be killed."""

    max_pages: int = 2_000
    """Pages of a PDF; those behind are left out, and their number is told."""
    max_cells: int = 500_000
    """Cells of a workbook; the rows behind are left out."""
    max_messages: int = 10_000
    """Messages of a mailbox; those behind are left out."""
    max_unpacked_bytes: int = 256 * 1024 * 1024
    """What the parts of a zipped document may come to."""
    max_part_bytes: int = 96 * 1024 * 1024
    """What one part of it may come to; as a tree in memory it is ten times that."""
    max_ratio: int = 200
    """How many times its size a zipped document may unpack to."""
    max_parts: int = 20_000
    """How many parts a zipped document may have."""


DEFAULT_LIMITS = Limits()
