"""Combines the tool providers of all capabilities, and caches what is compiled for their tools."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from typing import Generic, TypeVar

from armarium.foundation.identity import Principal
from armarium.foundation.tools import ToolProvider, ToolSpec

_MOST_REMEMBERED = 2048

MadeT = TypeVar("MadeT")


class ToolProviders:
    """The tools of all providers. A fixed tool hides provided ones of its name, and an earlier provider later ones."""

    def __init__(self, by_capability: Sequence[tuple[str, ToolProvider]] = (), taken: Container[str] = ()) -> None:
        self._by_capability = tuple(by_capability)
        self._taken = taken

    def __bool__(self) -> bool:
        return bool(self._by_capability)

    def of(self, capability: str) -> ToolProviders:
        """The providers of one capability."""
        return ToolProviders([each for each in self._by_capability if each[0] == capability], self._taken)

    def tools_for(self, principal: Principal) -> list[ToolSpec]:
        """What the caller may see and call now."""
        found: dict[str, ToolSpec] = {}
        for _, tool_provider in self._by_capability:
            for tool in tool_provider.tools_for(principal):
                if tool.name not in self._taken:
                    found.setdefault(tool.name, tool)
        return list(found.values())

    def find(self, principal: Principal, name: str) -> tuple[str, ToolSpec] | None:
        """The tool of that name, with its capability; None as well when it is not for this caller."""
        if name in self._taken:
            return None
        for capability, tool_provider in self._by_capability:
            for tool in tool_provider.tools_for(principal):
                if tool.name == name:
                    return capability, tool
        return None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever somebody's tools may have changed, until the returned function is called."""
        endings = [tool_provider.on_change(callback) for _, tool_provider in self._by_capability]

        def unsubscribe() -> None:
            for end in endings:
                end()

        return unsubscribe


class MadeOnce(Generic[MadeT]):
    """What is made of a tool, kept for the very same object; the least used are made again when there are too many."""

    def __init__(self, make: Callable[[ToolSpec], MadeT]) -> None:
        self._make = make
        # The tool is kept as well: while it is, no other object can have its identity.
        self._made: OrderedDict[int, tuple[ToolSpec, MadeT]] = OrderedDict()

    def of(self, tool: ToolSpec) -> MadeT:
        """The tool's own, made now if it was not before."""
        known = self._made.get(id(tool))
        if known is not None:
            self._made.move_to_end(id(tool))
            return known[1]
        made = self._make(tool)
        self._made[id(tool)] = tool, made
        if len(self._made) > _MOST_REMEMBERED:
            self._made.popitem(last=False)
        return made
