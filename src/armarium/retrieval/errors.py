"""Errors of extraction and of the search indexes."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class ExtractFailed(ArmariumError, code="EXTRACT_FAILED"):
    """No text can be extracted from the document: it is damaged, encrypted, or hostile."""


class DamagedIndex(ArmariumError, code="STORE_CORRUPT"):
    """The index on disk is damaged or has another format version. It can be rebuilt from the stored chunks."""


class IndexBusy(ArmariumError, code="INDEX_NOT_READY", retryable=True):
    """Another process writes to the index."""
