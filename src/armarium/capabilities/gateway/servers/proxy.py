"""The tools of generic servers as tools of ours, `<server>.<tool>`, for the callers who may see the server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio
import jsonschema_rs

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.errors import GatewayError, UpstreamUnavailable
from armarium.capabilities.gateway.pace import paced
from armarium.capabilities.gateway.secret_parameters import SENSITIVE
from armarium.capabilities.gateway.servers.declared import declares
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.upstreams.types import OnProgress, UpstreamTool
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.upstream_set import SetChanges
from armarium.foundation.identity import Principal
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.tools import Call, Relayed, ToolSpec, remote_tool

_log = logging.getLogger(__name__)

_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
_LONGEST_NAME = 128
USERNAME = "username"


class ProxyToolProvider:
    """What generic servers offer now. Their tools are asked for when a server comes, and when it says they changed."""

    def __init__(self, servers: LiveServers, pace: RateLimit | None = None) -> None:
        self._servers = servers
        self._pace = pace
        self._tools: dict[str, list[ToolSpec]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._to_ask: set[str] = set()
        self._news = anyio.Event()
        servers.on_reload(self._reloaded)

    def tools_for(self, principal: Principal) -> Sequence[ToolSpec]:
        """The tools of all servers that the caller may see."""
        return [
            tool
            for name, tools in sorted(self._tools.items())
            if (upstream := self._generic(name)) is not None and may_see_server(principal, upstream.spec)
            for tool in tools
        ]

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Tell somebody whenever the tools of anybody may have changed."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    async def tools_changed(self, server: str) -> None:
        """A server says that its tools are others now."""
        self._ask(server)

    async def keep_filled(self) -> None:
        """Ask servers for their tools, again and again those that do not answer, until cancelled."""
        wait_s = _FIRST_WAIT_S
        while True:
            news = self._news = anyio.Event()
            asked, self._to_ask = self._to_ask, set()
            async with anyio.create_task_group() as tasks:
                for name in asked:
                    tasks.start_soon(self._fetch, name)
            if not self._to_ask:
                wait_s = _FIRST_WAIT_S
                await news.wait()
                continue
            with anyio.move_on_after(wait_s):
                await news.wait()
            wait_s = min(wait_s * 2, _LONGEST_WAIT_S)

    async def _fetch(self, name: str) -> None:
        upstream = self._generic(name)
        if upstream is None:
            return
        try:
            listed = await upstream.tools()
        except GatewayError as error:
            _log.info("the tools of a server are not known yet", extra={"server": name, "code": error.code})
            self._to_ask.add(name)
            return
        if self._generic(name) is not upstream:
            # While it answered, another took its name; whoever that is has been asked since.
            return
        self._tools[name] = [
            paced(tool, self._pace) for each in listed if (tool := self._tool(upstream, each)) is not None
        ]
        self._tell()

    def _tool(self, upstream: Upstream, tool: UpstreamTool) -> ToolSpec | None:
        name = f"{upstream.name}.{tool.name}"
        if len(name) > _LONGEST_NAME or not name.isprintable() or not _is_schema(tool.input_schema):
            _log.warning("a tool of a server cannot be offered", extra={"server": upstream.name})
            return None
        knows_user = declares(tool.input_schema, USERNAME)
        hints = tool.annotations or {}

        def with_username(call: Call, values: Mapping[str, Any]) -> Mapping[str, Any]:
            """Whatever the caller or a model sent, who calls is ours to say; also where the schema takes anything."""
            return {**values, USERNAME: call.principal.username} if knows_user or USERNAME in values else values

        async def forward(call: Call, values: Mapping[str, Any]) -> Relayed:
            return await self._forward(call, upstream.name, tool.name, values)

        return remote_tool(
            name,
            tool.description,
            tool.input_schema,
            forward,
            completed=with_username,
            title=tool.title,
            output_schema=tool.output_schema,
            read_only=bool(hints.get("readOnlyHint", False)),
            destructive=bool(hints.get("destructiveHint", True)),
            idempotent=bool(hints.get("idempotentHint", False)),
            open_world=bool(hints.get("openWorldHint", True)),
            secret_fields=frozenset(SENSITIVE),
            subject=("", ""),
        )

    async def _forward(self, call: Call, server: str, tool: str, arguments: Mapping[str, Any]) -> Relayed:
        upstream = self._generic(server)
        # The list was made a moment ago; who may call is decided now.
        if upstream is None or not may_see_server(call.principal, upstream.spec):
            raise UpstreamUnavailable(f"`{server}` is no longer served", server=server)
        progress: OnProgress | None = None
        if call.cancellation.has_listener:

            async def relay(done: float, total: float | None, message: str | None) -> None:
                call.cancellation.report(done, total, message)

            progress = relay
        result = await upstream.call(tool, arguments, on_progress=progress)
        return Relayed(result.content, result.structured, result.is_error)

    def _generic(self, name: str) -> Upstream | None:
        """The server of that name, if its tools are for callers; those of RAG servers are the gateway's to call."""
        upstream = self._servers.upstreams.get(name)
        return upstream if upstream is not None and upstream.spec.kind == "generic" else None

    def _reloaded(self, changes: SetChanges) -> None:
        for name in (*changes.removed, *changes.changed):
            if self._generic(name) is None:
                self._tools.pop(name, None)
        for name in (*changes.added, *changes.changed):
            self._ask(name)
        self._tell()

    def _ask(self, server: str) -> None:
        self._to_ask.add(server)
        self._news.set()

    def _tell(self) -> None:
        for listener in (*self._listeners,):
            listener()


def _is_schema(schema: dict[str, Any]) -> bool:
    try:
        jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True
