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
