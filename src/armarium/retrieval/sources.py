"""Search sources: each capability registers what it can search, and any of them can query all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from armarium.foundation.tools import Call


@dataclass(frozen=True, slots=True)
class Collection:
    """A separately searchable set of documents, as one caller sees it."""

    id: str
    """Unique in this server, such as `corpus` or `store:notes`."""
    name: str
    documents: int | None = None
    chunks: int | None = None
    last_indexed: str | None = None
    """ISO 8601."""
    incomplete: str | None = None
    """Why documents may be missing, such as an index that is being built."""


@dataclass(frozen=True, slots=True)
class SourceHit:
    """A chunk that was found, with its location."""

    id: str
    collection: str
    score: float
    """Comparable within one search only."""
    text: str
    snippet: str
    title: str
    uri: str
    citation: str
    """The citation for answers, in square brackets."""
    is_code: bool = False
    modified: datetime | None = None
    """When its file was last modified, if known."""
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class SourceFilters:
    """Which documents to search. A filter without a value selects all."""

    date_from: datetime | None = None
    date_to: datetime | None = None
    """When a document was last modified; both are inclusive."""
    tags: Sequence[str] = ()
    owners: Sequence[str] = ()
    """Names of users."""


NO_FILTERS = SourceFilters()


@dataclass(frozen=True, slots=True)
class SourceHits:
    """The result of a search, best first."""

    hits: Sequence[SourceHit]
    unmet_filters: Sequence[str] = ()
    """Names of the filters that the source cannot evaluate. There are no hits then."""
    incomplete: str | None = None
    """Why documents may be missing, such as an index that is being built."""


class SearchSource(Protocol):
    """Searches the data of one capability. Its collections may differ between callers."""

    @property
    def kind(self) -> str:
        """The kind of the source. The id of a collection is this word, or starts with it and a colon."""
        ...

    async def collections(self, call: Call) -> Sequence[Collection]:
        """The collections that the caller may search, in display order."""
        ...

    async def search(
        self, call: Call, collection: str, query: str, most: int, filters: SourceFilters = NO_FILTERS
    ) -> SourceHits:
        """The best chunks of one of the caller's collections."""
        ...


class Sources:
    def __init__(self) -> None:
        self._by_kind: dict[str, SearchSource] = {}

    def register(self, source: SearchSource) -> Callable[[], None]:
        """Register a source. The returned function unregisters it."""
        if source.kind in self._by_kind:
            raise ValueError(f"a source of the kind {source.kind} is already registered")
        self._by_kind[source.kind] = source

        def unregister() -> None:
            del self._by_kind[source.kind]

        return unregister

    @property
    def all(self) -> Sequence[SearchSource]:
        return tuple(self._by_kind.values())

    def of(self, collection: str) -> SearchSource | None:
        """The source for the id of a collection, whether or not the collection exists."""
        return self._by_kind.get(collection.partition(":")[0])
