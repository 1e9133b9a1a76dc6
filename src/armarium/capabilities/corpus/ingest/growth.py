"""How much text a file may become in the index, so that a small archive cannot fill a disk."""

from __future__ import annotations

from armarium.capabilities.corpus.errors import FileTooLarge
from armarium.capabilities.corpus.prepared import Prepared

_FREE_CHARS = 4_000_000
"""Any file may become this much, however small it is."""
_MOST_RATIO = 20
"""Characters for each byte of the file. Compressed prose and code come to 3–6, logs to 10–15."""
_MOST_CHARS = 400_000_000
"""Where a large archive may not use up its ratio."""
_LEAST_RATIO = 2
"""What a plain file, cut with overlaps, always may."""
_CHARS_PER_CHUNK = 400
"""On average. Passages have about 2,000 characters, and each costs some 2 kB in the index besides its text."""


class Growth:
    """What one file, with all members if it is an archive, may still put into the index."""

    def __init__(self, size_bytes: int, max_chunk_chars: int) -> None:
        self.max_chars = max(_FREE_CHARS, min(_MOST_RATIO * size_bytes, _MOST_CHARS), _LEAST_RATIO * size_bytes)
        self._chars = self.max_chars
        self._chunks = self.max_chars // max(1, min(_CHARS_PER_CHUNK, max_chunk_chars // 2))

    def spend(self, prepared: Prepared) -> None:
        """Count a document in; raises `FileTooLarge` when it is too much."""
        longest = 0
        for representation in prepared.representations:
            self._chunks -= len(representation.chunks)
            self._chars -= sum(len(chunk.text) + len(chunk.context) for chunk in representation.chunks)
            # The whole text is what the passages were cut from; stored compressed, it costs little beside them.
            longest = max(longest, len(representation.content or ""))
        if self._chars < 0 or self._chunks < 0 or longest > self.max_chars:
            raise FileTooLarge(
                f"it holds more text than a file of its size may put into the index ({self.max_chars:,} characters)"
            )
