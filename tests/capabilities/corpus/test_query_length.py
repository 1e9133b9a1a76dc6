"""The time of a search is proportional to the length of the query, and queries that are too long are refused at
once."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from armarium.capabilities.corpus.errors import CorpusError
from armarium.capabilities.corpus.query.search import Filters
from armarium.capabilities.corpus.service import MAX_QUERY_CHARACTERS, Corpus
from support.open_corpus import OpenCorpus

UNITS = ["a", "a[", "a[a]", "a_", "aB", "x ", "{; ", "a::", "tower lamp ", "灯 ", "\ufdfa", "e\u0301", "#![("]


async def cpu_s(corpus: Corpus, query: str) -> float:
    """The least of three: what is above it is other work."""
    taken: list[float] = []
    for _ in range(3):
        began = time.process_time()
        await corpus.ask(query, 50, "answer", "auto", Filters())
        taken.append(time.process_time() - began)
    return min(taken)


async def test_a_query_of_any_accepted_length_costs_linear_time(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"tower{number}.md").write_text(
            f"# Tower {number}\n\n" + "The lamp of the tower is lit at dusk. " * 60
        )
        (tmp_path / f"lamp{number}.py").write_text(
            f"def light_lamp_{number}(tower):\n    return tower.lamp[{number}]\n"
        )
    async with OpenCorpus(tmp_path).opened() as corpus:
        for unit in UNITS:
            longest = (unit * MAX_QUERY_CHARACTERS)[:MAX_QUERY_CHARACTERS]
            quarter = await cpu_s(corpus, longest[: MAX_QUERY_CHARACTERS // 4])
            assert await cpu_s(corpus, longest) < 10 * quarter + 2, unit


async def test_a_query_that_is_too_long_is_refused_before_anything_reads_it(tmp_path: Path) -> None:
    (tmp_path / "tower.md").write_text("# Tower\n\nThe lamp is lit at dusk.\n")
    async with OpenCorpus(tmp_path).opened() as corpus:
        for query in ("x" * (MAX_QUERY_CHARACTERS + 1), " " * 12_000_000):
            began = time.process_time()
            with pytest.raises(CorpusError) as refused:
                await corpus.search(query, 10, "auto", Filters())
            assert refused.value.code == "INVALID_FIELD"
            assert str(MAX_QUERY_CHARACTERS) in refused.value.message
            assert time.process_time() - began < 1
        assert (await corpus.search("lamp at dusk".ljust(MAX_QUERY_CHARACTERS), 10, "auto", Filters())).hits
