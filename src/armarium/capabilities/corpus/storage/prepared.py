"""A file on its way into the index: the request to a worker, and the outcomes it returns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from armarium.foundation.events import ScannerFinding
from armarium.retrieval.chunks import IndexKind, RepType
from armarium.retrieval.spans import SpanKind

LONGEST_TITLE = 500

Status = Literal["ok", "skipped", "error"]


class PrepareRequest(NamedTuple):
    """A file to prepare. If its content still has the known hash, nothing is extracted."""

    rel_path: str
    known_hash: str = ""
    size_bytes: int = 0
    mtime_ns: int = 0


class PreparedChunk(NamedTuple):
    """A chunk. Its hash is empty until the server computes it."""

    text: str
    context: str
    text_hash: bytes
    index_kind: IndexKind
    span_kind: SpanKind
    start: int
    end: int


def chunk_hash(index_kind: IndexKind, context: str, text: str) -> bytes:
    """Identifies the content of a chunk. Only the server computes it: chunks with equal hashes share a vector."""
    return hashlib.blake2b(f"{index_kind}\0{context}\0{text}".encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Representation:
    """One text view of a document."""

    rep_type: RepType
    rep_hash: str
    chunks: Sequence[PreparedChunk]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    content: str | None = None
    """The whole text, if the file itself is not text."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared document, or the reason why there is none."""

    rel_path: str
    doc_type: str
    size_bytes: int
    mtime_ns: int
    content_hash: str
    status: Status
    error: str | None = None
    """`CODE: message` if the status is not ok."""
    container: str | None = None
    """The archive that contains it."""
    representations: Sequence[Representation] = ()
    secrets: Sequence[ScannerFinding] = ()
    """The credentials because of which it is excluded."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The file has a new time and the same content."""

    rel_path: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Vanished:
    """The file was gone, or no longer a regular file, when it was opened."""

    rel_path: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A member of an archive that cannot become a document, because its name is not a valid path."""

    shown_path: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """All outcomes for one file have been sent."""

    rel_path: str


Outcome = Prepared | Unchanged | Vanished | Refused | Finished
