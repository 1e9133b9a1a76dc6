"""What can go wrong in the corpus, each with the stable code its contract gives it."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class CorpusError(ArmariumError):
    """The corpus could not do what was asked of it."""


class MissingField(CorpusError):
    """A required argument is absent."""

    code = "MISSING_FIELD"


class InvalidField(CorpusError):
    """An argument has the wrong type, or a value nothing can be done with."""

    code = "INVALID_FIELD"


class InvalidRange(CorpusError):
    """A range of lines, pages or time is upside down, or lies outside the document."""

    code = "INVALID_RANGE"


class Forbidden(CorpusError):
    """Policy blocks the path or the content: an excluded path, or text that holds a credential."""

    code, security = "FORBIDDEN", True


class PathOutsideRoot(CorpusError):
    """The path, or a link on it, leads outside the indexed directory."""

    code, security = "PATH_OUTSIDE_ROOT", True


class FileNotFound(CorpusError):
    """No document has this path."""

    code = "FILE_NOT_FOUND"


class DocTypeUnsupported(CorpusError):
    """The document is of a type this operation has no use for."""

    code = "DOC_TYPE_UNSUPPORTED"


class StoreCorrupt(CorpusError):
    """The stored state cannot be read; building the index anew helps."""

    code = "STORE_CORRUPT"


class IndexVersionMismatch(CorpusError):
    """The stored index was made by another version, or with other models, than are used now."""

    code = "INDEX_VERSION_MISMATCH"


class IndexNotReady(CorpusError):
    """Nothing is indexed yet; a moment later there is."""

    code, retryable = "INDEX_NOT_READY", True


class ExtractFailed(CorpusError):
    """The document cannot be read as what it claims to be: truncated, damaged, encrypted or hostile."""

    code = "EXTRACT_FAILED"


class OcrFailed(CorpusError):
    """No text could be recognised in the image or the scanned pages."""

    code = "OCR_FAILED"


class TranscribeFailed(CorpusError):
    """The recording could not be turned into text."""

    code = "TRANSCRIBE_FAILED"


class AnnotateFailed(CorpusError):
    """The model gave no annotation that follows the schema."""

    code = "ANNOTATE_FAILED"


class FileTooLarge(CorpusError):
    """The document, or a member of an archive, is over its size limit."""

    code = "FILE_TOO_LARGE"


class BinarySkipped(CorpusError):
    """The document is binary and holds no text to index or to show."""

    code = "BINARY_SKIPPED"


class IndexLocked(CorpusError):
    """Another process holds the right to write the index."""

    code, retryable = "INDEX_LOCKED", True


class StateUnwritable(CorpusError):
    """The state cannot be written: the disk is full, or the directory read-only."""

    code = "INGESTION_FAILED"


class StateFull(CorpusError):
    """The index has reached its budget on disk: what is indexed stays searchable, nothing is added."""

    code = "STATE_FULL"


class IsolationMissing(CorpusError):
    """The kernel cannot isolate the processes that read files, and the settings require it."""

    code = "ISOLATION_MISSING"


class RootInaccessible(CorpusError):
    """The directory to index is not there, or may not be listed."""

    code = "ROOT_INACCESSIBLE"
