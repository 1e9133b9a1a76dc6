"""Reads exact slices of documents, so that citations can be verified. Excluded content is never shown."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from armarium.capabilities.corpus.errors import (
    BinarySkipped,
    CorpusError,
    DocTypeUnsupported,
    ExtractFailed,
    FileNotFound,
    FileTooLarge,
    Forbidden,
    IndexNotReady,
    InvalidField,
    InvalidRange,
    PathOutsideRoot,
)
from armarium.capabilities.corpus.files.discover import MEMBER_MARK, git_hides
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.query.snippets import shown_part
from armarium.capabilities.corpus.storage.chunks import StoredChunk
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.files.confine import ConfinedRoot, normalise
from armarium.foundation.files.errors import FileError, IsADirectory, PathEscapesRoot
from armarium.foundation.files.names import escape_name
from armarium.retrieval.document_types import HEAD_BYTES, DocumentFormat, classify
from armarium.retrieval.encodings import decode
from armarium.retrieval.spans import LineSpan, PageSpan, Span

_WITHOUT_TEXT = frozenset({"image", "audio", "archive"})
_OWN_LINES = frozenset({"code", "text", "md", "data", "html"})


@dataclass(frozen=True, slots=True)
class Slice:
    """The requested part of a document. Without any field: its beginning."""

    start_line: int | None = None
    end_line: int | None = None
    page: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    chunk_id: int | None = None
    """Selects the lines or page of a chunk, unless others are given. In a long line, the slice begins with the
    chunk."""
    beginning_with: str = ""
    """The text of that chunk."""


@dataclass(frozen=True, slots=True)
class OpenedSlice:
    rel_path: str
    doc_type: str
    span: Span | None
    content: str
    truncated: bool


@dataclass(frozen=True, slots=True)
class PdfFile:
    """An open PDF, or an open archive and the path of a PDF in it."""

    rel_path: str
    fd: int
    size_bytes: int
    mtime_ns: int
    member: str


@dataclass(frozen=True, slots=True)
class SliceReader:
    """Reads slices of the documents of one corpus."""

    root: ConfinedRoot
    storage: Storage
    exclusion: Exclusion
    max_bytes: int
    gitignore: bool = True
    """Whether to refuse files that .gitignore files exclude, as discovery does."""

    def read(self, rel_path: str, wanted: Slice, max_chars: int) -> OpenedSlice:
        """Read a slice. Raises if there is none, or if it may not be shown."""
        located = self.located(rel_path)
        path = escape_name(located)
        wanted = self._around_chunk(path, wanted)
        if wanted.page is None and (wanted.start_ms is not None or wanted.end_ms is not None):
            raise DocTypeUnsupported(f"{path} has no transcript", hint="ask for lines instead")
        try:
            found, data = self._read_file(located)
        except FileNotFound:
            # A directory may have a name like an archive's members, so files are tried first.
            if MEMBER_MARK not in located:
                raise
            return self._extracted(path, None, wanted, max_chars)
        if found.doc_type == "binary_ignored":
            raise BinarySkipped(f"{path} is binary; there is no text in it to show")
        if found.doc_type in _WITHOUT_TEXT:
            raise DocTypeUnsupported(f"{path} is not a document with text", hint="list_files shows the types")
        # The citations of a notebook do not refer to the lines of the file itself.
        if found.doc_type in _OWN_LINES and found.name != "ipynb" and wanted.page is None:
            text = decode(data)
            self._refuse_secrets(path, text)
            return _lines(path, found.doc_type, text, wanted, max_chars)
        return self._extracted(path, found.doc_type, wanted, max_chars)

    def _around_chunk(self, path: str, wanted: Slice) -> Slice:
        """The slice with the position of the chunk it names."""
        if wanted.chunk_id is None:
            return wanted
        chunk = self.chunk_of(path, wanted.chunk_id)
        wanted = replace(wanted, beginning_with=chunk.text)
        if wanted.start_line is not None or wanted.end_line is not None or wanted.page is not None:
            return wanted
        match chunk.span:
            case LineSpan(start, end):
                return replace(wanted, start_line=start, end_line=end)
            case PageSpan(number):
                return replace(wanted, page=number)
            case _:
                return wanted

    def chunk_of(self, path: str, chunk_id: int) -> StoredChunk:
        chunk = self.storage.chunks.by_id([chunk_id]).get(chunk_id)
        if chunk is None or chunk.rel_path != path:
            raise InvalidField(f"{path} has no chunk {chunk_id}", hint="search again; the file may have changed since")
        return chunk

    def located(self, rel_path: str) -> str:
        """The file system name of the document. Raises if it may not be shown."""
        inside = rel_path.partition(MEMBER_MARK)[2]
        if rel_path.startswith("/") or ".." in inside.split("/"):
            raise PathOutsideRoot("the path is not relative to the indexed directory", private={"attempted": rel_path})
        try:
            path = normalise(rel_path)
        except PathEscapesRoot as error:
            raise PathOutsideRoot("the path leads outside the indexed directory", private=error.private) from error
        except FileError as error:
            raise FileNotFound(error.message) from error
        archive, mark, member = path.partition(MEMBER_MARK)
        if any(self.exclusion.excludes_path(part) for part in {path, archive, member} if part):
            raise Forbidden(f"{escape_name(path)} is excluded by policy", hint="security.path_excludes decides")
        if self._git_hides(path) or (mark and self._git_hides(archive)):
            raise Forbidden(f"{escape_name(path)} is excluded by a .gitignore", hint="ingest.gitignore decides")
        return path

    def _git_hides(self, path: str) -> bool:
        return self.gitignore and git_hides(self.root, path)

    def _read_file(self, path: str) -> tuple[DocumentFormat, bytes]:
        with self._opened(path) as (fd, status), open(fd, "rb", closefd=False) as file:
            head = file.read(HEAD_BYTES)
            found = classify(path, head)
            if found.doc_type in _OWN_LINES and status.st_size > self.max_bytes:
                shown = escape_name(path)
                raise FileTooLarge(f"{shown} is too large to be shown", hint="ingest.max_file_mb sets the limit")
            return found, head + file.read() if found.doc_type in _OWN_LINES else head

    def _check_link(self, path: str, located: str) -> None:
        """A link must not show under another name what is hidden under its own."""
        shown = escape_name(path)
        if self.exclusion.excludes_path(located):
            raise Forbidden(f"{shown} is excluded by policy")
        # With followed links, a file that git excludes at its own path can be indexed under the link's.
        if self._git_hides(located) and self.storage.documents.state(shown) is None:
            raise Forbidden(f"{shown} leads to a file that a .gitignore excludes", hint="ingest.gitignore decides")

    def _extracted(self, path: str, doc_type: str | None, wanted: Slice, max_chars: int) -> OpenedSlice:
        """A part of the stored text. `doc_type` is None if there is no such file, but perhaps such a member."""
        state = self.storage.documents.state(path)
        stored = self.storage.documents.text(path)
        if stored is None:
            raise _why_there_is_no_text(path, state, doc_type, wanted)
        doc_type = doc_type or (state[0] if state else "")
        text, meta = stored
        self._refuse_secrets(path, text)
        starts: list[int] | None = meta.get("page_starts")
        if wanted.page is not None or (starts and wanted.start_line is None and wanted.end_line is None):
            if not starts:
                raise DocTypeUnsupported(f"{path} has no pages", hint="ask for lines instead")
            return _page(path, doc_type, text, starts, wanted, max_chars)
        return _lines(path, doc_type, text, wanted, max_chars)

    @contextmanager
    def opened_pdf(self, rel_path: str) -> Generator[PdfFile]:
        """An indexed PDF as it was indexed. Raises if it may not be shown, or if it has changed since."""
        located = self.located(rel_path)
        path = escape_name(located)
        state, stored = self.storage.documents.state(path), self.storage.documents.text(path)
        if state is None or stored is None:
            raise _why_there_is_no_text(path, state, None, Slice(page=1))
        if state[0] != "pdf":
            raise DocTypeUnsupported(f"{path} is not a PDF", hint="pages of other documents have no picture")
        self._refuse_secrets(path, stored[0])
        file, mark, member = located.partition(MEMBER_MARK)
        with self._opened(file) as (fd, status):
            known = self.storage.documents.seen(escape_name(file))
            if known != (status.st_size, status.st_mtime_ns):
                raise IndexNotReady(f"{path} changed since it was indexed", hint="try again in a moment")
            yield PdfFile(path, fd, status.st_size, status.st_mtime_ns, member if mark else "")

    @contextmanager
    def _opened(self, path: str) -> Generator[tuple[int, os.stat_result]]:
        """An open file that may be shown under this path."""
        shown = escape_name(path)
        try:
            with self.root.opened_regular(path) as (fd, status):
                located = self.root.locate(fd)
                if located != path:
                    self._check_link(path, located)
                yield fd, status
        except PathEscapesRoot as error:
            raise PathOutsideRoot("the path leads outside the indexed directory", private=error.private) from error
        except IsADirectory as error:
            raise FileNotFound(f"{shown or '.'} is a directory", hint="list_files shows what is in it") from error
        except CorpusError:
            raise
        except (FileError, OSError) as error:
            raise FileNotFound(f"{shown} not found", hint="list_files shows the documents") from error

    def _refuse_secrets(self, path: str, text: str) -> None:
        secrets = self.exclusion.secrets_in(text)
        if secrets:
            raise Forbidden(f"{path} contains what looks like a credential ({secrets[0].rule})")


def _why_there_is_no_text(
    path: str, state: tuple[str, str, str | None] | None, doc_type: str | None, wanted: Slice
) -> CorpusError:
    if state is None and doc_type is None:
        return FileNotFound(f"{path} not found", hint="list_files shows the documents")
    if state is None:
        return IndexNotReady(f"{path} is not indexed yet", hint="try again in a moment")
    code, _, message = (state[2] or "").partition(": ")
    if code == Forbidden.code:
        return Forbidden(f"{path} is excluded by policy")
    for known in (ExtractFailed, FileTooLarge, BinarySkipped):
        if code == known.code:
            return known(f"{path}: {message}")
    if wanted.page is not None:
        return DocTypeUnsupported(f"{path} has no pages", hint="ask for lines instead")
    return DocTypeUnsupported(f"no text could be read from {path}")


def _lines(path: str, doc_type: str, text: str, wanted: Slice, max_chars: int) -> OpenedSlice:
    lines = text.split("\n")
    if lines[-1] == "" and len(lines) > 1:
        lines.pop()
    first = wanted.start_line or 1
    last = wanted.end_line or len(lines)
    if wanted.end_line is not None and wanted.end_line < first:
        raise InvalidRange("end_line is before start_line")
    if first > len(lines):
        raise InvalidRange(f"{path} has {len(lines)} lines", hint="ask for lines that exist")
    whole = "\n".join(lines[first - 1 : last])
    start, content = shown_part(whole, wanted.beginning_with, max_chars)
    first += whole.count("\n", 0, start)
    shown = first + content.count("\n")
    more = len(content) < len(whole) or (wanted.end_line is None and shown < len(lines))
    return OpenedSlice(path, doc_type, LineSpan(first, shown), content, more)


def _page(path: str, doc_type: str, text: str, starts: list[int], wanted: Slice, max_chars: int) -> OpenedSlice:
    number = wanted.page or 1
    if number > len(starts):
        raise InvalidRange(f"{path} has {len(starts)} pages", hint="ask for a page that exists")
    end = starts[number] if number < len(starts) else len(text)
    whole = text[starts[number - 1] : end].rstrip("\n")
    _, content = shown_part(whole, wanted.beginning_with, max_chars)
    return OpenedSlice(path, doc_type, PageSpan(number), content, len(content) < len(whole))
