"""What a worker process has to know before it can prepare files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from armarium.capabilities.corpus.files.exclusion import STATE_PATHS
from armarium.retrieval.chunking.limits import ChunkLimits

MEGABYTE = 1_000_000

_VERSION = 2
"""Of extraction and chunking. A new number makes the next start prepare every file again."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a worker has to know."""

    root: str
    path_excludes: Sequence[str]
    secret_patterns: Sequence[str]
    state_paths: Sequence[str] = STATE_PATHS
    chunk_limits: ChunkLimits = field(default_factory=ChunkLimits)
    archives: Literal["off", "shallow", "deep"] = "deep"
    pdf: bool = True
    max_bytes: int = 20 * MEGABYTE
    max_bytes_by_type: Mapping[str, int] = field(default_factory=dict[str, int])

    def limit(self, doc_type: str) -> int:
        """Most bytes a file of that type may have."""
        return self.max_bytes_by_type.get(doc_type, self.max_bytes)

    def fingerprint(self) -> str:
        """Changes whenever the same file could come out another way."""
        return hashlib.sha256(repr((_VERSION, self)).encode()).hexdigest()[:16]
