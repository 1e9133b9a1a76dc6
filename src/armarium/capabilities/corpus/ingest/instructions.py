"""What a worker process is configured with, as plain values: workers start without the settings code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from armarium.capabilities.corpus.files.exclusion import STATE_PATHS
from armarium.retrieval.chunks import ChunkLimits

_MEGABYTE: Final = 1_000_000
_VERSION = 2
"""Of extraction and chunking. If it changes, the next start prepares every file again."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """The configuration of a worker. `fingerprint` depends on the names of this class and its fields."""

    path_excludes: Sequence[str]
    secret_patterns: Sequence[str]
    state_paths: Sequence[str] = STATE_PATHS
    chunk_limits: ChunkLimits = field(default_factory=ChunkLimits)
    archives: Literal["off", "shallow", "deep"] = "deep"
    pdf: bool = True
    max_bytes: int = 20 * _MEGABYTE
    max_bytes_by_type: Mapping[str, int] = field(default_factory=dict[str, int])
    digest_key: bytes = field(default=b"", repr=False)
    """Keys the digests that identify credentials. Not part of the fingerprint."""

    def limit(self, doc_type: str) -> int:
        return self.max_bytes_by_type.get(doc_type, self.max_bytes)

    @property
    def most_bytes(self) -> int:
        return max(self.max_bytes, *self.max_bytes_by_type.values(), 0)

    def fingerprint(self) -> str:
        """Changes whenever the same file could be prepared differently."""
        return hashlib.sha256(repr((_VERSION, self)).encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        """For the first message to a worker."""
        return {**asdict(self), "digest_key": self.digest_key.hex()}

    @classmethod
    def from_json(cls, message: dict[str, Any]) -> Instructions:
        plain = {name: value for name, value in message.items() if name not in ("chunk_limits", "digest_key")}
        limits, key = ChunkLimits(**message["chunk_limits"]), bytes.fromhex(message["digest_key"])
        return cls(**plain, chunk_limits=limits, digest_key=key)
