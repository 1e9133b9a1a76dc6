"""Results of the sandbox's tools: typed dictionaries, which are cheap to build for large results."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from armarium.foundation.schema import Json

EntryType = Literal["file", "directory", "symlink", "other"]
TargetType = Literal["file", "directory", "other", "external", "missing"]


class _AtPath(TypedDict):
    root: str
    path: str


class RootInfo(TypedDict):
    name: str
    allowed_tools: list[str]
    read_only: bool


class RootList(TypedDict):
    roots: list[RootInfo]
    count: int


class Entry(TypedDict):
    name: str
    type: EntryType
    size: int
    modified_at: str
    target_type: NotRequired[TargetType]


class Folder(_AtPath):
    entries: list[Entry]
    count: int
    total: int
    next_cursor: NotRequired[str]


class FileContent(TypedDict):
    root: NotRequired[str]
    path: NotRequired[str]
    content: str
    size: int
    truncated: bool
    encoding: str
    binary: bool
    lines_total: NotRequired[int]
    start_line: NotRequired[int]
    end_line: NotRequired[int]
    offset_bytes: NotRequired[int]
    sha256: NotRequired[str]
    note: NotRequired[str]


class FailedRead(TypedDict):
    path: str
    error: Json


class FileContents(TypedDict):
    root: str
    files: list[FileContent | FailedRead]
    count: int


class Written(_AtPath):
    size: int
    mode: str
    created: bool
    sha256: NotRequired[str]


class Patched(_AtPath):
    hunks_applied: int
    created: bool
    size: int
    sha256: str
    dry_run: bool
    diff: NotRequired[str]


class Removed(_AtPath):
    removed: bool
    entries_removed: NotRequired[int]


class FolderCreated(_AtPath):
    created: bool
    existed: bool


class LinkTarget(TypedDict):
    type: TargetType
    path: NotRequired[str]
    size: NotRequired[int]
    is_directory: NotRequired[bool]
    modified_at: NotRequired[str]


class Metadata(_AtPath):
    name: str
    type: EntryType
    size: int
    is_directory: bool
    is_symlink: bool
    modified_at: str
    created_at: NotRequired[str]
    sha256: NotRequired[str]
    target: NotRequired[LinkTarget]


class Hash(_AtPath):
    algorithm: str
    hash: str
    size: int


class Permissions(_AtPath):
    owner: str
    group: str
    mode: str
    mode_string: str


class Copied(TypedDict):
    source: str
    destination: str
    is_directory: bool
    size: NotRequired[int]
    files_copied: int
    skipped: list[str]


class Remaining(TypedDict):
    path: str
    reason: str


class Moved(TypedDict):
    source: str
    destination: str
    complete: NotRequired[bool]
    remaining: NotRequired[list[Remaining]]
    remaining_count: NotRequired[int]


class Match(TypedDict):
    file: str
    line_number: int
    line_content: str
    context_before: list[str]
    context_after: list[str]
    line_truncated: NotRequired[bool]


class FileCount(TypedDict):
    file: str
    count: int


class Matches(TypedDict):
    matches: list[Match]
    files: NotRequired[list[str]]
    counts: NotRequired[list[FileCount]]
    total_matches: int
    truncated: bool
    timed_out: bool
    files_searched: int
    next_offset: NotRequired[int]
    note: NotRequired[str]


class FoundFile(TypedDict):
    path: str
    type: EntryType
    size: int
    modified_at: str


class FoundFiles(TypedDict):
    matches: list[FoundFile]
    total_matches: int
    truncated: bool
    timed_out: bool
    next_offset: NotRequired[int]
    note: NotRequired[str]
