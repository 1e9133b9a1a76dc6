"""Makes one file ready for the index: read, classify, look for secrets, extract, cut."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from armarium.capabilities.corpus.errors import CorpusError, ExtractFailed, FileTooLarge, Forbidden
from armarium.capabilities.corpus.files.archives import ArchiveLimits, Member, SkippedMember, members
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.files.paths import MEMBER_MARK
from armarium.capabilities.corpus.ingest.growth import Growth
from armarium.capabilities.corpus.ingest.instructions import MEGABYTE, Instructions
from armarium.capabilities.corpus.ingest.prepared import (
    LONGEST_TITLE,
    Finished,
    Outcome,
    Prepared,
    PreparedChunk,
    Refused,
    Representation,
    Status,
    Unchanged,
    Vanished,
    Wanted,
)
from armarium.foundation.errors import ArmariumError
from armarium.retrieval.chunker.document import chunk_document
from armarium.retrieval.chunks import Chunk, ExtractedText
from armarium.retrieval.document_types import HEAD_BYTES, DocumentFormat, classify
from armarium.retrieval.encodings import decode
from armarium.retrieval.extractors.document import extract_document
from armarium.retrieval.spans import span_as_columns

_STILL_DOCUMENTS = frozenset({FileTooLarge.code, ExtractFailed.code})
"""Members that cannot be read are listed as such; those without a safe name have nothing to be listed under."""

_LARGEST = 2**62
"""Archives can claim sizes and times that no database holds."""

_NOT_READ_YET = {
    "image": "DOC_TYPE_UNSUPPORTED: images are indexed once a provider that reads them is configured",
    "audio": "DOC_TYPE_UNSUPPORTED: recordings are indexed once a provider that transcribes them is configured",
    "binary_ignored": "BINARY_SKIPPED: not a kind of file that text can be read from",
}


class Preparation:
    """Prepares files as one set of instructions says."""

    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions
        self._exclusion = Exclusion(
            instructions.path_excludes,
            instructions.secret_patterns,
            state_paths=instructions.state_paths,
            digest_key=instructions.digest_key,
        )

    def prepare(self, fd: int, wanted: Wanted) -> Iterator[Outcome]:
        """What becomes of the open file, and of its members if it is an archive; the last outcome is `Finished`."""
        try:
            yield from self._outcomes(fd, wanted)
        except OSError:
            yield Vanished(wanted.rel_path)
        yield Finished(wanted.rel_path)

    def _outcomes(self, fd: int, wanted: Wanted) -> Iterator[Outcome]:
        rel_path = wanted.rel_path
        with open(fd, "rb", closefd=False) as file:
            head = file.read(HEAD_BYTES)
            found = _File(rel_path, classify(rel_path, head), wanted.size_bytes, wanted.mtime_ns)
            refusal = self._refusal(found)
            if refusal is not None:
                yield found.without_content(*refusal)
                return
            # One more byte than allowed tells a file that grew while it was read.
            limit = self._instructions.limit(found.format.doc_type)
            data = head + file.read(limit - len(head) + 1) if len(head) == HEAD_BYTES else head
        if len(data) > limit:
            yield found.without_content("skipped", _too_large(limit))
            return
        content_hash = hashlib.sha256(data).hexdigest()
        growth = Growth(wanted.size_bytes, self._instructions.chunk_limits.max_chars)
        if content_hash == wanted.known_hash:
            yield Unchanged(rel_path, found.size_bytes, found.mtime_ns)
        elif found.format.doc_type == "archive":
            yield from self._archive(found, data, content_hash, growth)
        else:
            yield self._within(growth, found, self._document(found, data, content_hash))

    def _within(self, growth: Growth, found: _File, prepared: Prepared) -> Prepared:
        try:
            growth.spend(prepared)
        except FileTooLarge as error:
            return found.without_content("error", f"{error.code}: {error.message}")
        return prepared

    def _refusal(self, found: _File) -> tuple[Status, str] | None:
        """Why the content is not even read."""
        doc_type = found.format.doc_type
        if doc_type in _NOT_READ_YET:
            return "skipped", _NOT_READ_YET[doc_type]
        if doc_type == "pdf" and not self._instructions.pdf:
            return "skipped", "DOC_TYPE_UNSUPPORTED: PDFs are left out by ingest.pdf.mode"
        if doc_type == "archive" and self._instructions.archives == "off":
            return "skipped", "DOC_TYPE_UNSUPPORTED: archives are left out by ingest.archives.mode"
        limit = self._instructions.limit(doc_type)
        return ("skipped", _too_large(limit)) if found.size_bytes > limit else None

    def _archive(self, found: _File, data: bytes, content_hash: str, growth: Growth) -> Iterator[Outcome]:
        limits = ArchiveLimits(max_member_bytes=self._instructions.max_bytes)
        error: str | None = None
        mode = "deep" if self._instructions.archives == "deep" else "shallow"
        try:
            for member in members(data, limits, mode=mode, wanted=lambda path: not self._exclusion.excludes_path(path)):
                outcome = self._member(found, member)
                if isinstance(outcome, Prepared):
                    growth.spend(outcome)
                yield outcome
        except CorpusError as failure:
            error = f"{failure.code}: {failure.message}"
        state: Status = "error" if error else "ok"
        yield Prepared(
            found.rel_path, "archive", found.size_bytes, found.mtime_ns, "" if error else content_hash, state, error
        )

    def _member(self, archive: _File, member: Member | SkippedMember) -> Prepared | Refused:
        if isinstance(member, SkippedMember):
            shown_path = f"{archive.rel_path}{MEMBER_MARK}{member.shown_path}"
            if member.code not in _STILL_DOCUMENTS:
                return Refused(shown_path, member.code, member.reason)
            # Nothing of it was read, so its name has to tell what it is.
            form = classify(shown_path, b"")
            unread = _File(shown_path, form, min(member.size_bytes, _LARGEST), archive.mtime_ns, archive.rel_path)
            return unread.without_content("skipped", f"{member.code}: {member.reason}")
        rel_path = f"{archive.rel_path}{MEMBER_MARK}{member.path}"
        form = classify(rel_path, member.data[:HEAD_BYTES])
        mtime_ns = min(member.mtime_unix * 1_000_000_000, _LARGEST)
        found = _File(rel_path, form, member.size_bytes, mtime_ns, archive.rel_path)
        refusal = self._refusal(found)
        if refusal is not None:
            return found.without_content(*refusal)
        return self._document(found, member.data, hashlib.sha256(member.data).hexdigest())

    def _document(self, found: _File, data: bytes, content_hash: str) -> Prepared:
        try:
            return self._extracted(found, extract_document(found.format, data), data, content_hash)
        except ArmariumError as error:
            return found.without_content("error", f"{error.code}: {error.message}")
        except Exception as error:  # noqa: BLE001 one document, whatever it is made of, must not end the others
            reason = f"{ExtractFailed.code}: the document cannot be cut into passages ({type(error).__name__})"
            return found.without_content("error", reason)

    def _extracted(self, found: _File, extracted: ExtractedText, data: bytes, content_hash: str) -> Prepared:
        secrets = self._exclusion.secrets_in(extracted.text)
        if not secrets and not extracted.is_file:
            # What a page hides in its markup is not indexed, but whoever opens the file would see it.
            secrets = self._exclusion.secrets_in(data)
        if secrets:
            first = secrets[0]
            refused = found.without_content("skipped", f"{Forbidden.code}: {first.rule} in line {first.line}")
            return replace(refused, secrets=secrets)
        return Prepared(
            found.rel_path,
            found.format.doc_type,
            found.size_bytes,
            found.mtime_ns,
            content_hash,
            "ok",
            container=found.container,
            representations=[self._representation(found, extracted, data)],
        )

    def _representation(self, found: _File, extracted: ExtractedText, data: bytes) -> Representation:
        chunks = chunk_document(extracted, self._instructions.chunk_limits)
        # Every passage is indexed with the title, so a long one would grow with their number.
        title = extracted.title[:LONGEST_TITLE] if extracted.title else None
        meta: dict[str, object] = {"format": found.format.name, "title": title}
        if extracted.page_starts is not None:
            meta["page_starts"] = list(extracted.page_starts)
        content = extracted.text
        if extracted.is_file or extracted.source_lines is not None:
            # Citations count the file's own lines. A member of an archive cannot be opened again as a file, so those
            # are kept; they, not the text made of them.
            content = decode(data) if found.container else None
        # With the lines: markup that grows between the same words moves what is cited.
        places = f"{extracted.structure}\0{extracted.source_lines}\0{extracted.page_starts}"
        return Representation(
            extracted.rep_type,
            hashlib.sha256(f"{places}\0{extracted.text}".encode()).hexdigest(),
            [_prepared_chunk(each) for each in chunks],
            meta,
            content,
        )


@dataclass(frozen=True, slots=True)
class _File:
    """A file about to be read."""

    rel_path: str
    format: DocumentFormat
    size_bytes: int
    mtime_ns: int
    container: str | None = None

    def without_content(self, status: Status, error: str) -> Prepared:
        """The file as the index knows it when nothing of it may or can be kept."""
        doc_type = self.format.doc_type
        return Prepared(self.rel_path, doc_type, self.size_bytes, self.mtime_ns, "", status, error, self.container)


def _prepared_chunk(piece: Chunk) -> PreparedChunk:
    kind, start, end = span_as_columns(piece.span)
    return PreparedChunk(piece.text, piece.context, b"", piece.index_kind, kind, start, end)


def _too_large(limit: int) -> str:
    return f"FILE_TOO_LARGE: larger than {limit / MEGABYTE:g} MB"
