"""The errors of the corpus, with the codes of its contract."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class CorpusError(ArmariumError):
    """The base of all errors of the corpus."""


class MissingField(CorpusError, code="MISSING_FIELD", http_status=400):
    """A required argument is missing."""


class InvalidField(CorpusError, code="INVALID_FIELD", http_status=400):
    """An argument has the wrong type or an unusable value."""


class InvalidRange(CorpusError, code="INVALID_RANGE", http_status=400):
    """A range of lines, pages or time is reversed, or outside the document."""


class Forbidden(CorpusError, code="FORBIDDEN", security=True):
    """Policy blocks the path or the content: an excluded path, or text that contains a credential."""


class PathOutsideRoot(CorpusError, code="PATH_OUTSIDE_ROOT", security=True):
    """The path, or a link on it, leads outside the indexed directory."""


class FileNotFound(CorpusError, code="FILE_NOT_FOUND", http_status=404):
    """No document has this path."""


class DocTypeUnsupported(CorpusError, code="DOC_TYPE_UNSUPPORTED", http_status=422):
    """The operation does not support documents of this type."""


class StoreCorrupt(CorpusError, code="STORE_CORRUPT"):
    """The stored state cannot be read. Rebuilding the index helps."""


class ForeignState(StoreCorrupt, code="STATE_NOT_OURS"):
    """The state directory or the index in it was not written by this user."""


class IndexVersionMismatch(CorpusError, code="INDEX_VERSION_MISMATCH"):
    """The stored index was built by another version, or with other models."""


class IndexNotReady(CorpusError, code="INDEX_NOT_READY", retryable=True):
    """Nothing is indexed yet. Retry in a moment."""


class ExtractFailed(CorpusError, code="EXTRACT_FAILED", http_status=422):
    """The document cannot be read: truncated, damaged, encrypted or hostile."""


class OcrFailed(CorpusError, code="OCR_FAILED", http_status=422):
    """No text was recognised in the image or the scanned pages."""


class TranscribeFailed(CorpusError, code="TRANSCRIBE_FAILED", http_status=422):
    """The recording could not be transcribed."""


class AnnotateFailed(CorpusError, code="ANNOTATE_FAILED", http_status=422):
    """The model returned no annotation that matches the schema."""


class FileTooLarge(CorpusError, code="FILE_TOO_LARGE", http_status=422):
    """The document, or a member of an archive, exceeds its size limit."""


class BinarySkipped(CorpusError, code="BINARY_SKIPPED", http_status=422):
    """The document is binary and has no text to index or show."""


class IndexLocked(CorpusError, code="INDEX_LOCKED", retryable=True):
    """Another process holds the lock for writing the index."""


class IngestionFailed(CorpusError, code="INGESTION_FAILED"):
    """Indexing failed: the directory is inaccessible, or the state cannot be written."""


class StateFull(CorpusError, code="STATE_FULL", http_status=503):
    """The index has reached its size limit. What is indexed stays searchable, nothing is added."""


class IsolationMissing(CorpusError, code="ISOLATION_MISSING"):
    """The kernel cannot isolate the worker processes, and the settings require it."""


class RootInaccessible(CorpusError, code="ROOT_INACCESSIBLE"):
    """The directory to index does not exist or cannot be listed."""


_HINTS = {
    ExtractFailed.code: "repair the file or remove its password, then index it again",
    FileTooLarge.code: "raise ingest.max_file_mb or ingest.max_file_mb_by_type, or split the file",
    Forbidden.code: "remove the credential from the file; security.secret_patterns decides",
    BinarySkipped.code: "nothing to do, unless it should have been text",
    DocTypeUnsupported.code: "files of this type are not indexed with these settings",
    StateFull.code: "raise ingest.max_state_gb, or leave more out with security.path_excludes",
    InvalidField.code: "rename the file",
}


def hint_for(code: str) -> str | None:
    """What to do about a document with an error of this code."""
    return _HINTS.get(code)
