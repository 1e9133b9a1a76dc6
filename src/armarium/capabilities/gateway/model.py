"""The data types of the RAG contract: resources, queries, hits and answers of any server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from armarium.capabilities.gateway.errors import GatewayError
from armarium.foundation.schema import Json

Secrets = Mapping[str, str]
"""Secret parameters by name; see `secret_parameters`."""


@dataclass(frozen=True, slots=True)
class Attachments:
    """What a server's response has besides its results."""

    artifacts: Sequence[Json] = ()
    """Files, as the contract describes them."""
    display: Json | None = None
    """How a user interface should show them."""
    meta_data: Json | None = None
    """The server's own metadata."""
    dropped: int = 0
    """Number of invalid files."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A searchable source, as its server describes it."""

    id: str
    """The server's own id; callers see `<server>:<id>`."""
    name: str
    source_type: str
    auth_mode: str = "none"
    auth_required: bool = False
    source_id: str | None = None
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tags: tuple[str, ...] | None = None
    """None if the server does not report tags."""
    last_indexed: str | None = None
    docs: int | None = None
    chunks: int | None = None
    default_selected: bool | None = None
    """None if the server does not report it."""
    incomplete: str | None = None
    """Why documents may be missing, such as an index that is being built."""
    hierarchy: Json = field(default_factory=dict[str, Any])
    """Hints about its place among the resources of its server: `parentId`, `parentIds`, `path`."""


@dataclass(frozen=True, slots=True)
class ResourceList:
    """The sources that a server lists."""

    resources: Sequence[Resource]
    dropped: int = 0
    """Number of invalid entries."""
    synthesis_params: Json = field(default_factory=dict[str, Any])
    """Its defaults for answers: model, style and length."""
    total: int | None = None
    """How many there are on all pages, if the server reports it."""
    attachments: Attachments = Attachments()

    @property
    def by_id(self) -> Mapping[str, Resource]:
        """The resources by the server's own id."""
        return {resource.id: resource for resource in self.resources}


@dataclass(frozen=True, slots=True)
class RagQuery:
    """A search, or a question to answer."""

    query: str
    top_k: int
    filters: Json | None = None
    ranking: Json | None = None
    synthesis_params: Json = field(default_factory=dict[str, Any])
    """How to write the answer."""
    provided: Sequence[Json] | None = None
    """Hits that the caller selected for the answer; None to search for them."""


@dataclass(frozen=True, slots=True)
class RagHit:
    """A chunk that a server found."""

    id: str
    score: float
    resource_id: str
    """The server's own id of the source."""
    snippet: str | None = None
    chunk: str | None = None
    title: str | None = None
    uri: str | None = None
    source_id: str | None = None
    provenance: Json | None = None
    timestamp: str | None = None
    is_code: bool = False
    further: Json = field(default_factory=dict[str, Any])
    """Fields that the contract does not have."""

    @property
    def text(self) -> str:
        """The chunk, or else the snippet."""
        return self.chunk or self.snippet or ""


@dataclass(frozen=True, slots=True)
class RagHits:
    """The hits of one server, best first."""

    hits: Sequence[RagHit]
    dropped: int = 0
    """Number of hits that were invalid or from other sources."""
    total_found: int | None = None
    failed: Mapping[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    """Sources that could not be searched, although others could."""
    unmet_filters: Sequence[str] = ()
    """Filters that the server cannot apply."""
    attachments: Attachments = Attachments()
    incomplete: Mapping[str, str] = field(default_factory=dict[str, str])
    """By source: why its documents may be missing, such as an index that is being built."""


@dataclass(frozen=True, slots=True)
class RagAnswer:
    """An answer, written by a server or by the gateway."""

    answer: str
    """The text, with markers such as [1] for the citations."""
    citations: Sequence[Json] = ()
    limits: Json | None = None
    attachments: Attachments = Attachments()
    model: str | None = None
    tokens: Json | None = None
    """Token usage of its model, if known."""
    dropped: int = 0
    incomplete: Mapping[str, str] = field(default_factory=dict[str, str])
    """By source: why its documents may be missing from a server's answer."""

    def results(self) -> Json:
        """The contract's `results`."""
        results: Json = {"answer": self.answer, "citations": list(self.citations)}
        return results | ({"limits": self.limits} if self.limits else {})
