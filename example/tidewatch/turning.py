"""Finds the moments at which the tide turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tidewatch.readings import Reading


@dataclass(frozen=True)
class Turn:
    """A high or a low water."""

    kind: Literal["high", "low"]
    reading: Reading


def turns(readings: Sequence[Reading]) -> Iterator[Turn]:
    """Each reading after which the water goes the other way.

    Around slack water the level stays the same for two or three readings; the first of them counts.
    """
    turning_point: Reading | None = None
    rising: bool | None = None
    for before, after in pairwise(readings):
        if after.level_m == before.level_m:
            turning_point = turning_point or before
            continue
        goes_up = after.level_m > before.level_m
        if rising is not None and goes_up != rising:
            yield Turn("high" if rising else "low", turning_point or before)
        rising, turning_point = goes_up, None
