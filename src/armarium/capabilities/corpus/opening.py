"""Shows an exact slice of a document, so that a citation can be checked; what is excluded is never shown."""

from __future__ import annotations

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
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.files.paths import MEMBER_MARK
from armarium.capabilities.corpus.locating import shown_part
from armarium.capabilities.corpus.storage.storage import Storage
from armarium.foundation.files.confine import ConfinedRoot, normalise
from armarium.foundation.files.errors import FileError, IsADirectory, PathEscapesRoot
from armarium.foundation.files.ignore import GitIgnores
from armarium.foundation.files.names import escape_name
from armarium.retrieval.document_types import HEAD_BYTES, DocumentFormat, classify
from armarium.retrieval.encodings import decode
from armarium.retrieval.spans import LineSpan, PageSpan, Span

_WITHOUT_TEXT = frozenset({"image", "audio", "archive"})
_OWN_LINES = frozenset({"code", "text", "md", "data", "html"})


@dataclass(frozen=True, slots=True)
class Slice:
    """Which part of a document is wanted; nothing: its beginning."""

    start_line: int | None = None
    end_line: int | None = None
    page: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    chunk_id: int | None = None
    """A passage of the document: its lines or page, unless others are given, and of what is too long the part that
    begins with it."""
    beginning_with: str = ""
    """The text of that passage."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The part, as it is now."""

    rel_path: str
    doc_type: str
    span: Span | None
    content: str
    truncated: bool


class Opening:
    """Opens documents of one corpus."""

    def __init__(
        self, root: ConfinedRoot, storage: Storage, exclusion: Exclusion, max_bytes: int, *, gitignore: bool = True
    ) -> None:
        """`gitignore`: refuse what .gitignore files of the tree leave out, as discovery does."""
        self._root = root
        self._storage = storage
        self._exclusion = exclusion
        self._max_bytes = max_bytes
        self._gitignore = gitignore

    def open(self, rel_path: str, wanted: Slice, max_chars: int) -> Opened:
        """The slice of the document; raises when there is none, or when it may not be shown."""
        located = self._allowed(rel_path)
        path = escape_name(located)
        wanted = self._around_passage(path, wanted)
        if wanted.page is None and (wanted.start_ms is not None or wanted.end_ms is not None):
            raise DocTypeUnsupported(f"{path} has no transcript", hint="ask for lines instead")
        found, data = self._read_unless_member(located)
        if found is not None and found.doc_type == "binary_ignored":
            raise BinarySkipped(f"{path} is binary; there is no text in it to show")
        if found is not None and found.doc_type in _WITHOUT_TEXT:
            raise DocTypeUnsupported(f"{path} is not a document with text", hint="list_files tells the types")
        if found is not None and _shows_itself(found) and wanted.page is None:
            return self._lines(path, found.doc_type, self._shown(path, decode(data)), wanted, max_chars)
        return self._extracted(path, found, wanted, max_chars)

    def _around_passage(self, path: str, wanted: Slice) -> Slice:
        """The slice with what the passage it names says about it."""
        if wanted.chunk_id is None:
            return wanted
        passage = self._storage.passages.by_id([wanted.chunk_id]).get(wanted.chunk_id)
        if passage is None or passage.rel_path != path:
            raise InvalidField(
                f"{path} has no passage {wanted.chunk_id}", hint="search again; the file may have changed since"
            )
        wanted = replace(wanted, beginning_with=passage.text)
        if wanted.start_line is not None or wanted.end_line is not None or wanted.page is not None:
            return wanted
        match passage.span:
            case LineSpan(start, end):
                return replace(wanted, start_line=start, end_line=end)
            case PageSpan(number):
                return replace(wanted, page=number)
            case _:
                return wanted

    def _allowed(self, rel_path: str) -> str:
        """The name of the document in the file system; raises when it may not be shown."""
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
        asked = (path, archive, member) if mark else (path,)
        if any(self._exclusion.excludes_path(part) for part in asked if part):
            raise Forbidden(f"{escape_name(path)} is excluded by policy", hint="security.path_excludes decides")
        if self._git_hides(path) or (mark and self._git_hides(archive)):
            raise Forbidden(f"{escape_name(path)} is left out by a .gitignore", hint="ingest.gitignore decides")
        return path

    def _git_hides(self, path: str) -> bool:
        """Whether a .gitignore leaves out the file or a directory above it."""
        if not self._gitignore:
            return False
        scopes = GitIgnores.above(self._root.fd, path).scopes
        ends = [index for index, char in enumerate(path) if char == "/"] + [len(path)]
        return any(
            # Only the files above a step speak about it, not those further down the path.
            GitIgnores(tuple(scope for scope in scopes if step.startswith(scope[0]))).hides_entry(step, step != path)
            for step in (path[:end] for end in ends)
        )

    def _read_unless_member(self, path: str) -> tuple[DocumentFormat | None, bytes]:
        try:
            return self._read(path)
        except FileNotFound:
            # A directory may be called what an archive's members are marked with, so the files are asked first.
            if MEMBER_MARK in path:
                return None, b""
            raise

    def _read(self, path: str) -> tuple[DocumentFormat, bytes]:
        shown = escape_name(path)
        try:
            with self._root.opened_regular(path) as (fd, status), open(fd, "rb", closefd=False) as file:
                located = self._root.locate(fd)
                if located != path:
                    self._check_link(path, located)
                head = file.read(HEAD_BYTES)
                found = classify(path, head)
                if found.doc_type in _OWN_LINES and status.st_size > self._max_bytes:
                    raise FileTooLarge(f"{shown} is too large to be shown", hint="ingest.max_file_mb sets the limit")
                return found, head + file.read() if found.doc_type in _OWN_LINES else head
        except PathEscapesRoot as error:
            raise PathOutsideRoot("the path leads outside the indexed directory", private=error.private) from error
        except IsADirectory as error:
            raise FileNotFound(f"{shown or '.'} is a directory", hint="list_files shows what is in it") from error
        except CorpusError:
            raise
        except (FileError, OSError) as error:
            raise FileNotFound(f"{shown} not found", hint="list_files shows what there is") from error

    def _check_link(self, path: str, located: str) -> None:
        """A link must not show under another name what its own name hides."""
        shown = escape_name(path)
        if self._exclusion.excludes_path(located):
            raise Forbidden(f"{shown} is excluded by policy")
        # Where links are followed, one can bring into the index what git leaves out at its own path.
        if self._git_hides(located) and self._storage.documents.state(shown) is None:
            raise Forbidden(f"{shown} leads to what a .gitignore leaves out", hint="ingest.gitignore decides")

    def _shown(self, path: str, text: str) -> str:
        secrets = self._exclusion.secrets_in(text)
        if secrets:
            raise Forbidden(f"{path} holds what looks like a credential ({secrets[0].rule})")
        return text

    def _extracted(self, path: str, found: DocumentFormat | None, wanted: Slice, max_chars: int) -> Opened:
        state = self._storage.documents.state(path)
        stored = self._storage.documents.text(path)
        doc_type = found.doc_type if found is not None else (state[0] if state else "")
        if stored is None:
            raise self._why_there_is_no_text(path, state, found, wanted)
        text, meta = stored
        self._shown(path, text)
        starts: list[int] | None = meta.get("page_starts")
        if wanted.page is not None or (starts and wanted.start_line is None and wanted.end_line is None):
            if not starts:
                raise DocTypeUnsupported(f"{path} has no pages", hint="ask for lines instead")
            return _page(path, doc_type, text, starts, wanted, max_chars)
        return self._lines(path, doc_type, text, wanted, max_chars)

    def _why_there_is_no_text(
        self, path: str, state: tuple[str, str, str | None] | None, found: DocumentFormat | None, wanted: Slice
    ) -> CorpusError:
        if state is None and found is None:
            return FileNotFound(f"{path} not found", hint="list_files shows what there is")
        if state is None:
            return IndexNotReady(f"{path} is not indexed yet", hint="try again in a moment")
        _, status, error = state
        if status != "ok" and error is not None and error.startswith("FORBIDDEN"):
            return Forbidden(f"{path} is excluded by policy")
        for told in (ExtractFailed, FileTooLarge, BinarySkipped):
            if error is not None and error.startswith(told.code):
                return told(f"{path}: {error.partition(': ')[2]}")
        if wanted.page is not None:
            return DocTypeUnsupported(f"{path} has no pages", hint="ask for lines instead")
        return DocTypeUnsupported(f"no text could be read from {path}")

    def _lines(self, path: str, doc_type: str, text: str, wanted: Slice, max_chars: int) -> Opened:
        lines = text.split("\n")
        if lines[-1] == "" and len(lines) > 1:
            lines.pop()
        first = wanted.start_line or 1
        last = wanted.end_line or len(lines)
        if wanted.end_line is not None and wanted.end_line < first:
            raise InvalidRange("end_line is before start_line")
        if first > len(lines):
            raise InvalidRange(f"{path} has {len(lines)} lines", hint="ask for lines that exist")
        chosen = lines[first - 1 : last]
        whole = "\n".join(chosen)
        start, content = shown_part(whole, wanted.beginning_with, max_chars)
        first += whole.count("\n", 0, start)
        shown = first + content.count("\n")
        more = len(content) < len(whole) or (wanted.end_line is None and shown < len(lines))
        return Opened(path, doc_type, LineSpan(first, shown), content, more)


def _shows_itself(found: DocumentFormat) -> bool:
    """Whether the file's own lines are what citations count; a notebook's are not."""
    return found.doc_type in _OWN_LINES and found.name != "ipynb"


def _page(path: str, doc_type: str, text: str, starts: list[int], wanted: Slice, max_chars: int) -> Opened:
    number = wanted.page or 1
    if number > len(starts):
        raise InvalidRange(f"{path} has {len(starts)} pages", hint="ask for a page that exists")
    end = starts[number] if number < len(starts) else len(text)
    whole = text[starts[number - 1] : end].rstrip("\n")
    _, content = shown_part(whole, wanted.beginning_with, max_chars)
    return Opened(path, doc_type, PageSpan(number), content, len(content) < len(whole))
