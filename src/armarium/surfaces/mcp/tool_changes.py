"""Notifies each listening client when its own list of tools changes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import ListenHandler, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPError

from armarium.foundation.security.identity import Principal
from armarium.surfaces.tool_providers import ToolProviders

_MAX_SUBSCRIPTIONS = 1024


class ToolChanges:
    """The listeners of one server, and the current list of tools of each. A client is notified only if its own list
    changes, so that it learns nothing about tools of other callers."""

    def __init__(self, tool_providers: ToolProviders, listed: Callable[[Principal], Sequence[types.Tool]]) -> None:
        self._tool_providers = tool_providers
        self.can_happen = bool(tool_providers)
        """Whether the server has a tool provider."""
        self._listed = listed
        self._last: dict[Principal, Sequence[types.Tool]] = {}
        self._listeners: dict[object, tuple[Principal, Callable[[], None]]] = {}
        self._subscriptions = set[ListenHandler]()
        self._unsubscribe: Callable[[], None] = lambda: None

    def subscribe(self, principal: Principal, notify: Callable[[], None]) -> Callable[[], None]:
        """Call `notify` when the caller's list has changed. The returned function unsubscribes it."""
        if not self._listeners:
            self._unsubscribe = self._tool_providers.on_change(self._notify_changed)
        token = object()
        self._listeners[token] = principal, notify
        self._last.setdefault(principal, self._listed(principal))

        def end() -> None:
            if self._listeners.pop(token, None) is None:
                return
            if all(other != principal for other, _ in self._listeners.values()):
                del self._last[principal]
            if not self._listeners:
                self._unsubscribe()

        return end

    @contextmanager
    def subscription(self, principal: Principal) -> Generator[MemoryObjectReceiveStream[None]]:
        """A stream with one item per change. Changes are merged until the item is received."""
        send, changed = anyio.create_memory_object_stream[None](1)

        def offer() -> None:
            if not send.statistics().current_buffer_used:
                send.send_nowait(None)

        end = self.subscribe(principal, offer)
        try:
            with send, changed:
                yield changed
        finally:
            end()

    async def serve(
        self,
        principal: Principal,
        context: ServerRequestContext[Any, Any],
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Serve `subscriptions/listen`, which clients without a session use, until the client disconnects."""
        if len(self._subscriptions) >= _MAX_SUBSCRIPTIONS:
            raise MCPError(types.INTERNAL_ERROR, "too many subscriptions; try again later")
        # One per caller: the SDK's shared handler would notify every client.
        handler = ListenHandler(_CallerBus(self, principal))
        self._subscriptions.add(handler)
        try:
            return await handler(context, params)
        finally:
            self._subscriptions.discard(handler)

    def close(self) -> None:
        """End all subscriptions; their clients get a final response."""
        for handler in self._subscriptions.copy():
            handler.close()

    def _notify_changed(self) -> None:
        changed = set[Principal]()
        for principal, before in self._last.items():
            now = self._listed(principal)
            if now != before:
                changed.add(principal)
                self._last[principal] = now
        for principal, notify in tuple(self._listeners.values()):
            if principal in changed:
                notify()


class _CallerBus:
    """The SDK's event bus for one caller."""

    def __init__(self, changes: ToolChanges, principal: Principal) -> None:
        self._changes = changes
        self._principal = principal

    async def publish(self, event: ServerEvent) -> None:
        """Unused: the events come from the tool providers."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Pass changes of this caller's list to the SDK."""
        return self._changes.subscribe(self._principal, lambda: listener(ToolsListChanged()))
