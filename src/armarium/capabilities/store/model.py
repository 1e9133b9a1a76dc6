"""Domain types of the store: scopes, files, directories and chunks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

FileType = Literal["FILE", "DIRECTORY"]
WriteMode = Literal["APPEND", "OVERWRITE", "TRUNCATE"]

ROOT = ""
"""The path of a project's root."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A tenant and a project. Every statement, lock, job and counter uses both."""

    apikey_hash: str
    project: str


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file, or a directory that exists because files are below it."""

    name: str
    path: str
    type: FileType
    size: int
    created_at: datetime | None
    """None for directories, which are implicit."""
    updated_at: datetime
    version: int | None = None
    """The project's revision in which the file was last changed; None for directories."""


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """A chunk of a file: the bytes [start, end)."""

    project: str
    file_path: str
    start: int
    end: int
    content: str
    score: float
