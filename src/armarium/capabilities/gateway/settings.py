"""The gateway's section of the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainSerializer, SecretStr

from armarium.foundation.settings import Section

FEATURE_VARIABLE = "FEATURE_RAG_MCP_ENABLED"
"""Switches the three tools and their routes off, wherever the settings come from."""

_OFF = frozenset({"0", "false", "no", "off"})

Secret = Annotated[SecretStr, PlainSerializer(lambda secret: None)]
"""A key. It is never written out."""


class BreakerSettings(Section):
    """When a server that fails is left alone."""

    failures: int = Field(default=3, ge=1)
    """Failures in a row after which it is not asked any more. Answers that come late are none."""
    open_s: float = Field(default=30.0, gt=0)
    """Seconds until it is tried again, apart from any call."""
    ping_s: float = Field(default=5.0, gt=0)
    """Seconds, at most half of a call's time, in which a server has to answer a ping before the call's deadline passes;
    one that does not is not asked any more."""


class GatewayLimits(Section):
    """What one server may cost, unless its own entry says otherwise."""

    connect_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds until a connection stands, including the start of a process."""
    call_timeout_s: float = Field(default=30.0, gt=0)
    """Seconds for one search or answer."""
    discover_timeout_s: float = Field(default=10.0, gt=0)
    """Seconds to tell which sources there are."""
    discovery_kept_s: float = Field(default=60.0, ge=0)
    """Seconds for which a search relies on what a server last told this caller of its sources."""
    concurrency_per_server: int = Field(default=8, ge=1)
    """Calls at a time."""
    max_answer_bytes: int = Field(default=10 * 1024 * 1024, gt=0)
    """A larger answer is an error of that server."""
    top_k_max: int = Field(default=100, ge=1, le=1000)
    """Most hits of one search."""
    rate_per_minute: int | None = Field(default=None, ge=1)
    """Calls of one caller, of the three tools, their routes and tools of servers together; a minute's worth may come at
    once. Without a number, as many as come."""
    breaker: BreakerSettings = BreakerSettings()


class TokenSettings(Section):
    """Capability tokens, and what callers keep with us for their session."""

    secret: Secret | None = Field(default=None, min_length=16)
    """Signs capability tokens, with a key for each server that is made from it: `armarium gateway token-key SERVER`.
    Without one, each process makes its own, and no token is sent to a server that was not asked for."""
    ttl_s: int = Field(default=300, ge=1, le=86_400)
    """Seconds for which a capability token is good."""
    session_ttl_s: int = Field(default=3600, ge=1, le=7 * 86_400)
    """Longest time for which a caller's own token is kept, in memory alone."""


class AnswerSettings(Section):
    """Who writes an answer when no server does: any endpoint that speaks OpenAI's API."""

    base_url: str = "http://127.0.0.1:11434/v1"
    """Where the API is, with its version."""
    api_key: Secret | None = None
    """The key; local servers need none."""
    model: str | None = None
    """The model's name. Without one, an answer is made of the best sentences found."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Longest time an answer may take."""
    max_context_chars: int = Field(default=20_000, ge=500)
    """Most characters of hits in a prompt."""


class RerankSettings(Section):
    """An optional second look at the merged hits, by a Cohere-compatible endpoint, for calls that ask for it."""

    base_url: str | None = None
    """Where the API is; without one nothing is reranked."""
    api_key: Secret | None = None
    """The key."""
    model: str = "rerank-v3.5"
    """The model's name."""
    timeout_s: float = Field(default=3.0, gt=0)
    """After this long the order stays as it was."""
    candidates: int = Field(default=30, ge=2, le=200)
    """How many hits get the second look."""


class GatewaySettings(Section):
    """Many servers behind one address, each caller seeing only theirs."""

    enabled: bool = True
    """Whether the three tools and their routes are there. FEATURE_RAG_MCP_ENABLED=false switches them off as well."""
    config_dir: str = "config"
    """Where `overrides` and `defaults` are looked for, with `rag-mcp.json` and `mcp.json` in them. A relative one
    begins at the working directory."""
    watch: bool = True
    """Whether changes of those files are taken over while the server runs."""
    admin_group: str = Field(default="admin", min_length=1)
    """Members of this group may see and change the servers."""
    own_sources: bool = True
    """Whether the corpus and the caller's own projects of the store are among the sources."""
    limits: GatewayLimits = GatewayLimits()
    tokens: TokenSettings = TokenSettings()
    answers: AnswerSettings = AnswerSettings()
    rerank: RerankSettings = RerankSettings()


def is_enabled(settings: GatewaySettings, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the three tools are wanted: the settings and the environment both have to agree."""
    said = (os.environ if environ is None else environ).get(FEATURE_VARIABLE, "").strip().lower()
    return settings.enabled and said not in _OFF


def config_directory(settings: GatewaySettings) -> Path:
    """Where the files of servers are; a relative one begins at the working directory."""
    return Path(settings.config_dir).expanduser().absolute()
