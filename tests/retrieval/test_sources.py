"""Capabilities register search sources for as long as they are open."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from armarium.foundation.tools import Call
from armarium.retrieval.sources import NO_FILTERS, Collection, SourceFilters, SourceHits, Sources


class NamedSource:
    """A source of nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def collections(self, call: Call) -> Sequence[Collection]:
        return []

    async def search(
        self, call: Call, collection: str, query: str, most: int, filters: SourceFilters = NO_FILTERS
    ) -> SourceHits:
        return SourceHits(())


def test_a_collection_leads_to_the_source_whose_kind_it_begins_with() -> None:
    sources, store = Sources(), NamedSource("store")
    sources.register(store)
    assert sources.of("store:notes") is store
    assert sources.of("store") is store
    assert sources.of("corpus") is None
    assert sources.of("storehouse:x") is None


def test_a_source_is_gone_once_its_keeper_takes_it_back() -> None:
    sources = Sources()
    first, second = NamedSource("corpus"), NamedSource("store")
    take_back = sources.register(first)
    sources.register(second)
    assert sources.all == (first, second)
    take_back()
    assert sources.all == (second,)


def test_two_sources_of_one_kind_would_be_taken_for_each_other() -> None:
    sources = Sources()
    sources.register(NamedSource("corpus"))
    with pytest.raises(ValueError, match="already"):
        sources.register(NamedSource("corpus"))
