"""The handshake between the server and a capability: what it may use, what it offers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from armarium.foundation.events import Events
from armarium.foundation.routes import Route
from armarium.foundation.settings import Section
from armarium.foundation.shelf import ToolShelf
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import ToolSpec
from armarium.retrieval.sources import Sources


@dataclass(frozen=True, slots=True)
class Facilities:
    """What the server lends to every capability."""

    events: Events
    state_dir: Path
    metrics: Metrics = field(default_factory=Metrics)
    """Where its own counters go, to be scraped with the server's."""
    private_paths: Sequence[Path] = ()
    """The server's own: the state directory, the token. No capability may show them to a caller."""
    max_body_bytes: int | None = None
    """The largest request that reaches a tool; None where nobody set a limit."""
    sources: Sources = field(default_factory=Sources)
    """What can be searched here; who keeps something to search registers it."""


@dataclass(frozen=True, slots=True)
class Capability:
    """What a capability offers while it is open."""

    name: str
    tools: Sequence[ToolSpec]
    instructions: str
    """A paragraph for the model: what this capability is for and where to begin."""
    routes: Sequence[Route] = ()
    """Its JSON API. A tool that only a route names is not offered over MCP, and is called like any other."""
    dynamic: ToolShelf | None = None
    """Tools that come and go, each for the callers who may see it. A fixed tool of the same name goes first."""

    is_ready: Callable[[], bool] = lambda: True
    """Whether it can do its work now; `/health` asks, so the answer must be at hand."""

    @property
    def every_tool(self) -> Sequence[ToolSpec]:
        """What can be called, whatever the way in: the tools, and those that only routes name."""
        offered = {tool.name: tool for tool in self.tools}
        behind_routes = {route.tool.name: route.tool for route in self.routes}
        return [*offered.values(), *(tool for name, tool in behind_routes.items() if name not in offered)]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at before a start, and what to do when it is not well."""

    subject: str
    state: Literal["ok", "warn", "fail"]
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Door:
    """How a capability is entered: the section of the settings that asks for it, and the function that opens it."""

    name: str
    settings: type[Section]
    open: Callable[[Any, Facilities], AbstractAsyncContextManager[Capability]]
    examine: Callable[[Any, Facilities], Iterable[Finding]] = lambda section, facilities: ()
    """What `armarium doctor` is told of the machine and of the section, which may be None; changes nothing."""
    packages: Sequence[str] = ()
    """Modules of the extra named like the capability; without them it cannot be opened."""
    keeps: Callable[[Any], Sequence[Path]] = lambda section: ()
    """Where the capability keeps what is its own, such as an index; no other capability may show it to a caller."""
    described: Callable[[], Sequence[ToolSpec]] = lambda: ()
    """Its tools, to be described and never called, where opening it takes more than a directory."""
    is_on: Callable[[Any], bool] = lambda section: True
    """Whether its section, or the environment, does not switch it off."""

    @property
    def is_installed(self) -> bool:
        """Whether its packages are there."""
        return all(find_spec(package) is not None for package in self.packages)
