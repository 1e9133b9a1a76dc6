"""Combines the tool providers of all capabilities."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import ToolProvider, ToolSpec

MAX_CACHED_TOOLS = 2048
"""For how many tools a server keeps what it compiled for them."""


class ToolProviders:
    """The tools of all providers that a caller may use. Fixed tools hide provided tools of the same name, earlier
    providers hide later."""

    def __init__(
        self,
        by_capability: Sequence[tuple[str, ToolProvider]] = (),
        reserved: Container[str] = (),
        permits: Callable[[Principal, str, ToolSpec], bool] = lambda principal, capability, tool: True,
    ) -> None:
        """`permits` tells whether a caller may use a tool of a capability. To others it does not exist."""
        self._by_capability = tuple(by_capability)
        self._reserved = reserved
        self._permits = permits

    def __bool__(self) -> bool:
        return bool(self._by_capability)

    def of(self, capability: str) -> ToolProviders:
        own = [each for each in self._by_capability if each[0] == capability]
        return ToolProviders(own, self._reserved, self._permits)

    def tools_for(self, principal: Principal) -> list[ToolSpec]:
        """The tools that the caller may see and call now."""
        found: dict[str, ToolSpec] = {}
        for capability, tool_provider in self._by_capability:
            for tool in tool_provider.tools_for(principal):
                if tool.name not in self._reserved and self._permits(principal, capability, tool):
                    found.setdefault(tool.name, tool)
        return list(found.values())

    def find(self, principal: Principal, name: str) -> tuple[str, ToolSpec] | None:
        """The caller's tool of that name, with its capability; None if the caller has no such tool."""
        if name in self._reserved:
            return None
        for capability, tool_provider in self._by_capability:
            for tool in tool_provider.tools_for(principal):
                if tool.name == name and self._permits(principal, capability, tool):
                    return capability, tool
        return None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the tools of any caller may have changed. The returned function unsubscribes it."""
        subscriptions = [tool_provider.on_change(callback) for _, tool_provider in self._by_capability]

        def unsubscribe() -> None:
            for end in subscriptions:
                end()

        return unsubscribe
