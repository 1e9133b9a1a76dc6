"""The public events of the corpus: how many there are, and what they contain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio

from armarium.capabilities.corpus.events import (
    DocumentChanged,
    EmbeddingPaused,
    FileFailed,
    IndexingFailed,
    IndexProgress,
)
from armarium.capabilities.corpus.ingest.announcements import announce
from armarium.capabilities.corpus.ingest.rates import ProgressReporter
from armarium.foundation.events import Events, PublicEvent
from support.waiting import eventually

NOW = IndexProgress("job_1", True, "incremental", 1, 0, 0, 0, 0, 40, 10, 0, "scan", 8)
LONG_S = 3600.0


class Heard:
    """What a client hears."""

    def __init__(self, events: Events) -> None:
        self.events: list[PublicEvent] = []
        events.subscribe(PublicEvent, self._hear)

    async def _hear(self, event: PublicEvent) -> None:
        self.events.append(event)

    def data(self, name: str) -> list[dict[str, Any]]:
        return [event.data for event in self.events if event.name == name]


async def test_of_many_events_within_an_interval_only_the_first_is_published() -> None:
    events = Events()
    heard = Heard(events)
    async with announce(events, ProgressReporter(), interval_s=LONG_S):
        await events.publish(NOW)
        await eventually(lambda: heard.events)
        for scanned in range(1000):
            await events.publish(replace(NOW, scanned=scanned))
            await events.publish(FileFailed(f"{scanned}.pdf", "EXTRACT_FAILED", "the PDF is damaged"))
        await anyio.lowlevel.checkpoint()
    assert [event.name for event in heard.events] == ["index_progress"]
    assert heard.events[0].capability == "corpus"


async def test_the_last_state_is_published_and_files_beyond_the_limit_are_counted() -> None:
    events = Events()
    heard = Heard(events)
    async with announce(events, ProgressReporter(), interval_s=0.001):
        for number in range(50):
            await events.publish(replace(NOW, scanned=number, running=number < 49))
            await events.publish(FileFailed(f"{number}.bin", "UNHEARD_OF", "no idea"))
        await eventually(lambda: any(not data["running"] for data in heard.data("index_progress")))
        await eventually(lambda: heard.data("file_failed"))
    failed = heard.data("file_failed")
    assert sum(len(each["files"]) + each["omitted"] for each in failed) == 50
    assert max(len(each["files"]) for each in failed) <= 20
    assert failed[0]["files"][0] == {"rel_path": "0.bin", "code": "UNHEARD_OF", "message": "no idea"}


async def test_each_kind_of_event_has_its_name_and_its_fields() -> None:
    events = Events()
    heard = Heard(events)
    async with announce(events, ProgressReporter(), interval_s=LONG_S):
        await events.publish(DocumentChanged("a.md", "removed"))
        await events.publish(IndexingFailed("ROOT_INACCESSIBLE", "gone"))
        await events.publish(EmbeddingPaused("RATE_LIMITED", "later"))
        await eventually(lambda: len(heard.events) == 3)
    assert heard.data("file_changed") == [{"files": [{"rel_path": "a.md", "change": "removed"}], "omitted": 0}]
    assert heard.data("indexing_failed") == [{"code": "ROOT_INACCESSIBLE", "message": "gone"}]
    assert heard.data("embedding_paused") == [{"code": "RATE_LIMITED", "message": "later"}]


def test_files_and_chunks_are_counted_apart() -> None:
    report = ProgressReporter().report(replace(NOW, indexed=3, skipped=1, errors=2))
    assert report["lexical"] == {"done": 6, "total": 8, "per_second": 0.0}
    assert report["vectors"] == {"done": 10, "total": 40, "per_second": 0.0}
    assert "total" not in ProgressReporter().report(replace(NOW, files_known=None))["lexical"]


def test_the_time_left_follows_from_the_rate() -> None:
    now = [0.0]
    reporter = ProgressReporter(lambda: now[0])
    for second in range(3):
        now[0] = float(second)
        reporter.record(replace(NOW, indexed=second * 2, embedded_ok=10 * second))
    report = reporter.report(replace(NOW, indexed=4, embedded_ok=20))
    assert report["lexical"] == {"done": 4, "total": 8, "per_second": 2.0, "seconds_left": 2}
    assert report["vectors"] == {"done": 20, "total": 40, "per_second": 10.0, "seconds_left": 2}
    assert "seconds_left" not in reporter.report(replace(NOW, indexed=4, running=False))["lexical"]
