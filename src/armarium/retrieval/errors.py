"""What can be wrong with an index."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class TornIndex(ArmariumError):
    """The index on disk is damaged, or of another version; what it was built from is still there."""

    code = "STORE_CORRUPT"


class IndexBusy(ArmariumError):
    """Another process writes to the index."""

    code, retryable = "INDEX_NOT_READY", True
