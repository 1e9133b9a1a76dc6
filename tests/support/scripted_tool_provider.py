"""A tool provider whose tools a test, or a client through a tool, adds and removes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
from typing_extensions import TypedDict

from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Args, Call, Relayed, ToolSpec, local_tool, remote_tool

ANY_OBJECT: Json = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
PICTURE: Json = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


class Unreachable(ArmariumError):
    """The upstream of the tool cannot be reached."""

    code, retryable = "UNREACHABLE", True


class StockArgs(Args):
    """The tool to add or to remove."""

    name: str
    there: bool = True


class Stocked(TypedDict):
    """The tools of the provider."""

    tools: list[str]


def remote(name: str, schema: Mapping[str, Any] = ANY_OBJECT, **traits: Any) -> ToolSpec:
    """A remote tool that returns its arguments."""

    async def forward(call: Call, values: Mapping[str, Any]) -> Relayed:
        return Relayed([{"type": "text", "text": name}, PICTURE], {"given": dict(values)})

    return remote_tool(name, f"{name}, run elsewhere.", schema, forward, **traits)


def failing(name: str) -> ToolSpec:
    """A remote tool that fails, or cannot be reached if the word is `gone`."""

    async def forward(call: Call, values: Mapping[str, Any]) -> Relayed:
        if values["word"] == "gone":
            raise Unreachable("nobody answers")
        return Relayed([{"type": "text", "text": "no such city"}], is_error=True)

    return remote_tool(name, "Fails.", ANY_OBJECT, forward)


@dataclass
class Slow:
    """A tool that reports progress and then waits until it is released or cancelled."""

    begun: anyio.Event = field(default_factory=anyio.Event)
    let_go: anyio.Event = field(default_factory=anyio.Event)
    cancelled: anyio.Event = field(default_factory=anyio.Event)
    was_heard: bool | None = None

    def tool(self, name: str) -> ToolSpec:
        """The tool under this name."""

        async def forward(call: Call, values: Mapping[str, Any]) -> Relayed:
            self.was_heard = call.cancellation.has_listener
            for step in (1, 2):
                call.cancellation.report(step, 3, f"step {step}")
            self.begun.set()
            try:
                await self.let_go.wait()
            except BaseException:
                self.cancelled.set()
                raise
            call.cancellation.report(3.0, 3, None)
            return Relayed([])

        return remote_tool(name, "Takes a while.", ANY_OBJECT, forward)


class ScriptedToolProvider:
    """Tools by name, each for one caller or for all."""

    def __init__(self) -> None:
        self._tools: dict[str, tuple[ToolSpec, Principal | None]] = {}
        self._callbacks: list[Callable[[], None]] = []

    def put(self, tool: ToolSpec, only: Principal | None = None) -> None:
        """Add a tool, or replace the one of the same name."""
        self._tools[tool.name] = tool, only
        self.changed()

    def take(self, name: str) -> None:
        """Remove a tool."""
        self._tools.pop(name, None)
        self.changed()

    def changed(self) -> None:
        """Call the subscribed callbacks."""
        for callback in tuple(self._callbacks):
            callback()

    @property
    def listeners(self) -> int:
        """The number of subscribed callbacks."""
        return len(self._callbacks)

    def tools_for(self, principal: Principal) -> Sequence[ToolSpec]:
        """The tools for all callers and those for this one."""
        return [tool for tool, only in self._tools.values() if only in (None, principal)]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to changes."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def stocking(self) -> ToolSpec:
        """A fixed tool with which a client adds and removes tools."""

        async def stock(call: Call, args: StockArgs) -> Stocked:
            """Add a tool to the provider, or remove it."""
            if args.there:
                self.put(remote(args.name))
            else:
                self.take(args.name)
            return {"tools": [tool.name for tool in self.tools_for(call.principal)]}

        return local_tool("stock", stock)
