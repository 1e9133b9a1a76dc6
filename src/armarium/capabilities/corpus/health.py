"""What is wrong with an open corpus at the moment, for its log, its status and whoever asks for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

_log = logging.getLogger(__name__)

_MOST_NAMED = 3


class Health:
    """Warnings by subject. Any thread may set and read them."""

    def __init__(self) -> None:
        self._warnings: dict[str, str] = {}
        self._lock = threading.Lock()

    def warn(self, subject: str, message: str) -> None:
        """Something is wrong. The log has it once, not every time it is found again."""
        with self._lock:
            new = subject not in self._warnings
            self._warnings[subject] = message
        if new:
            _log.warning("%s", message, extra={"subject": subject})

    def clear(self, subject: str) -> None:
        """It is as it should be again."""
        with self._lock:
            message = self._warnings.pop(subject, None)
        if message is not None:
            _log.info("repaired: %s", message, extra={"subject": subject})

    @property
    def warnings(self) -> list[str]:
        """What is wrong now."""
        with self._lock:
            return list(self._warnings.values())


def warn_of_rows(health: Health, rel_paths: Collection[str]) -> None:
    """Rows of these documents are damaged: their chunks are left out of results until they are prepared again."""
    named = ", ".join(sorted(path or "an unknown document" for path in rel_paths)[:_MOST_NAMED])
    others = f" and {len(rel_paths) - _MOST_NAMED} more" if len(rel_paths) > _MOST_NAMED else ""
    health.warn(f"damaged rows {named}", f"what meta.sqlite has of {named}{others} is damaged, and left out of results")
