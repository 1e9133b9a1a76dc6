"""What plain HTTP says of an error besides its body: the status, and when to try again."""

from __future__ import annotations

import math

from armarium.foundation.errors import ArmariumError


def status_of(error: ArmariumError) -> int:
    """The error's own status, or the one that follows from what is known about it."""
    if error.http_status is not None:
        return error.http_status
    if error.security:
        return 403
    return 503 if error.retryable else 500


def headers_of(error: ArmariumError) -> dict[str, str]:
    """`Retry-After` in whole seconds, where the error knows how long to wait."""
    wait_ms = error.details.get("retry_after_ms")
    return {"retry-after": str(math.ceil(wait_ms / 1000))} if isinstance(wait_ms, int | float) else {}
