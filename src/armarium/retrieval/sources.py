"""What can be searched in this server, whichever capability keeps it: each registers here, and anybody may ask all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from armarium.foundation.tools import Call


@dataclass(frozen=True, slots=True)
class Collection:
    """One thing that can be searched by itself, as one caller sees it."""

    id: str
    """Unique in this server, such as `corpus` or `store:notes`."""
    name: str
    documents: int | None = None
    passages: int | None = None
    last_indexed: str | None = None
    """ISO 8601."""


@dataclass(frozen=True, slots=True)
class SourceHit:
    """A passage that was found, with where it stands."""

    id: str
    collection: str
    score: float
    """Only comparable with others of the same search."""
    text: str
    snippet: str
    title: str
    uri: str
    citation: str
    """How an answer names the place, in square brackets."""
    is_code: bool = False
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])


class SearchSource(Protocol):
    """What a capability offers to be searched: one collection for everybody, or other ones for every caller."""

    @property
    def kind(self) -> str:
        """What sort of source it is; the ids of its collections are this word, or begin with it and a colon."""
        ...

    async def collections(self, call: Call) -> Sequence[Collection]:
        """What this caller may search, in the order it is shown."""
        ...

    async def search(self, call: Call, collection: str, query: str, most: int) -> Sequence[SourceHit]:
        """The best passages of one of the caller's collections, best first."""
        ...


class Sources:
    """The sources that are open now."""

    def __init__(self) -> None:
        self._by_kind: dict[str, SearchSource] = {}

    def register(self, source: SearchSource) -> Callable[[], None]:
        """Offer a source until the returned function is called."""
        if source.kind in self._by_kind:
            raise ValueError(f"there is a source of the kind {source.kind} already")
        self._by_kind[source.kind] = source

        def unregister() -> None:
            del self._by_kind[source.kind]

        return unregister

    @property
    def all(self) -> Sequence[SearchSource]:
        """Every source, in the order they were registered."""
        return tuple(self._by_kind.values())

    def of(self, collection: str) -> SearchSource | None:
        """The source that a collection's id belongs to, whether or not there is such a collection."""
        return self._by_kind.get(collection.partition(":")[0])
