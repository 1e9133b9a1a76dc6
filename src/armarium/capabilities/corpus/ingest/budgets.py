"""Limits on how much text one file may add to the index, and on how large the state directory may become."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from armarium.capabilities.corpus.errors import FileTooLarge, StateFull
from armarium.capabilities.corpus.storage.prepared import Prepared

_FREE_CHARS = 4_000_000
"""Allowed for every file, however small."""
_MAX_RATIO = 20
"""Characters for each byte of the file. Compressed prose and code reach 3–6, logs 10–15."""
_MAX_CHARS = 400_000_000
"""The limit for large archives, whatever their ratio allows."""
_MIN_RATIO = 2
"""Always allowed: a plain file, chunked with overlaps."""
_CHARS_PER_CHUNK = 400
"""On average. Chunks have about 2,000 characters, and each costs about 2 kB in the index besides its text."""
_CHECK_EVERY_S = 1.0


class TextBudget:
    """How much text one file, with all members if it is an archive, may still add to the index."""

    def __init__(self, size_bytes: int, max_chunk_chars: int) -> None:
        self.max_chars = max(_FREE_CHARS, min(_MAX_RATIO * size_bytes, _MAX_CHARS), _MIN_RATIO * size_bytes)
        self._chars = self.max_chars
        self._chunks = self.max_chars // max(1, min(_CHARS_PER_CHUNK, max_chunk_chars // 2))

    def spend(self, prepared: Prepared) -> None:
        """Count a document. Raises `FileTooLarge` when the budget is exceeded."""
        longest = 0
        for representation in prepared.representations:
            self._chunks -= len(representation.chunks)
            self._chars -= sum(len(chunk.text) + len(chunk.context) for chunk in representation.chunks)
            # The chunks were cut from the whole text. Stored compressed, it costs little beside them.
            longest = max(longest, len(representation.content or ""))
        if self._chars < 0 or self._chunks < 0 or longest > self.max_chars:
            raise FileTooLarge(
                f"it holds more text than a file of its size may put into the index ({self.max_chars:,} characters)"
            )


class StateBudget:
    """The size limit of the state directory. The size is measured once a second, so it may end slightly above."""

    def __init__(self, state_dir: Path, max_bytes: int) -> None:
        self._state_dir = state_dir
        self._max_bytes = max_bytes
        self._is_exhausted = False
        self._next_check_at = 0.0
        self.error = StateFull(
            f"the index has reached its budget of {max_bytes / 1e9:g} GB, and nothing more is added",
            hint="raise ingest.max_state_gb, or leave more out with security.path_excludes",
        )
        """The error of a document that was not added."""

    @property
    def is_exhausted(self) -> bool:
        now = time.monotonic()
        if now >= self._next_check_at:
            self._next_check_at = now + _CHECK_EVERY_S
            self._is_exhausted = sum(_sizes(str(self._state_dir))) >= self._max_bytes
        return self._is_exhausted


def _sizes(directory: str) -> Iterator[int]:
    """The size of each file on disk. Files may appear and vanish meanwhile."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _sizes(entry.path)
                continue
            with suppress(FileNotFoundError):
                yield entry.stat(follow_symlinks=False).st_blocks * 512
