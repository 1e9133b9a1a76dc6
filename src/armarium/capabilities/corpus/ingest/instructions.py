"""What a worker process has to know before it can prepare files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from armarium.capabilities.corpus.files.exclusion import STATE_PATHS
from armarium.retrieval.chunks import ChunkLimits

if TYPE_CHECKING:
    # Workers are told what to do in values, and start without what reads settings.
    from armarium.capabilities.corpus.settings import CorpusSettings

MEGABYTE = 1_000_000

_VERSION = 2
"""Of extraction and chunking. A new number makes the next start prepare every file again."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """What a worker has to know."""

    path_excludes: Sequence[str]
    secret_patterns: Sequence[str]
    state_paths: Sequence[str] = STATE_PATHS
    chunk_limits: ChunkLimits = field(default_factory=ChunkLimits)
    archives: Literal["off", "shallow", "deep"] = "deep"
    pdf: bool = True
    max_bytes: int = 20 * MEGABYTE
    max_bytes_by_type: Mapping[str, int] = field(default_factory=dict[str, int])
    digest_key: bytes = field(default=b"", repr=False)
    """What credentials are told apart with; no part of how a file comes out."""

    def limit(self, doc_type: str) -> int:
        """Most bytes a file of that type may have."""
        return self.max_bytes_by_type.get(doc_type, self.max_bytes)

    @property
    def most_bytes(self) -> int:
        """Most bytes a file of any type may have."""
        return max(self.max_bytes, *self.max_bytes_by_type.values(), 0)

    def fingerprint(self) -> str:
        """Changes whenever the same file could come out another way."""
        return hashlib.sha256(repr((_VERSION, self)).encode()).hexdigest()[:16]

    def as_json(self) -> dict[str, Any]:
        """For the message that a worker begins with."""
        return {**asdict(self), "digest_key": self.digest_key.hex()}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Instructions:
        """What `as_json` wrote."""
        plain = {name: value for name, value in told.items() if name not in ("chunk_limits", "digest_key")}
        limits, key = ChunkLimits(**told["chunk_limits"]), bytes.fromhex(told["digest_key"])
        return cls(**plain, chunk_limits=limits, digest_key=key)


def instructions_for(settings: CorpusSettings, state_paths: Sequence[str], digest_key: bytes) -> Instructions:
    """What the settings of a corpus mean for its workers."""
    ingest, chunking = settings.ingest, settings.chunking
    return Instructions(
        path_excludes=settings.path_excludes,
        secret_patterns=settings.secret_patterns,
        state_paths=state_paths,
        chunk_limits=ChunkLimits(
            max_chars=chunking.max_chars,
            overlap_chars=chunking.overlap_chars,
            min_chars=chunking.min_chars,
            code_max_lines=chunking.code.max_lines,
            code_overlap_lines=chunking.code.overlap_lines,
        ),
        archives=ingest.archives.mode,
        pdf=ingest.pdf.mode != "off",
        max_bytes=int(ingest.max_file_mb * MEGABYTE),
        max_bytes_by_type={name: int(size * MEGABYTE) for name, size in ingest.max_file_mb_by_type.items()},
        digest_key=digest_key,
    )
