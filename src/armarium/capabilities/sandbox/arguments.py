"""Arguments of the sandbox's tools. Field docstrings are the descriptions that models read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from armarium.foundation.tools import Args

_MOST = 2**53 - 1

Count = Annotated[int, Field(ge=1, le=_MOST)]
Offset = Annotated[int, Field(ge=0, le=_MOST)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")]


class InRoot(Args):
    root: str
    """Name of the root, as list_roots gives it."""


class AtPath(InRoot):
    path: str
    """Path relative to the root. `..` is fine as long as the result stays inside, and so are links."""


class ListFolderArgs(InRoot):
    path: str
    """Directory relative to the root; "" or "." is the root itself."""
    limit: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Maximum number of entries; `next_cursor` of the result leads to the rest."""
    cursor: str | None = None
    """Continue after this cursor, from `next_cursor` of an earlier result."""


class ReadFileArgs(AtPath):
    offset_bytes: Offset | None = None
    """First byte to read, counted from 0. Not together with line parameters."""
    limit_bytes: Offset | None = None
    """Maximum number of bytes to read."""
    offset_lines: Count | None = None
    """First line to read; the first line of a file is 1."""
    limit_lines: Offset | None = None
    """Maximum number of lines to read."""
    tail_lines: Count | None = None
    """Read this many lines from the end instead."""
    number_lines: bool = False
    """Put the line number before every line of the content."""


class ReadFilesArgs(InRoot):
    paths: Annotated[list[str], Field(min_length=1, max_length=100)]
    """Files to read whole, relative to the root. An error for one file does not affect the others."""


class WriteFileArgs(AtPath):
    content: str
    """The text to write; may be empty."""
    mode: Annotated[Literal["overwrite", "append", "create_only"], Field(title="write mode")] = "overwrite"
    """overwrite replaces the file, append adds to its end, create_only fails if it exists."""
    if_match: Sha256 | None = None
    """Write only if the file still has this SHA-256 (from read_file or stat_file); otherwise CONFLICT."""


class RemoveFileArgs(AtPath):
    if_match: Sha256 | None = None
    """Remove only if the file still has this SHA-256; otherwise CONFLICT."""


class PatchFileArgs(AtPath):
    patch: str
    """A unified diff of this one file, as `diff -u` or `git diff` print it."""
    if_match: Sha256 | None = None
    """Patch only if the file still has this SHA-256; otherwise CONFLICT."""
    dry_run: bool = False
    """Change nothing; check whether the patch applies and return the resulting diff."""


class StatFileArgs(AtPath):
    include_sha256: bool = False
    """Also compute the SHA-256 of a file's content, for `if_match`."""


class HashFileArgs(AtPath):
    algorithm: Annotated[Literal["md5", "sha1", "sha256"], Field(title="hash algorithm")]
    """Which hash to compute."""


class TransferArgs(Args):
    source_root: str
    """Name of the root to take from."""
    source_path: str
    """File or directory to take, relative to its root."""
    dest_root: str
    """Name of the root to put into; may be the same."""
    dest_path: str
    """Where to put it, relative to its root. If that is a directory, it is put inside."""
    if_match: Sha256 | None = None
    """Only if the source file still has this SHA-256; otherwise CONFLICT."""


class SearchArgs(InRoot):
    path: str = "."
    """Directory to search, relative to the root."""
    max_results: Count = 100
    """Stop after this many results. The server's own limit is 100,000."""
    offset: Offset = 0
    """Skip this many results. For the next page, pass `next_offset` of the previous result."""
    timeout_seconds: Annotated[int, Field(ge=1, le=_MOST)] = 300
    """Stop after this time, or the server's own limit if that is shorter, and return what was found so far."""
    max_depth: Offset | None = None
    """How many levels of directories to go down; 1 is the searched directory alone, 0 is no limit."""
    respect_gitignore: bool = False
    """Skip files that .gitignore files exclude, and .git itself."""


class GrepArgs(SearchArgs):
    pattern: str
    """Regular expression in RE2 (Go) syntax, matched line by line."""
    glob_filter: str | None = None
    """Only files that match this glob, e.g. `*.go` (by name, anywhere) or `src/**/*.go` (by path)."""
    case_insensitive: bool = False
    """Ignore upper and lower case."""
    context_lines: Annotated[int, Field(ge=0, le=1000)] = 0
    """Lines to show before and after each match."""
    output_mode: Annotated[Literal["content", "files", "count"], Field(title="output mode")] = "content"
    """content: the matching lines; files: only the names of files that match, in `files`; count: how many lines match
    in each, in `counts`. With the last two `max_results` and `offset` count files."""


class GlobArgs(SearchArgs):
    pattern: str | None = None
    """Glob relative to `path`: `*` and `?` within a name, `**` for any directories, `{a,b}`, `[a-z]`, `[!x]`."""
    regex: str | None = None
    """Regular expression (RE2) searched for in the path relative to `path`; instead of `pattern`."""
    type_filter: Annotated[Literal["file", "directory", "symlink", "all"], Field(title="type filter")] = "all"
    """Only entries of this type."""
