"""Lets a test that must be alone run while no other worker of the same checkout runs one."""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """Workers hold a lock while they run a test: together, unless the test must be alone."""

    def __init__(self, directory: Path) -> None:
        self._door = (directory / "door").open("w")
        self._room = (directory / "room").open("w")

    @contextmanager
    def turn(self, *, alone: bool) -> Generator[None]:
        """For as long as the block runs nobody else runs a test, or nobody else runs one that must be alone."""
        # Who waits to be alone holds the door meanwhile; otherwise the others would come and go and never all be out.
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            # Said, not left to closing: a process that a test forked may still have the descriptor.
            fcntl.flock(self._room, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the locks back."""
        self._door.close()
        self._room.close()
