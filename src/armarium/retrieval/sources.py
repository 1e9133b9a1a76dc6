"""Search sources: each capability registers what it can search, and any of them can query all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])


class SearchSource(Protocol):
    """Searches the data of one capability. Its collections may differ between callers."""

    @property
    def kind(self) -> str:
        """The kind of the source. The id of a collection is this word, or starts with it and a colon."""
        ...

    async def collections(self, call: Call) -> Sequence[Collection]:
        """The collections that the caller may search, in display order."""
        ...

    async def search(self, call: Call, collection: str, query: str, most: int) -> Sequence[SourceHit]:
        """The best chunks of one of the caller's collections, best first."""
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
