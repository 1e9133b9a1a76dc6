"""How large the state of a corpus may become on disk, however many files ask to be part of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from armarium.capabilities.corpus.errors import StateFull

_LOOK_EVERY_S = 1.0


class StateBudget:
    """Asked before a document is added. It looks at the disk once a second, so the state may end a little above."""

    def __init__(self, state_dir: Path, max_bytes: int) -> None:
        self._state_dir = state_dir
        self._max_bytes = max_bytes
        self._is_exhausted = False
        self._next_look_at = 0.0

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing more may be added."""
        now = time.monotonic()
        if now >= self._next_look_at:
            self._next_look_at = now + _LOOK_EVERY_S
            self._is_exhausted = sum(_sizes(str(self._state_dir))) >= self._max_bytes
        return self._is_exhausted

    @property
    def error(self) -> StateFull:
        """What is told of a document that was not added."""
        return StateFull(
            f"the index has reached its budget of {self._max_bytes / 1e9:g} GB, and nothing more is added",
            hint="raise ingest.max_state_gb, or leave more out with security.path_excludes",
        )


def _sizes(directory: str) -> Iterator[int]:
    """What each file takes on disk; files come and go while they are counted."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _sizes(entry.path)
                    continue
                try:
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
                except FileNotFoundError:
                    continue
    except FileNotFoundError:
        return
