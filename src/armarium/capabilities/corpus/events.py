"""What the corpus tells while it indexes; a terminal, a log or a console may listen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["incremental", "full"]


@dataclass(frozen=True, slots=True)
class IndexLoaded:
    """The state on disk was opened, or begun."""

    state_dir: str
    mode: Mode
    documents: int
    chunks: int
    embedded: int


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """How far indexing is. Counts are of this job, except `chunks_total` and `embedded_ok`, which are of the index."""

    job_id: str
    running: bool
    mode: Mode
    scanned: int
    indexed: int
    skipped: int
    deleted: int
    representations: int
    chunks_total: int
    embedded_ok: int
    errors: int
    phase: Literal["scan", "embed", "idle"]
    files_known: int | None = None
    """Files found so far while the walk goes on, all of them afterwards; None before the walk began."""


@dataclass(frozen=True, slots=True)
class FileFailed:
    """A document could not be indexed; the rest goes on."""

    rel_path: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class IndexingFailed:
    """Indexing cannot go on: the directory or the state is out of reach. What is indexed stays searchable."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class EmbeddingPaused:
    """The embedding provider refuses; words are searchable, vectors wait."""

    code: str
    message: str
