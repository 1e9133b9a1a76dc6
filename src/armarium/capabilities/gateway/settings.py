"""The gateway's section of the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, PlainSerializer, SecretStr

from armarium.foundation.settings.file_secrets import require_length, revealed, written
from armarium.foundation.settings.model import RestrictedSection, Section

FEATURE_VARIABLE = "FEATURE_RAG_MCP_ENABLED"
"""The environment variable that disables the three tools and their routes."""

_OFF = frozenset({"0", "false", "no", "off"})

Secret = Annotated[SecretStr, PlainSerializer(written)]
"""A secret that is never serialized; its file is."""


def _require_length(secret: SecretStr) -> SecretStr:
    return require_length(secret, 16, "create one with `openssl rand -hex 32`")


class BreakerSettings(Section):
    """The circuit breaker of a server."""

    failures: int = Field(default=3, ge=1)
    """Consecutive failures after which calls are rejected. Slow responses do not count."""
    open_s: float = Field(default=30.0, gt=0)
    """Seconds until the gateway tries the server again, independently of any call."""
    ping_s: float = Field(default=5.0, gt=0)
    """Seconds before a call's deadline at which the server is pinged, at most half of the call's time. If it does not
    respond, the breaker opens."""


class GatewayLimits(Section):
    """The limits of one server, unless its entry sets others."""

    connect_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds for opening a connection, including the start of a process."""
    call_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds for one search or answer."""
    discover_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds for listing the sources."""
    discovery_kept_s: float = Field(default=60.0, ge=0)
    """Seconds for which the sources that a server listed for a caller are cached."""
    concurrency_per_server: int = Field(default=8, ge=1)
    """Concurrent calls."""
    max_answer_bytes: int = Field(default=10 * 1024 * 1024, gt=0)
    """The maximum size of a response."""
    top_k_max: int = Field(default=100, ge=1, le=1000)
    """The maximum number of hits of one search."""
    rate_per_minute: int | None = Field(default=None, ge=1)
    """Rate limit per caller for the three tools, their routes and the tools of servers together. A burst of one
    minute's calls is allowed. Unlimited by default."""
    breaker: BreakerSettings = BreakerSettings()


class TokenSettings(Section):
    """Capability tokens, and tokens that callers store for their session."""

    secret: Annotated[Secret, AfterValidator(_require_length)] | None = None
    """The secret from which each server's signing key for capability tokens is derived: `armarium gateway token-key
    SERVER`. Without it, each process uses a random secret, and tokens are issued only on request."""
    ttl_s: int = Field(default=300, ge=1, le=86_400)
    """Lifetime of a capability token in seconds."""
    session_ttl_s: int = Field(default=3600, ge=1, le=7 * 86_400)
    """Maximum lifetime of a caller's stored token in seconds. It is stored in memory only."""


class DownloadSettings(Section):
    """Links with which servers fetch the files that a call names as `filename` or `file_names`."""

    base_url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")
    """The URL of this server for servers on other machines, such as https://files.example.org. Servers on this machine
    use the address on which it listens."""
    ttl_s: int = Field(default=300, ge=1, le=3600)
    """Lifetime of a link in seconds."""
    max_bytes: int = Field(default=10 * 1024 * 1024, gt=0, le=32 * 1024 * 1024)
    """The maximum size of a file."""


class AnswerSettings(Section):
    """The chat model that writes answers when no server does: any OpenAI-compatible endpoint."""

    base_url: str = "http://127.0.0.1:11434/v1"
    """The URL of the API, with its version."""
    api_key: Secret | None = None
    """The API key; local servers need none."""
    model: str | None = None
    """The model's name. Without one, an answer consists of the best sentences found."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Timeout in seconds."""
    max_context_chars: int = Field(default=20_000, ge=500)
    """Maximum number of characters of hits in a prompt."""


class RerankSettings(Section):
    """An optional reranker for the merged hits, used by calls that request it: any Cohere-compatible endpoint."""

    base_url: str | None = None
    """The URL of the API. Without it, reranking is disabled."""
    api_key: Secret | None = None
    """The API key."""
    model: str = "rerank-v3.5"
    """The model's name."""
    timeout_s: float = Field(default=3.0, gt=0)
    """Timeout in seconds, after which the order stays unchanged."""
    candidates: int = Field(default=30, ge=2, le=200)
    """How many hits are reranked."""


class GatewaySettings(RestrictedSection):
    """One address for many MCP servers, where each caller sees only the servers of their groups."""

    enabled: bool = True
    """Whether the three tools and their routes are enabled. FEATURE_RAG_MCP_ENABLED=false disables them as well."""
    config_dir: str = "config"
    """The directory with the folders `overrides` and `defaults`, which contain `rag-mcp.json` and `mcp.json`. A
    relative path starts at the working directory."""
    watch: bool = True
    """Whether changes to those files are applied while the server runs."""
    admin_group: str = Field(default="admin", min_length=1)
    """Members of this group may administer the servers, if `groups` admits them, too."""
    variables: tuple[str, ...] = ()
    """The environment variables that `${NAME}` in an entry may use. Others stay secret, whoever writes an entry."""
    admin_commands: tuple[str, ...] = ()
    """The programs that an administrator may start through the API, as the entry's `command`. By default none: a
    program runs with the rights of the server. Entries in the files may start any program."""
    own_sources: bool = True
    """Whether the corpus and the caller's own projects in the store are offered as sources."""
    limits: GatewayLimits = GatewayLimits()
    tokens: TokenSettings = TokenSettings()
    downloads: DownloadSettings = DownloadSettings()
    answers: AnswerSettings = AnswerSettings()
    rerank: RerankSettings = RerankSettings()


def is_enabled(settings: GatewaySettings, environ: Mapping[str, str] | None = None) -> bool:
    """Whether both the settings and the environment enable the three tools."""
    value = (os.environ if environ is None else environ).get(FEATURE_VARIABLE, "").strip().lower()
    return settings.enabled and value not in _OFF


def usable_variables(settings: GatewaySettings) -> dict[str, str]:
    """The environment variables that entries may use."""
    return {name: os.environ[name] for name in settings.variables if name in os.environ}


def config_directory(settings: GatewaySettings) -> Path:
    """The directory of the configuration files as an absolute path."""
    return Path(settings.config_dir).expanduser().absolute()


def token_secret(settings: GatewaySettings | None) -> str | None:
    """The configured secret for capability tokens."""
    return revealed(settings.tokens.secret) if settings is not None else None
