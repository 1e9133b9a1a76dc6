"""Errors of extraction and of the search indexes."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class ExtractFailed(ArmariumError):
    """No text can be extracted from the document: it is damaged, encrypted, or hostile."""

    code = "EXTRACT_FAILED"


class DamagedIndex(ArmariumError):
    """The index on disk is damaged or has another format version. It can be rebuilt from the stored chunks."""

    code = "STORE_CORRUPT"


class IndexBusy(ArmariumError):
    """Another process writes to the index."""

    code, retryable = "INDEX_NOT_READY", True
