"""Names of entries that are prepared beside their destination. No tool shows, reads or takes such a name."""

from __future__ import annotations

import os
import re
from bisect import bisect_left

_PREFIX = ".armarium-"
_SUFFIX = ".tmp"
_RANDOM_BYTES = 8
# Exactly: what merely looks similar is somebody's file, and a sweep must not take it.
_STAGED = re.compile(rf"{re.escape(_PREFIX)}[0-9a-f]{{{2 * _RANDOM_BYTES}}}{re.escape(_SUFFIX)}")


def new_staged_name() -> str:
    """A name that nobody else uses."""
    return f"{_PREFIX}{os.urandom(_RANDOM_BYTES).hex()}{_SUFFIX}"


def is_staged(name: str) -> bool:
    """Whether the name is one of those that `new_staged_name` makes."""
    return name.startswith(_PREFIX) and _STAGED.fullmatch(name) is not None


def leads_through_staged(path: str) -> bool:
    """Whether a name on the path is staged."""
    return _PREFIX in path and any(is_staged(name) for name in path.split("/"))


def drop_staged(names: list[str]) -> None:
    """Remove staged names, with or without a "/" behind them, from a sorted list."""
    # They are neighbours in the order, so that a directory costs two comparisons and not one per name.
    first = last = bisect_left(names, _PREFIX)
    while last < len(names) and names[last].startswith(_PREFIX):
        last += 1
    if last > first:
        names[first:last] = [name for name in names[first:last] if not is_staged(name.rstrip("/"))]
