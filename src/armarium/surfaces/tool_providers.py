"""Combines the tool providers of all capabilities, and caches what is compiled for their tools."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import Generic, TypeVar

from armarium.foundation.identity import Principal
from armarium.foundation.tools import ToolProvider, ToolSpec

_MAX_CACHED_TOOLS = 2048

ValueT = TypeVar("ValueT")


class ToolProviders:
    """The tools of all providers. Fixed tools hide provided tools of the same name, earlier providers hide later."""

    def __init__(self, by_capability: Sequence[tuple[str, ToolProvider]] = (), reserved: Container[str] = ()) -> None:
        self._by_capability = tuple(by_capability)
        self._reserved = reserved

    def __bool__(self) -> bool:
        return bool(self._by_capability)

    def of(self, capability: str) -> ToolProviders:
        """The providers of one capability."""
        return ToolProviders([each for each in self._by_capability if each[0] == capability], self._reserved)

    def tools_for(self, principal: Principal) -> list[ToolSpec]:
        """The tools that the caller may see and call now."""
        found: dict[str, ToolSpec] = {}
        for _, tool_provider in self._by_capability:
            for tool in tool_provider.tools_for(principal):
                if tool.name not in self._reserved:
                    found.setdefault(tool.name, tool)
        return list(found.values())

    def find(self, principal: Principal, name: str) -> tuple[str, ToolSpec] | None:
        """The caller's tool of that name, with its capability; None if the caller has no such tool."""
        if name in self._reserved:
            return None
        for capability, tool_provider in self._by_capability:
            for tool in tool_provider.tools_for(principal):
                if tool.name == name:
                    return capability, tool
        return None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever the tools of any caller may have changed. The returned function unsubscribes it."""
        subscriptions = [tool_provider.on_change(callback) for _, tool_provider in self._by_capability]

        def unsubscribe() -> None:
            for end in subscriptions:
                end()

        return unsubscribe


class PerToolCache(Generic[ValueT]):
    """Caches one value per tool object. The least recently used values are dropped."""

    def __init__(self, create: Callable[[ToolSpec], ValueT]) -> None:
        self._create = create
        # The tool is stored too: while it is, no other object can have the same id().
        self._values: OrderedDict[int, tuple[ToolSpec, ValueT]] = OrderedDict()

    def get(self, tool: ToolSpec) -> ValueT:
        """The value for this tool, created on first use."""
        cached = self._values.get(id(tool))
        if cached is not None:
            self._values.move_to_end(id(tool))
            return cached[1]
        value = self._create(tool)
        self._values[id(tool)] = tool, value
        if len(self._values) > _MAX_CACHED_TOOLS:
            self._values.popitem(last=False)
        return value
