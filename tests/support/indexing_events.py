"""Sample indexing events, and a clock that the test sets."""

from __future__ import annotations

from armarium.capabilities.corpus.events import IndexLoaded, IndexProgress

NOW = IndexProgress(
    job_id="job_1", running=True, mode="incremental", scanned=412, indexed=55, skipped=340, deleted=2,
    representations=88, chunks_total=1480, embedded_ok=920, errors=1, phase="scan", files_known=500,
)  # fmt: skip
LOADED = IndexLoaded("state", "incremental", 1, 2, 3)


class Clock:
    """Stands still between one assignment of `now` and the next."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
