"""Names of staged entries. Tools neither show nor accept such names."""

from __future__ import annotations

import os
import re
from bisect import bisect_left

_PREFIX = ".armarium-"
_SUFFIX = ".tmp"
_RANDOM_BYTES = 8
# An exact match: a sweep must not remove users' files with similar names.
_STAGED = re.compile(rf"{re.escape(_PREFIX)}[0-9a-f]{{{2 * _RANDOM_BYTES}}}{re.escape(_SUFFIX)}")


def new_staged_name() -> str:
    """A new, unique name."""
    return f"{_PREFIX}{os.urandom(_RANDOM_BYTES).hex()}{_SUFFIX}"


def is_staged(name: str) -> bool:
    """Whether the name has the form of `new_staged_name`."""
    return name.startswith(_PREFIX) and _STAGED.fullmatch(name) is not None


def leads_through_staged(path: str) -> bool:
    """Whether the path contains a staged name."""
    return _PREFIX in path and any(is_staged(name) for name in path.split("/"))


def drop_staged(names: list[str]) -> None:
    """Remove staged names, with or without a trailing "/", from a sorted list."""
    # They are adjacent, so that a directory costs two comparisons, not one per name.
    first = last = bisect_left(names, _PREFIX)
    while last < len(names) and names[last].startswith(_PREFIX):
        last += 1
    if last > first:
        names[first:last] = [name for name in names[first:last] if not is_staged(name.rstrip("/"))]
