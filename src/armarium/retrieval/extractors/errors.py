"""What extraction raises."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class ExtractFailed(ArmariumError):
    """No text can be taken from this document: it is broken, locked, or built to exhaust its reader."""

    code = "EXTRACT_FAILED"
