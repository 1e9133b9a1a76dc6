"""What a server behind the gateway offers and answers, and how it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

HealthState = Literal["idle", "connecting", "ready", "failing", "open"]
"""`idle`: not connected, for nobody asks; `failing`: the last attempt failed; `open`: left alone for a while."""

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told how far a call is: progress, total, message."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a tool answered."""

    structured: dict[str, Any] | None
    content: list[dict[str, Any]]
    """The content blocks as they came over the wire."""
    is_error: bool
    meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class UpstreamTool:
    """A tool as its server describes it, schemas untouched."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class UpstreamHealth:
    """How a server is, for operators and events."""

    server: str
    state: HealthState
    last_error: str | None = None
    """Why the last attempt failed; cleared when one succeeds."""
    last_error_code: str | None = None
    last_error_hint: str | None = None
    """What can be done about it, where that is known."""
    retry_in_s: float | None = None
    """How long calls are refused without trying, when they are."""
    in_flight: int = 0
    calls: int = 0
    failures: int = 0
    connections: int = 0
    """How often a connection was opened; one is what a well server needs."""
    noise: int = 0
    """Messages that were not MCP."""
    tools: int | None = None
    server_name: str | None = None
    server_version: str | None = None
    pid: int | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """What one server may cost."""

    connect_timeout_s: float = 10.0
    call_timeout_s: float = 30.0
    discover_timeout_s: float = 10.0
    concurrency: int = 8
    waiting: int = 1000
    """Calls that may wait for their turn; more are refused."""
    max_answer_bytes: int = 10 * 1024 * 1024
    breaker_failures: int = 3
    breaker_open_s: float = 30.0
    ping_s: float = 5.0
    """How long before a call's deadline the server is pinged, at most half of it."""
