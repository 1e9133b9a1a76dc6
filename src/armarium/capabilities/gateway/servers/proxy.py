"""Provides the tools of generic servers as `<server>.<tool>`, to callers who may see the server."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.contract import RAG_TOOLS
from armarium.capabilities.gateway.errors import GatewayError, UpstreamUnavailable
from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS
from armarium.capabilities.gateway.servers.identity import declares, identity_parameters
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.servers.remote import is_rag_server
from armarium.capabilities.gateway.upstreams.types import UpstreamTool
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.upstream_set import ServerChanges
from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import Principal
from armarium.foundation.tools import Call, Relayed, ToolSpec, remote_tool

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 60.0


Arguments = Mapping[str, Any]
Prepare = Callable[[Call, ServerSpec, UpstreamTool, Arguments], Awaitable[Arguments]]
"""Takes a call, its server, its tool and its arguments."""


async def _prepare_nothing(call: Call, server: ServerSpec, tool: UpstreamTool, arguments: Arguments) -> Arguments:
    return arguments


class ProxyToolProvider:
    """The current tools of generic servers, fetched when a server is added or announces a change."""

    def __init__(
        self,
        servers: LiveServers,
        rate_limit: RateLimit | None = None,
        access: Access | None = None,
        prepare: Prepare = _prepare_nothing,
    ) -> None:
        """`prepare` may refuse a call, or replace its arguments."""
        self._servers = servers
        self._access = access or Access("gateway")
        self._prepare = prepare
        self._rate_limit = rate_limit
        self._tools: dict[str, list[ToolSpec]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._stale: set[str] = set()
        """Servers whose tools must be fetched."""
        self._wake_up = anyio.Event()
        servers.on_reload(self._reloaded)

    def tools_for(self, principal: Principal) -> Sequence[ToolSpec]:
        """The tools of all servers that the caller may see."""
        return [
            tool
            for name, tools in sorted(self._tools.items())
            if (upstream := self._generic(name)) is not None and may_see_server(principal, upstream.spec)
            for tool in tools
            if self._access.permits(principal, tool)
            and not _is_aggregated(upstream, tool.name.removeprefix(f"{name}."))
        ]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever tools may have changed. The returned function unsubscribes it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def tools_changed(self, server: str) -> None:
        """Fetch the tools of a server that is new or announced a change."""
        self._stale.add(server)
        self._wake_up.set()

    async def keep_current(self) -> None:
        """Fetch tools as needed, with back-off for servers that do not respond, until cancelled."""
        pause_s = _FIRST_PAUSE_S
        while True:
            wake_up = self._wake_up = anyio.Event()
            fetched, self._stale = self._stale, set()
            async with anyio.create_task_group() as tasks:
                for name in fetched:
                    tasks.start_soon(self._fetch, name)
            if not self._stale:
                pause_s = _FIRST_PAUSE_S
                await wake_up.wait()
                continue
            with anyio.move_on_after(pause_s):
                await wake_up.wait()
            pause_s = min(pause_s * 2, _MAX_PAUSE_S)

    async def _fetch(self, name: str) -> None:
        upstream = self._generic(name)
        if upstream is None:
            return
        try:
            listed = await upstream.tools()
        except GatewayError as error:
            _log.info("the tools of a server could not be listed", extra={"server": name, "code": error.code})
            self._stale.add(name)
            return
        if self._generic(name) is not upstream:
            # Another server took the name meanwhile; its tools are fetched separately.
            return
        self._tools[name] = [self._tool(upstream, each) for each in listed]
        self._notify()

    def _tool(self, upstream: Upstream, tool: UpstreamTool) -> ToolSpec:
        name = f"{upstream.name}.{tool.name}"
        hints = tool.annotations or {}
        names = identity_parameters(upstream.spec)
        declared = {each for each in names if declares(tool.input_schema, each)}

        def with_identity(call: Call, values: Mapping[str, Any]) -> Mapping[str, Any]:
            """The authenticated name replaces any value sent, even if the schema accepts arbitrary arguments."""
            return {**values, **dict.fromkeys(declared | (names & values.keys()), call.principal.username)}

        return remote_tool(
            name,
            tool.description,
            tool.input_schema,
            partial(self._forward, upstream.name, tool),
            completed=with_identity,
            title=tool.title,
            output_schema=tool.output_schema,
            read_only=bool(hints.get("readOnlyHint", False)),
            destructive=bool(hints.get("destructiveHint", True)),
            idempotent=bool(hints.get("idempotentHint", False)),
            open_world=bool(hints.get("openWorldHint", True)),
            secret_fields=frozenset(SECRET_PARAMETERS),
            subject=("", ""),
        )

    async def _forward(self, server: str, tool: UpstreamTool, call: Call, arguments: Mapping[str, Any]) -> Relayed:
        if self._rate_limit is not None:
            self._rate_limit.take(call.principal.username)
        upstream = self._generic(server)
        # Access is checked at call time; the list of tools may be outdated.
        if upstream is None or not may_see_server(call.principal, upstream.spec) or _is_aggregated(upstream, tool.name):
            raise UpstreamUnavailable(f"`{server}` is no longer served", server=server)

        async def report(done: float, total: float | None, message: str | None) -> None:
            call.cancellation.report(done, total, message)

        on_progress = report if call.cancellation.has_listener else None
        arguments = await self._prepare(call, upstream.spec, tool, arguments)
        return await upstream.call(tool.name, arguments, on_progress=on_progress)

    def _generic(self, name: str) -> Upstream | None:
        """The generic server with that name. Tools of RAG servers are not offered to callers."""
        upstream = self._servers.upstreams.get(name)
        return upstream if upstream is not None and upstream.spec.kind == "generic" else None

    def _reloaded(self, changes: ServerChanges) -> None:
        for name in (*changes.removed, *changes.changed):
            if self._generic(name) is None:
                self._tools.pop(name, None)
        for name in (*changes.added, *changes.changed):
            self.tools_changed(name)
        self._notify()

    def _notify(self) -> None:
        for listener in (*self._listeners,):
            listener()


def _is_aggregated(upstream: Upstream, tool: str) -> bool:
    """Whether the gateway's own tools call this tool. To offer it would bypass the groups of sources."""
    return tool in RAG_TOOLS and is_rag_server(upstream.spec, upstream.last_tools)
