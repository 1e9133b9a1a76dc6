"""The events that the corpus publishes while it indexes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Mode = Literal["incremental", "full"]


@dataclass(frozen=True, slots=True)
class IndexLoaded:
    """The state on disk was opened or created."""

    state_dir: str
    mode: Mode
    documents: int
    chunks: int
    embedded: int


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """Indexing progress. `chunks_total` and `embedded_ok` count the whole index, all other counters this job."""

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
    """The number of files found: so far during the walk, all of them afterwards. None before the walk."""


@dataclass(frozen=True, slots=True)
class FileFailed:
    """A document could not be indexed. Indexing continues."""

    rel_path: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class IndexingFailed:
    """Indexing ended, because the directory or the state is inaccessible. What is indexed stays searchable."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class EmbeddingPaused:
    """The embedding provider fails. Lexical search works, vectors are missing."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class DocumentChanged:
    """A document was indexed or removed because its file changed while the server runs. Scans of the whole directory
    publish only their progress."""

    rel_path: str
    change: Literal["indexed", "removed"]
