"""Types of the store: scopes, and the results of tools, with the fields of the contract first."""

from __future__ import annotations

from typing import Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict

FileType = Literal["FILE", "DIRECTORY"]
WriteMode = Literal["APPEND", "OVERWRITE", "TRUNCATE"]

ROOT = ""
"""The path of a project's root."""


class Scope(NamedTuple):
    """A tenant and a project. Every statement, lock, job and counter uses both."""

    apikey_hash: str
    project: str


class Stat(TypedDict):
    exists: bool
    type: FileType | Literal[""]
    size: int
    created_at: str
    updated_at: str
    version: NotRequired[int]


class Content(TypedDict):
    content: str
    content_encoding: str
    offset: int
    end: int
    size: int
    version: int


class Written(TypedDict):
    bytes_written: int
    version: int
    size: int


class Deleted(TypedDict):
    deleted_count: int


class Purged(TypedDict):
    purged_files: int
    purged_versions: int
    purged_bytes: int


class Renamed(TypedDict):
    moved_count: int


class Entry(TypedDict):
    """A file, or a directory that exists because files are below it. A directory has no version."""

    name: str
    path: str
    type: FileType
    size: int
    created_at: str
    updated_at: str
    version: NotRequired[int]


class Entries(TypedDict):
    entries: list[Entry]
    has_more: bool


class Chunk(TypedDict):
    file_path: str
    file_seek_start_bytes: int
    file_seek_end_bytes: int
    chunk_content: str
    score: float
    project: str


class Chunks(TypedDict):
    chunks: list[Chunk]
    notice: NotRequired[str]


class KeptVersion(TypedDict):
    version: int
    size: int
    current: bool
    written_at: str
    replaced_at: NotRequired[str]


class Versions(TypedDict):
    versions: list[KeptVersion]


class IndexState(TypedDict):
    """Only of a file, and only if search is enabled."""

    indexed: NotRequired[bool]
    """Whether the current version can be found by a search."""
    pending: NotRequired[bool]
    """Whether a change of the file waits for the index."""


class IndexedStat(Stat, IndexState):
    pass


class EntriesPage(Entries):
    next_cursor: NotRequired[str]


class Project(TypedDict):
    project: str
    files: int
    more_files: bool
    """Whether there are more files than were counted."""
    bytes: int
    kept_bytes: int
    """Bytes of earlier versions and deleted files, which count for the quota too."""
    quota_bytes: int
    pending: int
    """Changes that wait for the index; 0: all files can be found by a search."""
    updated_at: NotRequired[str]


class Projects(TypedDict):
    projects: list[Project]
    next_cursor: NotRequired[str]


class DeletedFile(TypedDict):
    path: str
    size: int
    version: int
    """The version to restore."""
    deleted_at: str


class DeletedFiles(TypedDict):
    files: list[DeletedFile]
    next_cursor: NotRequired[str]


class Sent(TypedDict):
    project: str
    path: str
    version: int
    size: int
    sent: int
