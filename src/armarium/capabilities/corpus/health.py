"""The current warnings of an open corpus, for its log and its status."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

_log = logging.getLogger(__name__)

_MOST_NAMED = 3


class Health:
    """Warnings by subject. Thread-safe."""

    def __init__(self) -> None:
        self._warnings: dict[str, str] = {}
        self._lock = threading.Lock()

    def warn(self, subject: str, message: str) -> None:
        """Set a warning. It is logged once, not each time it is set again."""
        with self._lock:
            new = subject not in self._warnings
            self._warnings[subject] = message
        if new:
            _log.warning("%s", message, extra={"subject": subject})

    def clear(self, subject: str) -> None:
        with self._lock:
            message = self._warnings.pop(subject, None)
        if message is not None:
            _log.info("resolved: %s", message, extra={"subject": subject})

    @property
    def warnings(self) -> list[str]:
        with self._lock:
            return list(self._warnings.values())


def warn_of_rows(health: Health, rel_paths: Collection[str]) -> None:
    """Warn that rows of these documents are damaged. Results leave out their chunks until they are prepared again."""
    named = ", ".join(sorted(path or "an unknown document" for path in rel_paths)[:_MOST_NAMED])
    others = f" and {len(rel_paths) - _MOST_NAMED} more" if len(rel_paths) > _MOST_NAMED else ""
    health.warn(
        f"damaged rows {named}", f"the rows of {named}{others} in meta.sqlite are damaged; results leave them out"
    )
