"""Capabilities register search sources for as long as they are open."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from armarium.foundation.tools import Call
from armarium.retrieval.sources import Collection, SourceHit, Sources


class Shelf:
    """A source of nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def collections(self, call: Call) -> Sequence[Collection]:
        return []

    async def search(self, call: Call, collection: str, query: str, most: int) -> Sequence[SourceHit]:
        return []


def test_a_collection_leads_to_the_source_whose_kind_it_begins_with() -> None:
    sources, store = Sources(), Shelf("store")
    sources.register(store)
    assert sources.of("store:notes") is store
    assert sources.of("store") is store
    assert sources.of("corpus") is None
    assert sources.of("storehouse:x") is None


def test_a_source_is_gone_once_its_keeper_takes_it_back() -> None:
    sources = Sources()
    first, second = Shelf("corpus"), Shelf("store")
    take_back = sources.register(first)
    sources.register(second)
    assert sources.all == (first, second)
    take_back()
    assert sources.all == (second,)


def test_two_sources_of_one_kind_would_be_taken_for_each_other() -> None:
    sources = Sources()
    sources.register(Shelf("corpus"))
    with pytest.raises(ValueError, match="already"):
        sources.register(Shelf("corpus"))
