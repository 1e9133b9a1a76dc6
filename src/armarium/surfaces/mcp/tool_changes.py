"""Tells the clients that listen when the list of tools they would be given is another than before."""

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

from armarium.foundation.identity import Principal
from armarium.surfaces.tool_providers import ToolProviders

_MOST_SUBSCRIPTIONS = 1024


class ToolChanges:
    """Who listens to one server, and what each of them would be told if they asked for the list now.

    A client is notified only if its own list of tools changes, so that nobody learns of tools that are not theirs.
    """

    def __init__(self, tool_providers: ToolProviders, listed: Callable[[Principal], Sequence[types.Tool]]) -> None:
        self._tool_providers = tool_providers
        self._listed = listed
        self._last: dict[Principal, Sequence[types.Tool]] = {}
        self._listeners: dict[object, tuple[Principal, Callable[[], None]]] = {}
        self._subscriptions = set[ListenHandler]()
        self._unsubscribe: Callable[[], None] = lambda: None

    @property
    def can_happen(self) -> bool:
        """Whether there is a tool_provider at all."""
        return bool(self._tool_providers)

    def subscribe(self, principal: Principal, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` when the caller's list has changed, until the returned function is called."""
        if not self._listeners:
            self._unsubscribe = self._tool_providers.on_change(self._look_again)
        token = object()
        self._listeners[token] = principal, tell
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
    def heard_by(self, principal: Principal) -> Generator[MemoryObjectReceiveStream[None]]:
        """One item for each change; those that come before the last is taken are one."""
        tell, changed = anyio.create_memory_object_stream[None](1)

        def offer() -> None:
            if not tell.statistics().current_buffer_used:
                tell.send_nowait(None)

        end = self.subscribe(principal, offer)
        try:
            with tell, changed:
                yield changed
        finally:
            end()

    async def serve(
        self,
        principal: Principal,
        context: ServerRequestContext[Any, Any],
        params: types.SubscriptionsListenRequestParams,
    ) -> types.SubscriptionsListenResult:
        """Answer `subscriptions/listen`, the way of clients without a session, for as long as they listen."""
        if len(self._subscriptions) >= _MOST_SUBSCRIPTIONS:
            raise MCPError(types.INTERNAL_ERROR, "too many subscriptions; try again later")
        # One for each caller: what the SDK's own tells, it tells everybody.
        handler = ListenHandler(_OwnBus(self, principal))
        self._subscriptions.add(handler)
        try:
            return await handler(context, params)
        finally:
            self._subscriptions.discard(handler)

    def close(self) -> None:
        """End the subscriptions; their clients are told that it is over."""
        for handler in self._subscriptions.copy():
            handler.close()

    def _look_again(self) -> None:
        changed = set[Principal]()
        for principal, before in self._last.items():
            now = self._listed(principal)
            if now != before:
                changed.add(principal)
                self._last[principal] = now
        for principal, tell in tuple(self._listeners.values()):
            if principal in changed:
                tell()


class _OwnBus:
    """What the SDK listens to for one caller."""

    def __init__(self, changes: ToolChanges, principal: Principal) -> None:
        self._changes = changes
        self._principal = principal

    async def publish(self, event: ServerEvent) -> None:
        """Nobody publishes here: the news come from the tool_providers."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Let the SDK hear of changes of this caller's list."""
        return self._changes.subscribe(self._principal, lambda: listener(ToolsListChanged()))
