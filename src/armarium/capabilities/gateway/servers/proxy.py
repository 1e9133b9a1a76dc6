"""Provides the tools of generic servers as `<server>.<tool>`, to callers who may see the server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import anyio
import jsonschema_rs

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.errors import GatewayError, UpstreamUnavailable
from armarium.capabilities.gateway.secret_parameters import SECRET_PARAMETERS
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.upstreams.types import UpstreamTool
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.upstream_set import ServerChanges
from armarium.foundation.identity import Principal
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.schema import JsonSchema
from armarium.foundation.tools import Call, Relayed, ToolSpec, remote_tool

_log = logging.getLogger(__name__)

_USERNAME = "username"
_FIRST_PAUSE_S = 1.0
_MAX_PAUSE_S = 60.0
_MAX_NAME_LENGTH = 128
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf")
_SUBSCHEMAS = ("if", "then", "else")
_DECLARATIONS = ("properties", "required")


class ProxyToolProvider:
    """The current tools of generic servers, fetched when a server is added or announces a change."""

    def __init__(self, servers: LiveServers, rate_limit: RateLimit | None = None) -> None:
        self._servers = servers
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
        self._tools[name] = [tool for each in listed if (tool := self._tool(upstream, each)) is not None]
        self._notify()

    def _tool(self, upstream: Upstream, tool: UpstreamTool) -> ToolSpec | None:
        name = f"{upstream.name}.{tool.name}"
        if len(name) > _MAX_NAME_LENGTH or not name.isprintable() or not _is_schema(tool.input_schema):
            _log.warning("a tool of a server cannot be offered", extra={"server": upstream.name})
            return None
        takes_username = declares(tool.input_schema, _USERNAME)
        hints = tool.annotations or {}

        def with_username(call: Call, values: Mapping[str, Any]) -> Mapping[str, Any]:
            """The authenticated name replaces any value sent, even if the schema accepts arbitrary arguments."""
            return {**values, _USERNAME: call.principal.username} if takes_username or _USERNAME in values else values

        return remote_tool(
            name,
            tool.description,
            tool.input_schema,
            partial(self._forward, upstream.name, tool.name),
            completed=with_username,
            title=tool.title,
            output_schema=tool.output_schema,
            read_only=bool(hints.get("readOnlyHint", False)),
            destructive=bool(hints.get("destructiveHint", True)),
            idempotent=bool(hints.get("idempotentHint", False)),
            open_world=bool(hints.get("openWorldHint", True)),
            secret_fields=frozenset(SECRET_PARAMETERS),
            subject=("", ""),
        )

    async def _forward(self, server: str, tool: str, call: Call, arguments: Mapping[str, Any]) -> Relayed:
        if self._rate_limit is not None:
            self._rate_limit.take(call.principal.username)
        upstream = self._generic(server)
        # Access is checked at call time; the list of tools may be outdated.
        if upstream is None or not may_see_server(call.principal, upstream.spec):
            raise UpstreamUnavailable(f"`{server}` is no longer served", server=server)

        async def report(done: float, total: float | None, message: str | None) -> None:
            call.cancellation.report(done, total, message)

        on_progress = report if call.cancellation.has_listener else None
        return await upstream.call(tool, arguments, on_progress=on_progress)

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


def declares(schema: JsonSchema, name: str) -> bool:
    """Whether a schema describes or requires an argument, directly or in a subschema for the same object: a local
    reference, an alternative, a condition."""
    pending: list[object] = [schema]
    seen: set[int] = set()
    while pending:
        part = pending.pop()
        # A schema may refer to itself.
        if not isinstance(part, Mapping) or id(cast(object, part)) in seen:
            continue
        subschema = cast(Mapping[str, Any], part)
        seen.add(id(subschema))
        if any(isinstance(given := subschema.get(key), Mapping | list) and name in given for key in _DECLARATIONS):
            return True
        pending += _subschemas(subschema, schema)
    return False


def _subschemas(schema: Mapping[str, Any], root: JsonSchema) -> Iterator[object]:
    for keyword in _SCHEMA_LISTS:
        if isinstance(branches := schema.get(keyword), list):
            yield from cast(list[object], branches)
    for keyword in _SUBSCHEMAS:
        yield schema.get(keyword)
    if isinstance(dependent := schema.get("dependentSchemas"), Mapping):
        yield from cast(Mapping[str, object], dependent).values()
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        yield _dereference(root, reference)


def _dereference(root: JsonSchema, reference: str) -> object:
    """The target of a local reference; None if there is none."""
    found: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        found = cast(Mapping[str, object], found).get(name) if isinstance(found, Mapping) else None
    return found


def _is_schema(schema: dict[str, Any]) -> bool:
    try:
        jsonschema_rs.validator_for(schema)
    except (ValueError, jsonschema_rs.ValidationError):
        return False
    return True
