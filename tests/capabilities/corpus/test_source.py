"""The corpus as a search source: its collection is correct, also when nothing new was indexed."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from armarium.capabilities.corpus.source import CorpusSource
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import LOCAL
from armarium.foundation.tools import Call
from armarium.retrieval.sources import SourceFilters
from support.corpus_calls import write_lighthouse
from support.open_corpus import OpenCorpus


async def test_it_tells_how_much_there_is_after_a_restart_as_well(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_lighthouse(root)
    for _ in range(2):
        async with OpenCorpus(root).opened() as corpus:
            (collection,) = await CorpusSource(corpus, "root", Access("corpus")).collections(Call(LOCAL))
            assert (collection.documents, collection.chunks) == (3, 4)
            assert collection.last_indexed is not None
            age = datetime.now(UTC) - datetime.fromisoformat(collection.last_indexed)
            assert timedelta() <= age < timedelta(hours=1)


async def test_dates_select_documents_by_modification(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    for year in (2020, 2024):
        file = root / f"of-{year}.md"
        file.write_text(f"# Lamp\n\nThe lamp of {year} is lit at dusk.\n")
        moment = datetime(year, 5, 31, 12, tzinfo=UTC).timestamp()
        os.utime(file, (moment, moment))
    async with OpenCorpus(root).opened() as corpus:
        source = CorpusSource(corpus, "root", Access("corpus"))

        async def found(first: datetime | None = None, last: datetime | None = None) -> list[str]:
            filters = SourceFilters(date_from=first, date_to=last)
            hits = (await source.search(Call(LOCAL), "corpus", "lamp lit at dusk", 5, filters)).hits
            return sorted(hit.title for hit in hits)

        assert await found() == ["of-2020.md", "of-2024.md"]
        assert await found(datetime(2021, 1, 1, tzinfo=UTC)) == ["of-2024.md"]
        assert await found(None, datetime(2021, 1, 1, tzinfo=UTC)) == ["of-2020.md"]
        assert await found(datetime(2024, 5, 31, 12, tzinfo=UTC), datetime(2024, 5, 31, 12, tzinfo=UTC)) == [
            "of-2024.md"
        ]
        assert await found(datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)) == await found()
        (hit, *_) = (await source.search(Call(LOCAL), "corpus", "lamp of 2024", 5)).hits
        assert hit.modified == datetime(2024, 5, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize("name", ["tags", "owners"])
async def test_a_filter_that_nothing_is_known_for_gives_nothing_and_says_so(tmp_path: Path, name: str) -> None:
    root = tmp_path / "root"
    write_lighthouse(root)
    async with OpenCorpus(root).opened() as corpus:
        found = await CorpusSource(corpus, "root", Access("corpus")).search(
            Call(LOCAL), "corpus", "lamp", 5, SourceFilters(**{name: ["x"]})
        )
    assert (list(found.hits), list(found.unmet_filters)) == ([], [name])


async def test_hits_of_an_index_that_is_being_built_say_so(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_lighthouse(root)
    async with OpenCorpus(root).opened() as corpus:
        source = CorpusSource(corpus, "root", Access("corpus"))
        assert (await source.search(Call(LOCAL), "corpus", "lamp", 5)).incomplete is None
        assert [each.incomplete for each in await source.collections(Call(LOCAL))] == [None]
        corpus.progress.begin("incremental")
        assert [each.incomplete for each in await source.collections(Call(LOCAL))] == ["indexing is still under way"]
        assert (await source.search(Call(LOCAL), "corpus", "lamp", 5)).incomplete == "indexing is still under way"
