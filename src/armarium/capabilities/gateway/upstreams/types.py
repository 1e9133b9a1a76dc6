"""Data types of a server behind the gateway: its tools, health and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from armarium.capabilities.gateway.settings import GatewayLimits

HealthState = Literal["idle", "connecting", "ready", "failing", "open"]
"""`idle`: not connected, since there was no call yet; `failing`: the last attempt failed; `open`: the circuit breaker
rejects calls."""

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Receives the progress of a call: progress, total, message."""


@dataclass(frozen=True, slots=True)
class UpstreamTool:
    """A tool as its server describes it, with unchanged schemas."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: dict[str, Any] | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class UpstreamHealth:
    """The health of a server, for operators and events."""

    server: str
    state: HealthState
    last_error: str | None = None
    """Why the last attempt failed; None after a success."""
    last_error_code: str | None = None
    last_error_hint: str | None = None
    """What an operator can do about it, if known."""
    retry_in_s: float | None = None
    """How long calls are rejected without trying the server; None if they are not."""
    in_flight: int = 0
    calls: int = 0
    failures: int = 0
    connections: int = 0
    """Number of connections opened so far; a healthy server needs one."""
    noise: int = 0
    """Number of messages that were not MCP."""
    tools: int | None = None
    server_name: str | None = None
    server_version: str | None = None
    pid: int | None = field(default=None, repr=False)


class UpstreamLimits(GatewayLimits):
    """The limits in the settings, and those that no operator needs to change."""

    waiting: int = 1000
    """Calls that may wait for a slot; further calls are rejected."""
    ping_required_share: float = 0.8
    """The share of the ping's time that must pass without a response before the server counts as silent. It is below 1
    because timers are not exact."""
    first_pause_s: float = 0.25
    """The pause after the first failed connection attempt; it doubles with every further one."""
    notification_retry_s: float = 1.0
    """The pause before a failed notification stream is reopened; it doubles with every further failure."""
