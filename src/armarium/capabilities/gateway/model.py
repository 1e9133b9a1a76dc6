"""What the gateway speaks of: resources, hits and answers of servers, whichever server they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.upstreams.types import CallResult, UpstreamTool
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call

Secrets = Mapping[str, str]
"""Sensitive parameters by name; see `sensitive`."""


class UpstreamCalls(Protocol):
    """What the RAG tools need of an upstream."""

    async def call(self, tool: str, arguments: Mapping[str, Any], *, timeout_s: float | None = None) -> CallResult:
        """Call a tool; a `GatewayError` when there is no answer."""
        ...

    async def tools(self, *, timeout_s: float | None = None) -> list[UpstreamTool]:
        """What it offers."""
        ...


@dataclass(frozen=True, slots=True)
class Member:
    """A server of the registry, and the connection to it."""

    spec: ServerSpec
    upstream: UpstreamCalls


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that can be searched, as its server tells of it."""

    id: str
    """The server's own; callers are told `<server>:<id>`."""
    name: str
    source_type: str
    auth_mode: str = "none"
    auth_required: bool = False
    source_id: str | None = None
    groups: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    tags: tuple[str, ...] | None = None
    """None: the server does not tell."""
    last_indexed: str | None = None
    docs: int | None = None
    chunks: int | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What a server says it has."""

    resources: Sequence[Resource]
    dropped: int = 0
    """Entries that were none."""
    synthesis_params: Json = field(default_factory=dict[str, Any])
    """How it answers when nobody says otherwise: its model, style and length."""


@dataclass(frozen=True, slots=True)
class DiscoveryFilters:
    """Which resources are wanted."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    search: str = ""

    def __bool__(self) -> bool:
        return bool(self.types or self.tags or self.search)


@dataclass(frozen=True, slots=True)
class Question:
    """What is searched for."""

    query: str
    top_k: int
    filters: Json | None = None
    ranking: Json | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which sources are to be searched, as the caller writes them."""

    sources: Sequence[str]
    servers: Sequence[str] = ()
    """Where ids without a server are looked for; empty is everywhere."""


@dataclass(frozen=True, slots=True)
class Synthesis:
    """How an answer is wanted."""

    params: Json = field(default_factory=dict[str, Any])
    provided: Sequence[Json] | None = None
    """Hits that the caller chose; None: search for them."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a server found."""

    id: str
    score: float
    resource_id: str
    """The server's own."""
    snippet: str | None = None
    chunk: str | None = None
    title: str | None = None
    uri: str | None = None
    source_id: str | None = None
    provenance: Json | None = None
    timestamp: str | None = None
    is_code: bool = False

    @property
    def text(self) -> str:
        """As much of the passage as there is."""
        return self.chunk or self.snippet or ""


@dataclass(frozen=True, slots=True)
class Hits:
    """What one server found, best first."""

    hits: Sequence[Hit]
    dropped: int = 0
    """Hits that were none, or of sources nobody asked for."""
    total_found: int | None = None
    failed: Mapping[str, GatewayError] = field(default_factory=dict[str, GatewayError])
    """Sources that could not be searched while others could."""
    unmet_filters: Sequence[str] = ()
    """Filters that the server cannot judge."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """An answer that a server wrote itself."""

    answer: str
    citations: Sequence[Json] = ()
    limits: Json | None = None
    artifacts: Sequence[Json] = ()
    display: Json | None = None
    model: str | None = None
    tokens: Json | None = None
    """What its model read and wrote, as far as the server tells."""
    dropped: int = 0


class RagServer(Protocol):
    """A server of the three tools, behind a connection or in this process."""

    @property
    def spec(self) -> ServerSpec:
        """What the registry says of it."""
        ...

    async def discover(self, call: Call, filters: DiscoveryFilters, secrets: Secrets) -> Listing:
        """What this caller may search there."""
        ...

    async def search(self, call: Call, question: Question, sources: Sequence[str], secrets: Secrets) -> Hits:
        """What it finds in its own sources."""
        ...

    async def can_synthesize(self) -> bool:
        """Whether it writes answers itself."""
        ...

    async def synthesize(
        self, call: Call, question: Question, sources: Sequence[str], synthesis: Synthesis, secrets: Secrets
    ) -> ServerAnswer:
        """Its own answer."""
        ...
