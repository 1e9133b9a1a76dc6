"""Reads the gauge's CSV and keeps the readings that can be true."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

# The fastest change ever surveyed at the quay was 0.9 m in half an hour, during the storm surge of 2013.
MAX_RISE_M = 1.2


@dataclass(frozen=True)
class Reading:
    """The water level at one moment."""

    time: datetime
    level_m: float


def read_gauge(file: Path) -> list[Reading]:
    """Every plausible reading in the file, oldest first."""
    with file.open(newline="", encoding="utf-8") as lines:
        return list(without_spikes(parse(csv.DictReader(lines))))


def parse(rows: Iterable[dict[str, str]]) -> Iterator[Reading]:
    """Turn rows into readings. The gauge leaves `level_m` empty when it lost its float signal."""
    for row in rows:
        if row["level_m"]:
            yield Reading(datetime.fromisoformat(row["time_utc"]), float(row["level_m"]))


def without_spikes(readings: Iterable[Reading]) -> Iterator[Reading]:
    """Drop readings that jump further from the last good one than water can."""
    last: Reading | None = None
    for reading in readings:
        if last is None or abs(reading.level_m - last.level_m) <= MAX_RISE_M:
            yield reading
            last = reading
