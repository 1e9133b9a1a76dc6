"""What the server provides to a capability, and what a capability offers while it is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from armarium import __version__
from armarium.foundation.events import Events
from armarium.foundation.routes import Route
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import ToolProvider, ToolSpec
from armarium.retrieval.sources import Sources


@dataclass(frozen=True, slots=True)
class Facilities:
    """What the server provides to every capability."""

    events: Events
    state_dir: Path
    metrics: Metrics = field(default_factory=Metrics)
    """The server's metrics; a capability adds its own."""
    private_paths: Sequence[Path] = ()
    """The server's own files, such as the state directory and the token. No capability may show them to a caller."""
    max_body_bytes: int | None = None
    """The largest request body that reaches a tool; None means unlimited."""
    sources: Sources = field(default_factory=Sources)
    """The search sources of this server. A capability with searchable content registers it here."""


@dataclass(frozen=True, slots=True)
class Capability:
    """What a capability offers while it is open."""

    name: str
    tools: Sequence[ToolSpec]
    instructions: str
    """A paragraph for the model: what this capability is for and where to begin."""
    routes: Sequence[Route] = ()
    """Its JSON API. A tool that only a route names is not offered over MCP."""
    tool_provider: ToolProvider | None = None
    """Supplies tools that change while the server runs. A fixed tool hides a provided one of the same name."""
    is_ready: Callable[[], bool] = lambda: True
    """Whether it can serve calls now. `/health` calls it, so it must not block."""

    @property
    def every_tool(self) -> Sequence[ToolSpec]:
        """All tools that can be called: those offered over MCP, and those that only a route names."""
        offered = {tool.name: tool for tool in self.tools}
        behind_routes = {route.tool.name: route.tool for route in self.routes}
        return [*offered.values(), *(tool for name, tool in behind_routes.items() if name not in offered)]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check of `armarium doctor`, with what to do about a problem."""

    subject: str
    state: Literal["ok", "warn", "fail"]
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """How an MCP server introduces itself to clients."""

    name: str
    instructions: str
    title: str = "Armarium"
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The only MCP endpoint of a server that a program with its own name starts."""

    identity: ServerIdentity
    path: str = "/mcp"


OpenCapability = Callable[[Facilities], AbstractAsyncContextManager[Capability]]
"""Opens a capability, and closes it at the end of the block."""
