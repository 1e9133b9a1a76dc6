"""Indexing progress: counted in any thread, published at intervals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from armarium.capabilities.corpus.events import IndexProgress, Mode

_INTERVAL_S = 0.25
_OF_THE_JOB = ("scanned", "indexed", "skipped", "deleted", "representations", "errors")


class Progress:
    """The counters of one job. Thread-safe, and so must be `publish`, which receives the events."""

    def __init__(self, publish: Callable[[object], None]) -> None:
        self.publish = publish
        self._now: dict[str, Any] = {
            **dict.fromkeys((*_OF_THE_JOB, "chunks_total", "embedded_ok"), 0),
            "job_id": _new_job(),
            "running": False,
            "mode": "incremental",
            "phase": "idle",
        }
        self._lock = threading.Lock()
        self._published_at = 0.0

    @property
    def now(self) -> IndexProgress:
        with self._lock:
            return IndexProgress(**self._now)

    @property
    def running(self) -> bool:
        """Whether a job is running or about to start."""
        return self._now["running"]

    def begin(self, mode: Mode) -> None:
        """Start a new job: its counters begin at zero, those of the whole index remain."""
        counters = dict.fromkeys(_OF_THE_JOB, 0)
        self.put(**counters, job_id=_new_job(), running=True, mode=mode, phase="scan", files_known=None)

    def count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._now[name] += number
        self._publish(at_once=False)

    def put(self, **values: Any) -> None:
        """Set values. A change of phase is published at once."""
        with self._lock:
            before = self._now
            self._now = before | values
            turned = any(self._now[name] != before[name] for name in ("phase", "running"))
        self._publish(at_once=turned)

    def _publish(self, *, at_once: bool) -> None:
        now = time.monotonic()
        if at_once or now - self._published_at >= _INTERVAL_S:
            self._published_at = now
            self.publish(self.now)


def _new_job() -> str:
    return f"job_{uuid4().hex[:12]}"
