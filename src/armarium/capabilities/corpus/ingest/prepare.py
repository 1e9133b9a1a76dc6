"""Prepares one file for the index: read, classify, scan for credentials, extract, chunk."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

from armarium.capabilities.corpus.errors import CorpusError, ExtractFailed, FileTooLarge, Forbidden
from armarium.capabilities.corpus.files.archives import ArchiveLimits, Member, SkippedMember, members
from armarium.capabilities.corpus.files.discover import MEMBER_MARK
from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.ingest.budgets import TextBudget
from armarium.capabilities.corpus.ingest.instructions import Instructions
from armarium.capabilities.corpus.storage.prepared import (
    LONGEST_TITLE,
    Finished,
    Outcome,
    Prepared,
    PreparedChunk,
    PrepareRequest,
    Refused,
    Representation,
    Unchanged,
    Vanished,
)
from armarium.foundation.errors import ArmariumError
from armarium.retrieval.chunker.document import chunk_document
from armarium.retrieval.chunks import ExtractedText
from armarium.retrieval.document_types import HEAD_BYTES, DocumentFormat, classify
from armarium.retrieval.encodings import decode
from armarium.retrieval.extractors.document import extract_document
from armarium.retrieval.spans import span_as_columns

_STILL_DOCUMENTS = frozenset({FileTooLarge.code, ExtractFailed.code})
"""Members with these errors are listed as documents. Members without a safe name cannot be."""

_LARGEST = 2**62
"""Archives can declare sizes and times that no database can store."""

_NOT_READ_YET = {
    "image": "DOC_TYPE_UNSUPPORTED: images are indexed once a provider that reads them is configured",
    "audio": "DOC_TYPE_UNSUPPORTED: recordings are indexed once a provider that transcribes them is configured",
    "binary_ignored": "BINARY_SKIPPED: not a kind of file that text can be read from",
}


class Preparation:
    """Prepares files according to its instructions."""

    def __init__(self, instructions: Instructions) -> None:
        self._instructions = instructions
        self._exclusion = Exclusion(
            instructions.path_excludes,
            instructions.secret_patterns,
            state_paths=instructions.state_paths,
            digest_key=instructions.digest_key,
        )

    def prepare(self, fd: int, wanted: PrepareRequest) -> Iterator[Outcome]:
        """The outcomes for an open file, and for its members if it is an archive. The last one is `Finished`."""
        try:
            yield from self._outcomes(fd, wanted)
        except OSError:
            yield Vanished(wanted.rel_path)
        yield Finished(wanted.rel_path)

    def _outcomes(self, fd: int, wanted: PrepareRequest) -> Iterator[Outcome]:
        rel_path = wanted.rel_path
        with open(fd, "rb", closefd=False) as file:
            head = file.read(HEAD_BYTES)
            form = classify(rel_path, head)
            found = Prepared(rel_path, form.doc_type, wanted.size_bytes, wanted.mtime_ns, "", "ok")
            refusal = self._refusal(found)
            if refusal is not None:
                yield refusal
                return
            # One byte more than allowed, to detect a file that grew while it was read.
            limit = self._instructions.limit(form.doc_type)
            data = head + file.read(limit - len(head) + 1) if len(head) == HEAD_BYTES else head
        if len(data) > limit:
            yield _skipped(found, _too_large(limit))
            return
        found = replace(found, content_hash=hashlib.sha256(data).hexdigest())
        budget = TextBudget(wanted.size_bytes, self._instructions.chunk_limits.max_chars)
        if found.content_hash == wanted.known_hash:
            yield Unchanged(rel_path, found.size_bytes, found.mtime_ns)
        elif form.doc_type == "archive":
            yield from self._archive(found, data, budget)
        else:
            prepared = self._document(found, form, data)
            try:
                budget.spend(prepared)
            except FileTooLarge as error:
                prepared = _failed(found, error)
            yield prepared

    def _refusal(self, found: Prepared) -> Prepared | None:
        """The document of a file whose content is not read at all."""
        doc_type = found.doc_type
        limit = self._instructions.limit(doc_type)
        if doc_type in _NOT_READ_YET:
            return _skipped(found, _NOT_READ_YET[doc_type])
        if doc_type == "pdf" and not self._instructions.pdf:
            return _skipped(found, "DOC_TYPE_UNSUPPORTED: PDFs are left out by ingest.pdf.mode")
        if doc_type == "archive" and self._instructions.archives == "off":
            return _skipped(found, "DOC_TYPE_UNSUPPORTED: archives are left out by ingest.archives.mode")
        return _skipped(found, _too_large(limit)) if found.size_bytes > limit else None

    def _archive(self, found: Prepared, data: bytes, budget: TextBudget) -> Iterator[Outcome]:
        limits = ArchiveLimits(max_member_bytes=self._instructions.max_bytes)
        deep = self._instructions.archives == "deep"
        try:
            for member in members(data, limits, deep=deep, wanted=lambda path: not self._exclusion.excludes_path(path)):
                outcome = self._member(found, member)
                if isinstance(outcome, Prepared):
                    budget.spend(outcome)
                yield outcome
        except CorpusError as error:
            yield _failed(found, error)
        else:
            yield found

    def _member(self, archive: Prepared, member: Member | SkippedMember) -> Prepared | Refused:
        if isinstance(member, SkippedMember):
            shown_path = f"{archive.rel_path}{MEMBER_MARK}{member.shown_path}"
            if member.code not in _STILL_DOCUMENTS:
                return Refused(shown_path, member.code, member.reason)
            # Nothing of it was read, so the name alone determines the type.
            doc_type, size_bytes = classify(shown_path, b"").doc_type, min(member.size_bytes, _LARGEST)
            error = f"{member.code}: {member.reason}"
            return Prepared(shown_path, doc_type, size_bytes, archive.mtime_ns, "", "skipped", error, archive.rel_path)
        rel_path = f"{archive.rel_path}{MEMBER_MARK}{member.path}"
        form = classify(rel_path, member.data[:HEAD_BYTES])
        mtime_ns = min(member.mtime_unix * 1_000_000_000, _LARGEST)
        found = Prepared(rel_path, form.doc_type, member.size_bytes, mtime_ns, "", "ok", container=archive.rel_path)
        if (refusal := self._refusal(found)) is not None:
            return refusal
        found = replace(found, content_hash=hashlib.sha256(member.data).hexdigest())
        return self._document(found, form, member.data)

    def _document(self, found: Prepared, form: DocumentFormat, data: bytes) -> Prepared:
        try:
            extracted = extract_document(form, data)
            secrets = self._exclusion.secrets_in(extracted.text)
            if not secrets and not extracted.is_file:
                # Hidden markup is not indexed, but a client that opens the file would see it.
                secrets = self._exclusion.secrets_in(data)
            if secrets:
                first = secrets[0]
                refused = _skipped(found, f"{Forbidden.code}: {first.rule} in line {first.line}")
                return replace(refused, secrets=secrets)
            return replace(found, representations=[self._representation(found, form, extracted, data)])
        except ArmariumError as error:
            return _failed(found, error)
        except Exception as error:  # noqa: BLE001 one document, whatever it is made of, must not end the others
            reason = f"the document cannot be split into chunks ({type(error).__name__})"
            return _failed(found, ExtractFailed(reason))

    def _representation(
        self, found: Prepared, form: DocumentFormat, extracted: ExtractedText, data: bytes
    ) -> Representation:
        # Every chunk is indexed with the title, so a long title would multiply.
        title = extracted.title[:LONGEST_TITLE] if extracted.title else None
        meta: dict[str, object] = {"format": form.name, "title": title}
        if extracted.page_starts is not None:
            meta["page_starts"] = list(extracted.page_starts)
        content = extracted.text
        if extracted.is_file or extracted.source_lines is not None:
            # Citations refer to the lines of the file. A member of an archive cannot be opened as a file, so its lines
            # are stored instead of the extracted text.
            content = decode(data) if found.container else None
        # With the line numbers: if only markup between the same words changes, the cited lines move.
        places = f"{extracted.structure}\0{extracted.source_lines}\0{extracted.page_starts}"
        rep_hash = hashlib.sha256(f"{places}\0{extracted.text}".encode()).hexdigest()
        chunks = [
            PreparedChunk(each.text, each.context, b"", each.index_kind, *span_as_columns(each.span))
            for each in chunk_document(extracted, self._instructions.chunk_limits)
        ]
        return Representation(extracted.rep_type, rep_hash, chunks, meta, content)


def _skipped(found: Prepared, error: str) -> Prepared:
    return replace(found, content_hash="", status="skipped", error=error)


def _failed(found: Prepared, error: ArmariumError) -> Prepared:
    return replace(found, content_hash="", status="error", error=f"{error.code}: {error.message}")


def _too_large(limit: int) -> str:
    return f"FILE_TOO_LARGE: larger than {limit / 1e6:g} MB"
