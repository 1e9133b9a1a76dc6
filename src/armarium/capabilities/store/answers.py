"""Results of the store's tools, with the fields of the contract first and additional fields last."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from armarium.capabilities.store.files.history import Version
from armarium.capabilities.store.files.listings import Listing
from armarium.capabilities.store.files.reads import Slice
from armarium.capabilities.store.model import FileEntry, FileType
from armarium.capabilities.store.search.file_search import SearchResult
from armarium.foundation.telemetry import timestamp

NO_TIME = "0001-01-01T00:00:00Z"
"""Replaces a missing time: directories have no creation time."""


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


class WriteDone(TypedDict):
    bytes_written: int
    version: int
    size: int


class Deleted(TypedDict):
    deleted_count: int


class Renamed(TypedDict):
    moved_count: int


class Entry(TypedDict):
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


def stat_answer(entry: FileEntry | None) -> Stat:
    """The metadata of a path, or `exists` false."""
    if entry is None:
        return {"exists": False, "type": "", "size": 0, "created_at": NO_TIME, "updated_at": NO_TIME}
    answer: Stat = {
        "exists": True,
        "type": entry.type,
        "size": entry.size,
        "created_at": _moment(entry.created_at),
        "updated_at": timestamp(entry.updated_at),
    }
    if entry.version is not None:
        answer["version"] = entry.version
    return answer


def content_answer(part: Slice) -> Content:
    """Text and its byte range."""
    return {
        "content": part.content,
        "content_encoding": "utf-8",
        "offset": part.offset,
        "end": part.end,
        "size": part.size,
        "version": part.version,
    }


def entries_answer(listing: Listing) -> Entries:
    """A listing."""
    return {"entries": [_entry(entry) for entry in listing.entries], "has_more": listing.has_more}


def chunks_answer(found: SearchResult) -> Chunks:
    """Chunks, best first."""
    answer: Chunks = {
        "chunks": [
            {
                "file_path": chunk.file_path,
                "file_seek_start_bytes": chunk.start,
                "file_seek_end_bytes": chunk.end,
                "chunk_content": chunk.content,
                "score": chunk.score,
                "project": chunk.project,
            }
            for chunk in found.chunks
        ]
    }
    if found.notice is not None:
        answer["notice"] = found.notice
    return answer


def versions_answer(versions: list[Version]) -> Versions:
    """Versions, newest first."""
    return {"versions": [_kept_version(version) for version in versions]}


def _entry(entry: FileEntry) -> Entry:
    answer: Entry = {
        "name": entry.name,
        "path": entry.path,
        "type": entry.type,
        "size": entry.size,
        "created_at": _moment(entry.created_at),
        "updated_at": timestamp(entry.updated_at),
    }
    if entry.version is not None:
        answer["version"] = entry.version
    return answer


def _kept_version(version: Version) -> KeptVersion:
    answer: KeptVersion = {
        "version": version.version,
        "size": version.size,
        "current": version.replaced_at is None,
        "written_at": timestamp(version.written_at),
    }
    if version.replaced_at is not None:
        answer["replaced_at"] = timestamp(version.replaced_at)
    return answer


def _moment(moment: datetime | None) -> str:
    return timestamp(moment) if moment else NO_TIME
