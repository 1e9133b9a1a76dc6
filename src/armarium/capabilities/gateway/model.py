"""The data types of the RAG contract: resources, queries, hits and answers of any server."""

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
"""Secret parameters by name; see `secret_parameters`."""


class UpstreamCalls(Protocol):
    """The part of an upstream that a RAG server needs."""

    async def call(self, tool: str, arguments: Mapping[str, Any], *, timeout_s: float | None = None) -> CallResult:
        """Call a tool. Raises `GatewayError` if there is no result."""
        ...

    async def tools(self, *, timeout_s: float | None = None) -> list[UpstreamTool]:
        """The tools it offers."""
        ...


@dataclass(frozen=True, slots=True)
class ConfiguredServer:
    """A server of the configuration files, and its upstream."""

    spec: ServerSpec
    upstream: UpstreamCalls


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


@dataclass(frozen=True, slots=True)
class ResourceList:
    """The sources that a server lists."""

    resources: Sequence[Resource]
    dropped: int = 0
    """Number of invalid entries."""
    synthesis_params: Json = field(default_factory=dict[str, Any])
    """Its defaults for answers: model, style and length."""


@dataclass(frozen=True, slots=True)
class DiscoveryFilters:
    """Which resources to list."""

    types: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    search: str = ""

    def __bool__(self) -> bool:
        return bool(self.types or self.tags or self.search)


@dataclass(frozen=True, slots=True)
class RagQuery:
    """A search."""

    query: str
    top_k: int
    filters: Json | None = None
    ranking: Json | None = None


@dataclass(frozen=True, slots=True)
class SourceSelection:
    """The sources to search, as the caller wrote them."""

    sources: Sequence[str]
    servers: Sequence[str] = ()
    """Where ids without a server are looked up; empty means all servers."""


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
    """How to write an answer."""

    params: Json = field(default_factory=dict[str, Any])
    provided: Sequence[Json] | None = None
    """Hits that the caller selected; None to search for them."""


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


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """An answer written by a server."""

    answer: str
    citations: Sequence[Json] = ()
    limits: Json | None = None
    artifacts: Sequence[Json] = ()
    display: Json | None = None
    model: str | None = None
    tokens: Json | None = None
    """Token usage of its model, if the server reports it."""
    dropped: int = 0


class RagServer(Protocol):
    """A server with the three tools, remote or built in."""

    @property
    def spec(self) -> ServerSpec:
        """Its configuration."""
        ...

    async def discover(self, call: Call, filters: DiscoveryFilters, secrets: Secrets) -> ResourceList:
        """The sources that this caller may search."""
        ...

    async def search(self, call: Call, query: RagQuery, sources: Sequence[str], secrets: Secrets) -> RagHits:
        """Search some of its sources."""
        ...

    async def can_synthesize(self) -> bool:
        """Whether it can write answers."""
        ...

    async def synthesize(
        self, call: Call, query: RagQuery, sources: Sequence[str], options: SynthesisOptions, secrets: Secrets
    ) -> ServerAnswer:
        """Write an answer."""
        ...
