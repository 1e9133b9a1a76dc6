"""Indexing progress: counted in any thread, published at intervals."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from armarium.capabilities.corpus.events import FileFailed, IndexProgress, Mode

_INTERVAL_S = 0.25
_OF_THE_JOB = ("scanned", "indexed", "skipped", "deleted", "representations", "errors")
_OF_THE_INDEX = ("chunks_total", "embedded_ok")


class Progress:
    """The counters of one job. Thread-safe, and so must be `publish`, which receives the events."""

    def __init__(self, publish: Callable[[object], None]) -> None:
        self.publish = publish
        self._counts: Counter[str] = Counter()
        self._state: dict[str, Any] = {
            "job_id": _new_job(),
            "running": False,
            "mode": "incremental",
            "phase": "idle",
            "files_known": None,
        }
        self._lock = threading.Lock()
        self._published_at = 0.0

    @property
    def now(self) -> IndexProgress:
        """A snapshot of the counters."""
        with self._lock:
            counts: dict[str, Any] = {name: self._counts[name] for name in (*_OF_THE_JOB, *_OF_THE_INDEX)}
            return IndexProgress(**self._state, **counts)

    @property
    def running(self) -> bool:
        """Whether a job is running or about to start."""
        return self._state["running"]

    def begin(self, mode: Mode) -> None:
        """Start a new job: its counters begin at zero, those of the whole index remain."""
        with self._lock:
            for name in _OF_THE_JOB:
                self._counts[name] = 0
        self.put(job_id=_new_job(), running=True, mode=mode, phase="scan", files_known=None)

    def count(self, **more: int) -> None:
        """Add to counters."""
        with self._lock:
            self._counts.update(more)
        self._publish_at_intervals()

    def put(self, *, chunks_total: int | None = None, embedded_ok: int | None = None, **state: Any) -> None:
        """Set values that are not counted. A change of phase is published at once."""
        with self._lock:
            if chunks_total is not None and embedded_ok is not None:
                self._counts.update(chunks_total=chunks_total - self._counts["chunks_total"])
                self._counts.update(embedded_ok=embedded_ok - self._counts["embedded_ok"])
            turned = any(self._state[name] != state.get(name, self._state[name]) for name in ("phase", "running"))
            self._state |= state
        if turned:
            self._published_at = time.monotonic()
            self.publish(self.now)
        else:
            self._publish_at_intervals()

    def file_failed(self, rel_path: str, code: str, message: str) -> None:
        """Publish that a document could not be indexed."""
        self.publish(FileFailed(rel_path, code, message))

    def _publish_at_intervals(self) -> None:
        now = time.monotonic()
        if now - self._published_at >= _INTERVAL_S:
            self._published_at = now
            self.publish(self.now)


def _new_job() -> str:
    return f"job_{uuid4().hex[:12]}"
