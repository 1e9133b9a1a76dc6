"""Checks for leaked descriptors of files in a directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def none_left_open(directory: Path) -> Iterator[None]:
    """Assert that everything opened at or below the directory in the block is closed at its end.

    Other descriptors do not count: threads of servers and pools open and close theirs at any moment.
    """
    before = _open_below(directory)
    yield
    after = _open_below(directory)
    left = [after[identity] for identity in after.keys() - before.keys()]
    assert not left, f"left open: {left}"


def _open_below(directory: Path) -> dict[tuple[str, int], str]:
    """Path of each descriptor, by number and inode, so that a moved directory is recognised."""
    top = os.path.realpath(directory)
    found: dict[tuple[str, int], str] = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            place = os.readlink(f"/proc/self/fd/{fd}")
            inode = os.fstat(int(fd)).st_ino
        except OSError:
            continue  # closed since it was listed, or the listing's own
        if place == top or place.startswith((f"{top}/", f"{top} (deleted)")):
            found[fd, inode] = place
    return found
