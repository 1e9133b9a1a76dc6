"""What the server provides to a capability, and what a capability offers while it is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from armarium import __version__
from armarium.foundation.events import Events
from armarium.foundation.known_files import FileKnowledge
from armarium.foundation.routes import RawFiles, Route
from armarium.foundation.security.access import Access
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
    settings_files: Sequence[Path] = ()
    """The files that configure the server, which may contain credentials. A capability may list them; it shows their
    content, and lets callers change them, only where it hides no credentials and denies no writing."""
    credential_patterns: Sequence[str] = ()
    """Patterns of files whose content no capability may show, in the syntax of `PathRules`."""
    max_body_bytes: int | None = None
    """The largest request body that reaches a tool; None means unlimited."""
    address: str | None = None
    """The URL at which programs on this machine reach the server, without a path; None if it does not serve HTTP."""
    is_served: bool = False
    """Whether the server that it is for runs in this process, and so uses the state of each capability."""
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
    access: Access | None = None
    """Who may use it. None: every caller whose key permits the capability."""
    is_ready: Callable[[], bool] = lambda: True
    """Whether it can serve calls now. `/health` calls it, so it must not block."""
    raw_files: RawFiles | None = None
    """The tools for the bytes of its files. They are not offered over MCP."""
    knowledge: FileKnowledge | None = None
    """What it knows about files."""

    @property
    def every_tool(self) -> Sequence[ToolSpec]:
        """All tools that can be called: those offered over MCP, and those that only a route names."""
        offered = {tool.name: tool for tool in self.tools}
        behind_routes = {route.tool.name: route.tool for route in self.routes}
        if self.raw_files is not None:
            behind_routes |= {tool.name: tool for tool in self.raw_files.tools}
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
