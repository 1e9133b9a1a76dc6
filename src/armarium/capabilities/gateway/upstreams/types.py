"""Data types of a server behind the gateway: its tools, health, limits, and the outcome of a request."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from armarium.capabilities.gateway.errors import GatewayError
from armarium.capabilities.gateway.settings import GatewayLimits

HealthState = Literal["idle", "connecting", "ready", "failing", "open"]
"""`idle`: not connected, since there was no call yet; `failing`: the last attempt failed; `open`: the circuit breaker
rejects calls."""

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Receives the progress of a call: progress, total, message."""


RequestKind = Literal["call", "list"]
OnRequest = Callable[[str, RequestKind, str, float], None]
"""Receives every request: server, kind, outcome, seconds."""


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
    notes: tuple[str, ...] | None = None
    """What operators should know about its tools, such as tools that are not offered."""
    tool_errors: int = 0
    """Number of calls that the server answered with an error of the tool."""
    last_tool_error: str | None = None
    """What the last of these errors said, shortened and without secrets."""
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


@dataclass(slots=True)
class RequestOutcome:
    name: str = "success"
    """`success`, `error` if the tool reported a failure, `cancelled`, `internal` if the gateway failed, or the code of
    the error."""


@contextmanager
def record_request(on_request: OnRequest, server: str, kind: RequestKind) -> Generator[RequestOutcome]:
    """Report the request made in the block. It is a success unless the block sets another outcome or raises."""
    outcome = RequestOutcome()
    started = time.perf_counter()
    try:
        yield outcome
    except GatewayError as error:
        outcome.name = error.code
        raise
    except BaseException as error:
        outcome.name = "internal" if isinstance(error, Exception) else "cancelled"
        raise
    finally:
        on_request(server, kind, outcome.name, time.perf_counter() - started)
