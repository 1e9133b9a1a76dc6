"""The limits of extraction from one document."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExtractLimits:
    """Bounds of size. Time is not bounded here: callers run extraction in a process that they can kill."""

    max_pages: int = 2_000
    """Further pages of a PDF are skipped and counted."""
    max_cells: int = 500_000
    """Further rows of a workbook are skipped."""
    max_messages: int = 10_000
    """Further messages of a mailbox are skipped."""
    max_unpacked_bytes: int = 256 * 1024 * 1024
    """The total uncompressed size of a zipped document."""
    max_part_bytes: int = 96 * 1024 * 1024
    """The uncompressed size of one part. Its parsed tree needs ten times as much memory."""
    max_ratio: int = 200
    """The compression ratio of a zipped document."""
    max_parts: int = 20_000
    """The number of parts in a zipped document."""


DEFAULT_LIMITS = ExtractLimits()
