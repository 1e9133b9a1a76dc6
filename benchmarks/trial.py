"""`--quick`: runs a benchmark at a twentieth of its size, to test the benchmark itself, without storing results."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import measure

QUICK = "--quick" in sys.argv[1:]
SHARE = 20


def scaled(size: int) -> int:
    """The size, reduced in a quick run."""
    return size // SHARE if QUICK else size


def report(name: str, rows: Sequence[Mapping[str, Any]], goal: str, met: bool) -> None:
    """`measure.report`, but a quick run writes no file."""
    if not QUICK:
        measure.report(name, rows, goal, met)
        return
    with tempfile.TemporaryDirectory() as nowhere:
        measure.RESULTS = Path(nowhere)
        measure.report(name, rows, goal, met)
    print("quick run: the size is too small to judge the goal")
