"""Prints the high and low waters found in a gauge file."""

from __future__ import annotations

import sys
from pathlib import Path

from tidewatch.readings import read_gauge
from tidewatch.turning import turns


def main() -> int:
    """Report on the file named on the command line."""
    if len(sys.argv) != 2:
        print("usage: python -m tidewatch FILE.csv", file=sys.stderr)
        return 2
    for turn in turns(read_gauge(Path(sys.argv[1]))):
        print(f"{turn.reading.time:%a %d %b %H:%M}  {turn.kind:<4}  {turn.reading.level_m:.2f} m")
    return 0


if __name__ == "__main__":
    sys.exit(main())
