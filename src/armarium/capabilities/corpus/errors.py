"""The errors of the corpus, with the codes of its contract."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class CorpusError(ArmariumError):
    """The base of all errors of the corpus."""


class MissingField(CorpusError):
    """A required argument is missing."""

    code = "MISSING_FIELD"


class InvalidField(CorpusError):
    """An argument has the wrong type or an unusable value."""

    code = "INVALID_FIELD"


class InvalidRange(CorpusError):
    """A range of lines, pages or time is reversed, or outside the document."""

    code = "INVALID_RANGE"


class Forbidden(CorpusError):
    """Policy blocks the path or the content: an excluded path, or text that contains a credential."""

    code, security = "FORBIDDEN", True


class PathOutsideRoot(CorpusError):
    """The path, or a link on it, leads outside the indexed directory."""

    code, security = "PATH_OUTSIDE_ROOT", True


class FileNotFound(CorpusError):
    """No document has this path."""

    code = "FILE_NOT_FOUND"


class DocTypeUnsupported(CorpusError):
    """The operation does not support documents of this type."""

    code = "DOC_TYPE_UNSUPPORTED"


class StoreCorrupt(CorpusError):
    """The stored state cannot be read. Rebuilding the index helps."""

    code = "STORE_CORRUPT"


class IndexVersionMismatch(CorpusError):
    """The stored index was built by another version, or with other models."""

    code = "INDEX_VERSION_MISMATCH"


class IndexNotReady(CorpusError):
    """Nothing is indexed yet. Retry in a moment."""

    code, retryable = "INDEX_NOT_READY", True


class ExtractFailed(CorpusError):
    """The document cannot be read: truncated, damaged, encrypted or hostile."""

    code = "EXTRACT_FAILED"


class OcrFailed(CorpusError):
    """No text was recognised in the image or the scanned pages."""

    code = "OCR_FAILED"


class TranscribeFailed(CorpusError):
    """The recording could not be transcribed."""

    code = "TRANSCRIBE_FAILED"


class AnnotateFailed(CorpusError):
    """The model returned no annotation that matches the schema."""

    code = "ANNOTATE_FAILED"


class FileTooLarge(CorpusError):
    """The document, or a member of an archive, exceeds its size limit."""

    code = "FILE_TOO_LARGE"


class BinarySkipped(CorpusError):
    """The document is binary and has no text to index or show."""

    code = "BINARY_SKIPPED"


class IndexLocked(CorpusError):
    """Another process holds the lock for writing the index."""

    code, retryable = "INDEX_LOCKED", True


class StateUnwritable(CorpusError):
    """The state cannot be written: the disk is full, or the directory is read-only."""

    code = "INGESTION_FAILED"


class StateFull(CorpusError):
    """The index has reached its size limit. What is indexed stays searchable, nothing is added."""

    code = "STATE_FULL"


class IsolationMissing(CorpusError):
    """The kernel cannot isolate the worker processes, and the settings require it."""

    code = "ISOLATION_MISSING"


class RootInaccessible(CorpusError):
    """The directory to index does not exist or cannot be listed."""

    code = "ROOT_INACCESSIBLE"
