"""A file on its way into the index: what a worker process is asked for, and what it hands back."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from armarium.capabilities.corpus.files.exclusion import SecretMatch
from armarium.retrieval.chunks import IndexKind, RepType
from armarium.retrieval.spans import SpanKind

LONGEST_TITLE = 500

Status = Literal["ok", "skipped", "error"]


class PrepareRequest(NamedTuple):
    """A file to prepare. A content hash that is known already spares the work when it is found again."""

    rel_path: str
    known_hash: str = ""
    size_bytes: int = 0
    mtime_ns: int = 0


class PreparedChunk(NamedTuple):
    """A chunk with the hash by which it is known again, which is empty before the server has computed it."""

    text: str
    context: str
    text_hash: bytes
    index_kind: IndexKind
    span_kind: SpanKind
    start: int
    end: int


def chunk_hash(index_kind: IndexKind, context: str, text: str) -> bytes:
    """What a chunk is known by. Equal hashes share a vector, so the server never takes one from a worker."""
    return hashlib.blake2b(f"{index_kind}\0{context}\0{text}".encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Representation:
    """One text view of a document."""

    rep_type: RepType
    rep_hash: str
    chunks: Sequence[PreparedChunk]
    meta: dict[str, Any] = field(default_factory=dict[str, Any])
    content: str | None = None
    """The whole text, where the file itself is not text."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A document, or what kept it from becoming one."""

    rel_path: str
    doc_type: str
    size_bytes: int
    mtime_ns: int
    content_hash: str
    status: Status
    error: str | None = None
    """`CODE: message` when the status is not ok."""
    container: str | None = None
    """The archive it is a member of."""
    representations: Sequence[Representation] = ()
    secrets: Sequence[SecretMatch] = ()
    """What credentials kept it from becoming one."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """The file was touched, and its content is what it was."""

    rel_path: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Vanished:
    """The file was gone, or not a regular file any more, when it was opened."""

    rel_path: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A member of an archive that does not become a document: its name is no path to open."""

    shown_path: str
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """Everything about one file has been handed back."""

    rel_path: str


Outcome = Prepared | Unchanged | Vanished | Refused | Finished
