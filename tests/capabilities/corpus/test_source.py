"""The corpus as a search source: its collection is correct, also when nothing new was indexed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from armarium.capabilities.corpus.source import CorpusSource
from armarium.foundation.identity import LOCAL
from armarium.foundation.tools import Call
from support.corpus_calls import write_lighthouse
from support.open_corpus import OpenCorpus


async def test_it_tells_how_much_there_is_after_a_restart_as_well(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write_lighthouse(root)
    for _ in range(2):
        async with OpenCorpus(root).opened() as corpus:
            (collection,) = await CorpusSource(corpus, "root").collections(Call(LOCAL))
            assert (collection.documents, collection.chunks) == (3, 4)
            assert collection.last_indexed is not None
            age = datetime.now(UTC) - datetime.fromisoformat(collection.last_indexed)
            assert timedelta() <= age < timedelta(hours=1)
