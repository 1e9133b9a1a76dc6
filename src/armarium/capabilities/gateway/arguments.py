"""The arguments of the gateway's tools and of a RAG server's, and the checks that a schema cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, time
from typing import Annotated, Any, Final

from pydantic import Field

from armarium.capabilities.gateway.secret_parameters import MAX_SECRET_LENGTH, SECRET_PARAMETERS, secrets_in
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.tools import Args
from armarium.retrieval.sources import SourceFilters

DEFAULT_PAGE_SIZE: Final = 50
MAX_PAGE_SIZE: Final = 500
MAX_SOURCES: Final = 100
"""The most sources that a call may name."""
MAX_SELECTED: Final = 500
"""The most sources that may be selected."""
Names = tuple[Annotated[str, Field(min_length=1, max_length=600)], ...]
SessionName = Annotated[str, Field(min_length=1, max_length=200)]
_DATES: Final = ("date_from", "date_to")
_DAY: Final = re.compile(r"[0-9]{4}-?[0-9]{2}-?[0-9]{2}|[0-9]{4}-?W[0-9]{2}(-?[0-9])?")
FILTERS: Final = (*_DATES, "tags", "owners")
"""The filters of the contract. A source that cannot apply a filter returns no hits."""


class Selection(Args):
    """The servers and sources in which to search, as the contract's message metadata has them."""

    servers: Names | None = Field(default=None, alias="selectedServers", max_length=MAX_SOURCES)
    """Servers. Without `selectedResourceIds`, all of their sources."""
    sources: Names | None = Field(default=None, alias="selectedResourceIds", max_length=MAX_SELECTED)
    """Ids of sources: `<server>:<id>`, or the id alone. Ids alone are looked up in `selectedServers`."""
    top_k: int | None = Field(default=None, ge=1, le=1000)
    """The number of hits of a search."""

    @property
    def chooses(self) -> bool:
        """Whether it says anything about servers or sources. An empty list selects nothing."""
        return self.servers is not None or self.sources is not None

    @property
    def named_servers(self) -> frozenset[str]:
        in_sources = (source.partition(":")[0] for source in self.sources or () if ":" in source)
        return frozenset([*(self.servers or ()), *in_sources])


class MessageSelection(Selection):
    session: SessionName | None = None
    """The session that the message belongs to. Default: the MCP session."""


class SessionArgs(Args):
    session: SessionName | None = None
    """A session: an MCP session id, or a name that the client chooses for a conversation. Default: all sessions."""


class SelectArgs(Selection):
    session: SessionName | None = None
    """The session. Default: all sessions that have no selection of their own."""


class SecretArgs(Args):
    """Arguments that every tool accepts. `username` is ignored; secrets go to one server only."""

    username: str | None = None
    user_token: str | None = Field(default=None, repr=False)
    api_key: str | None = Field(default=None, repr=False)
    bearer: str | None = Field(default=None, repr=False)
    oauth_token: str | None = Field(default=None, repr=False)
    capability_token: str | None = Field(default=None, repr=False)

    def secrets(self) -> dict[str, str]:
        return secrets_in(dict(self))


class DiscoveryFilters(Args):
    """Which resources to list, and which page of them."""

    types: tuple[str, ...] = ()
    """Only sources of these types."""
    tags: tuple[str, ...] = ()
    """Only sources with one of these tags."""
    search: str = ""
    """Only sources whose id, name or type contains this text."""
    page: int = Field(default=1, ge=1)
    page_size: int = Field(default=DEFAULT_PAGE_SIZE, ge=1, le=MAX_PAGE_SIZE)


class ResourcesArgs(DiscoveryFilters, SessionArgs):
    pass


class DiscoverArgs(SecretArgs):
    rag: MessageSelection | None = None
    filters: DiscoveryFilters = DiscoveryFilters()


class QueryArgs(SecretArgs):
    query: str
    sources: tuple[str, ...] = ()
    """Empty means the selected ones."""
    servers: tuple[str, ...] = ()
    """Where ids without a server are looked up; empty means all servers."""
    top_k: int | None = None
    rag: MessageSelection | None = None


class RawArgs(QueryArgs):
    filters: dict[str, Any] | None = None
    ranking: dict[str, Any] | None = None


class ProvidedContext(Args):
    """The hits that the caller selected for the answer."""

    hits: tuple[dict[str, Any], ...] | None = None


class SynthesisArgs(QueryArgs):
    synthesis_params: dict[str, Any] = Field(default_factory=dict[str, Any])
    provided_context: ProvidedContext = ProvidedContext()


class AskArgs(SynthesisArgs):
    earlier: tuple[Annotated[str, Field(max_length=20_000)], ...] = ()
    """The earlier questions of the conversation, oldest first. The question may refer to them."""


class ServerArgs(Args):
    server: str = Field(min_length=1, max_length=64)
    """The server's name."""


class DisconnectArgs(ServerArgs):
    session: SessionName | None = None
    """The session for which the token was stored."""


class ConnectArgs(ServerArgs):
    kind: str = Field(pattern=f"^({'|'.join(SECRET_PARAMETERS)})$")
    """The parameter with which the server receives it."""
    token: str = Field(min_length=1, max_length=MAX_SECRET_LENGTH, repr=False)
    """The token. It is stored in memory only."""
    ttl_s: float | None = Field(default=None, gt=0, le=7 * 86_400)
    """Seconds until it expires, limited by the operator's maximum."""
    session: SessionName | None = None
    """Use the token only in this session. Default: in all sessions that have no token of their own."""


class DownloadArgs(Args):
    name: str = Field(min_length=1, max_length=200)
    """The name of the file in the link."""
    token: str = Field(min_length=1, max_length=200, repr=False)
    """The token of the link."""


class TokenArgs(Args):
    source: str = Field(min_length=1, max_length=600)
    """The source's id."""
    ttl_s: int | None = Field(default=None, ge=1, le=86_400)
    """Seconds until it expires, limited by the operator's maximum."""


def active_filters(filters: Mapping[str, Any] | None) -> list[str]:
    """The names of filters that have a value; an empty list is not a filter."""
    return [name for name, value in (filters or {}).items() if value]


def check_query(query: str) -> None:
    if not query.strip():
        raise InvalidArgument("`query` is empty", field="query")


def check_filters(filters: Mapping[str, Any] | None) -> None:
    """Reject invalid dates."""
    source_filters(filters)


def source_filters(filters: Mapping[str, Any] | None) -> SourceFilters:
    """The filters for a source of this server. Dates without a time zone are in UTC; `date_to` without a time includes
    the whole day. Rejects invalid dates."""
    given = filters or {}
    first, last = (_moment(name, given[name]) if given.get(name) is not None else None for name in _DATES)
    return SourceFilters(first, last, tuple(given.get("tags") or ()), tuple(given.get("owners") or ()))


def _moment(name: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if name == "date_to" and _DAY.fullmatch(text):
            moment = datetime.combine(moment, time.max)
        # Raises for a moment outside of all years.
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"`filters.{name}` must be an ISO 8601 date",
            hint="such as 2024-05-31 or 2024-05-31T12:00:00Z",
            field=f"filters.{name}",
        ) from None
