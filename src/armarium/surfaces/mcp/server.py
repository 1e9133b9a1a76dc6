"""The MCP server object: which tools a client is told of, and how its calls reach the dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import HTTPConnection

from armarium import __version__
from armarium.foundation.errors import UnknownTool
from armarium.foundation.identity import LOCAL, Principal
from armarium.foundation.schema import Json
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.mcp.deferred_parts import SET_ASIDE, SetAside
from armarium.surfaces.mcp.progress import progress_of
from armarium.surfaces.mcp.tool_changes import ToolChanges
from armarium.surfaces.mcp.tool_list import advertised, advertised_if_possible
from armarium.surfaces.tool_providers import MadeOnce, ToolProviders
from armarium.surfaces.tool_results import Form

CALLER = "armarium.caller"
"""Where the gate leaves the caller in an ASGI scope."""

_Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a client is told about whom it speaks to."""

    name: str
    instructions: str
    title: str = "Armarium"
    version: str = __version__


class McpServer(Server[Any]):
    """The SDK's server, which also knows when its tools change."""

    def __init__(self, name: str, changes: ToolChanges, **traits: Any) -> None:
        super().__init__(name, **traits)
        self.changes = changes

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """What a client is told in the handshake: also whether the list of tools may change."""
        options = notification_options or NotificationOptions(tools_changed=self.changes.can_happen)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


def mcp_server(
    identity: ServerIdentity,
    dispatcher: Dispatcher,
    tools: Sequence[ToolSpec],
    *,
    tool_providers: ToolProviders | None = None,
    traced: bool = False,
) -> McpServer:
    """A server that lists `tools`, and those on the `tool_providers` to whom they are for, and runs them through the
    dispatcher; `traced` if somebody collects the spans."""
    tool_providers = tool_providers or ToolProviders()
    fixed = [advertised(tool) for tool in tools]
    fixed_listing = types.ListToolsResult(tools=fixed)
    provided = MadeOnce(advertised_if_possible)
    served = frozenset(tool.name for tool in tools)

    def listed(principal: Principal) -> list[types.Tool]:
        told = [provided.of(tool) for tool in tool_providers.tools_for(principal)]
        return [*fixed, *(tool for tool in told if tool is not None)]

    changes = ToolChanges(tool_providers, listed)

    async def list_tools(context: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed(_caller(context).principal)) if tool_providers else fixed_listing

    async def listen(
        context: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await changes.serve(_caller(context).principal, context, params)

    async def call(context: _Context, name: str, arguments: Json, form: Form = "plain") -> Json:
        caller = _caller(context)
        async with progress_of(context) as report:
            try:
                return await dispatcher.call(
                    caller, name, arguments, report, served=served, tool_providers=tool_providers, form=form
                )
            except UnknownTool as error:
                unknown = MCPError(types.INVALID_PARAMS, error.message)
        # Raised out here because the progress task group would wrap it.
        raise unknown

    async def call_tool(context: _Context, params: types.CallToolRequestParams) -> Json:
        large = _set_aside(context)
        result = await call(context, params.name, params.arguments or {}, "packed" if large else "plain")
        # Required from 2026-07-28 on; the SDK leaves it out for older clients.
        return (large.small(result) if large else result) | {"resultType": "complete"}

    server = McpServer(
        identity.name,
        changes,
        version=identity.version,
        title=identity.title,
        instructions=identity.instructions,
        on_list_tools=list_tools,
        on_subscriptions_listen=listen if tool_providers else None,
        get_tool_input_schema={tool.name: tool.input_schema for tool in tools}.get,
    )
    # Registered by name, not as `on_call_tool`, because the dispatcher already returns the wire form.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)

    async def straight_to_the_tool(ctx: _Context, call_next: CallNext) -> HandlerResult:
        """Spare ordinary tool calls the SDK's models: the dispatcher checks all they would."""
        name, arguments = _plain_call(ctx)
        if name in served or (name and tool_providers):
            return await call(ctx, name, arguments, "packed")
        return await call_next(ctx)

    if not traced:
        server.middleware.clear()
    server.middleware.append(straight_to_the_tool)
    return server


def _plain_call(context: _Context) -> tuple[str, Json]:
    """Name and arguments of a well-formed tool call in an established session; otherwise no name."""
    params = context.params or {}
    name, arguments = params.get("name"), cast(object, params.get("arguments") or {})
    plain = (
        context.method == "tools/call"
        and context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        and context.session.client_params is not None
        and isinstance(arguments, dict)
    )
    return (name, cast(Json, arguments)) if plain and isinstance(name, str) else ("", {})


def _set_aside(context: _Context) -> SetAside | None:
    """Where the request's large answer can wait until the SDK sends it; over stdio nowhere."""
    carried: object = context.request
    return carried.scope.get(SET_ASIDE) if isinstance(carried, HTTPConnection) else None


def _caller(context: _Context) -> Caller:
    carried: object = context.request
    if isinstance(carried, Caller):
        return carried
    if isinstance(carried, HTTPConnection):
        return carried.scope[CALLER]
    return Caller(LOCAL, "stdio")
