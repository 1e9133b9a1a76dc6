"""The arguments of the gateway's tools and of a RAG server's, and the checks that a schema cannot express."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from armarium.capabilities.gateway.secret_parameters import MAX_SECRET_LENGTH, SECRET_PARAMETERS, secrets_in
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.tools import Args

DEFAULT_PAGE_SIZE: Final = 50
_DATES: Final = ("date_from", "date_to")
FILTERS: Final = (*_DATES, "tags", "owners")
"""The filters of the contract. A source that cannot apply a filter returns no hits."""


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
    tags: tuple[str, ...] = ()
    search: str = ""
    page: int = 1
    page_size: int = DEFAULT_PAGE_SIZE


class DiscoverArgs(SecretArgs):
    filters: DiscoveryFilters = DiscoveryFilters()


class QueryArgs(SecretArgs):
    query: str
    sources: tuple[str, ...]
    servers: tuple[str, ...] = ()
    """Where ids without a server are looked up; empty means all servers."""
    top_k: int | None = None


class RawArgs(QueryArgs):
    filters: dict[str, Any] | None = None
    ranking: dict[str, Any] | None = None


class ProvidedContext(Args):
    """The hits that the caller selected for the answer."""

    hits: tuple[dict[str, Any], ...] | None = None


class SynthesisArgs(QueryArgs):
    synthesis_params: dict[str, Any] = Field(default_factory=dict[str, Any])
    provided_context: ProvidedContext = ProvidedContext()


class ServerArgs(Args):
    server: str = Field(min_length=1, max_length=64)
    """The server's name."""


class ConnectArgs(ServerArgs):
    kind: str = Field(pattern=f"^({'|'.join(SECRET_PARAMETERS)})$")
    """The parameter with which the server receives it."""
    token: str = Field(min_length=1, max_length=MAX_SECRET_LENGTH, repr=False)
    """The token. It is stored in memory only."""
    ttl_s: float | None = Field(default=None, gt=0, le=7 * 86_400)
    """Seconds until it expires, limited by the operator's maximum."""


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
    for name in _DATES:
        if (date := (filters or {}).get(name)) is not None:
            try:
                datetime.fromisoformat(date)
            except ValueError:
                raise InvalidArgument(
                    f"`filters.{name}` must be an ISO 8601 date",
                    hint="such as 2024-05-31 or 2024-05-31T12:00:00Z",
                    field=f"filters.{name}",
                ) from None
