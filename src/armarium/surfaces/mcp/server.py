"""Creates the SDK's server object: it lists tools and passes calls to the dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import HTTPConnection

from armarium.capability import ServerIdentity
from armarium.foundation.errors import UnknownTool
from armarium.foundation.identity import LOCAL, Principal
from armarium.foundation.schema import Json
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.mcp.deferred_parts import DEFERRED_PARTS, DeferredParts
from armarium.surfaces.mcp.progress import progress_of
from armarium.surfaces.mcp.tool_changes import ToolChanges
from armarium.surfaces.mcp.tool_list import describe_tool, describe_valid_tool
from armarium.surfaces.tool_providers import PerToolCache, ToolProviders
from armarium.surfaces.tool_results import ResultForm

CALLER = "armarium.caller"
"""The key of the caller in an ASGI scope."""

_Context = ServerRequestContext[Any, Any]


class McpServer(Server[Any]):
    """The SDK's server, with notifications about changed tools."""

    def __init__(self, name: str, changes: ToolChanges, **traits: Any) -> None:
        super().__init__(name, **traits)
        self.changes = changes

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """The capabilities for the handshake, with `listChanged` if the server has tool providers."""
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
    """Create a server that offers `tools` to everyone and the tools of `tool_providers` to their callers.

    The dispatcher runs them. `traced` keeps the SDK's tracing middleware.
    """
    tool_providers = tool_providers or ToolProviders()
    fixed = [describe_tool(tool) for tool in tools]
    fixed_list = types.ListToolsResult(tools=fixed)
    provided = PerToolCache(describe_valid_tool)
    served = frozenset(tool.name for tool in tools)

    def listed(principal: Principal) -> list[types.Tool]:
        described = [provided.get(tool) for tool in tool_providers.tools_for(principal)]
        return [*fixed, *(tool for tool in described if tool is not None)]

    changes = ToolChanges(tool_providers, listed)

    async def list_tools(context: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed(_caller(context).principal)) if tool_providers else fixed_list

    async def listen(
        context: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await changes.serve(_caller(context).principal, context, params)

    async def call(context: _Context, name: str, arguments: Json, form: ResultForm = "plain") -> Json:
        caller = _caller(context)
        async with progress_of(context) as report:
            try:
                return await dispatcher.call(
                    caller, name, arguments, report, served=served, tool_providers=tool_providers, form=form
                )
            except UnknownTool as error:
                raise MCPError(types.INVALID_PARAMS, error.message) from None

    async def call_tool(context: _Context, params: types.CallToolRequestParams) -> Json:
        deferred = _deferred_parts(context)
        result = await call(context, params.name, params.arguments or {}, "encoded" if deferred else "plain")
        # Required from protocol 2026-07-28 on; the SDK removes it for older clients.
        return (deferred.take_from(result) if deferred else result) | {"resultType": "complete"}

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
    # Registered by name, not as `on_call_tool`: the dispatcher returns plain JSON, not the SDK's models.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)

    async def call_tool_directly(ctx: _Context, call_next: CallNext) -> HandlerResult:
        """Middleware: run ordinary tool calls without the SDK's models. The dispatcher makes the same checks."""
        name, arguments = _plain_call(ctx)
        if name in served or (name and tool_providers):
            return await call(ctx, name, arguments, "encoded")
        return await call_next(ctx)

    if not traced:
        server.middleware.clear()
    server.middleware.append(call_tool_directly)
    return server


def _plain_call(context: _Context) -> tuple[str, Json]:
    """The name and the arguments of a well-formed tool call in an established session; otherwise an empty name."""
    params = context.params or {}
    name, arguments = params.get("name"), cast(object, params.get("arguments") or {})
    plain = (
        context.method == "tools/call"
        and context.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS
        and context.session.client_params is not None
        and isinstance(arguments, dict)
    )
    return (name, cast(Json, arguments)) if plain and isinstance(name, str) else ("", {})


def _deferred_parts(context: _Context) -> DeferredParts | None:
    """Where to store the large parts of the result; None over stdio."""
    request: object = context.request
    return request.scope.get(DEFERRED_PARTS) if isinstance(request, HTTPConnection) else None


def _caller(context: _Context) -> Caller:
    request: object = context.request
    if isinstance(request, Caller):
        return request
    if isinstance(request, HTTPConnection):
        return request.scope[CALLER]
    return Caller(LOCAL, "stdio")
