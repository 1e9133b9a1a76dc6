"""Creates the SDK's server object: it lists tools and passes calls to the dispatcher."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from typing import Any, cast

import anyio
import anyio.lowlevel
import mcp_types as types
import orjson
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types.methods import serialize_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, SUPPORTED_PROTOCOL_VERSIONS
from starlette.requests import HTTPConnection

from armarium.capability import ServerIdentity
from armarium.foundation.concurrency.cancellation import ProgressListener
from armarium.foundation.concurrency.tasks import task_group
from armarium.foundation.errors import UnknownTool
from armarium.foundation.schema import Json
from armarium.foundation.security.identity import LOCAL, Principal
from armarium.foundation.tools import ToolSpec
from armarium.surfaces.caller import Caller
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.mcp.event_stream import DEFERRED_PARTS, DeferredParts
from armarium.surfaces.mcp.tool_changes import ToolChanges
from armarium.surfaces.prepared_tool import escape_surrogates
from armarium.surfaces.tool_providers import MAX_CACHED_TOOLS, ToolProviders
from armarium.surfaces.tool_results import ResultForm

CALLER = "armarium.caller"
"""The key of the caller in an ASGI scope."""

_MAX_QUEUED = 16

_Context = ServerRequestContext[Any, Any]
_Report = tuple[float, float | None, str | None]

_log = logging.getLogger(__name__)


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
    """Create a server that offers `tools` to everyone and the tools of `tool_providers` to their callers. The
    dispatcher runs them. `traced` keeps the SDK's tracing middleware."""
    tool_providers = tool_providers or ToolProviders()
    fixed = [_describe_tool(tool) for tool in tools]
    fixed_list = types.ListToolsResult(tools=fixed)
    describe_provided = lru_cache(MAX_CACHED_TOOLS)(_describe_valid_tool)
    served = frozenset(tool.name for tool in tools)

    def listed(principal: Principal) -> list[types.Tool]:
        described = [describe_provided(tool) for tool in tool_providers.tools_for(principal)]
        permitted = (tool for tool in fixed if dispatcher.permits(principal, tool.name))
        return [*permitted, *(tool for tool in described if tool is not None)]

    changes = ToolChanges(tool_providers, listed)

    async def list_tools(context: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        principal = _caller(context).principal
        tools = listed(principal)
        # The SDK encodes a list that it knows faster.
        return fixed_list if not tool_providers and len(tools) == len(fixed) else types.ListToolsResult(tools=tools)

    async def listen(
        context: _Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        return await changes.serve(_caller(context).principal, context, params)

    async def call(context: _Context, name: str, arguments: Json, form: ResultForm = "plain") -> Json:
        caller = _caller(context)
        async with _progress_of(context) as report:
            try:
                outcome = await dispatcher.outcome(
                    caller,
                    name,
                    arguments,
                    report,
                    served=served,
                    tool_providers=tool_providers,
                    form=form,
                    meta=_meta(context),
                )
            except UnknownTool as error:
                raise MCPError(types.INVALID_PARAMS, error.message) from None
        return outcome.result

    async def call_tool(context: _Context, params: types.CallToolRequestParams) -> Json:
        request: object = context.request
        deferred: DeferredParts | None = None  # over stdio
        if isinstance(request, HTTPConnection):
            deferred = request.scope.get(DEFERRED_PARTS)
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


def _meta(context: _Context) -> Json:
    meta: object = (context.params or {}).get("_meta")
    return cast(Json, meta) if isinstance(meta, dict) else {}


def _caller(context: _Context) -> Caller:
    request: object = context.request
    if isinstance(request, Caller):
        return request
    if isinstance(request, HTTPConnection):
        return request.scope[CALLER]
    return Caller(LOCAL, "stdio")


@asynccontextmanager
async def _progress_of(context: _Context) -> AsyncGenerator[ProgressListener | None]:
    """A function that reports progress from any thread; None if the client did not ask for progress."""
    if context.meta is None or context.meta.get("progress_token") is None:
        yield None
        return
    loop = asyncio.get_running_loop()
    reports, to_send = anyio.create_memory_object_stream[_Report](_MAX_QUEUED)

    def offer(report: _Report) -> None:
        # Reports that a slow client cannot take are dropped.
        with suppress(anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            reports.send_nowait(report)

    def report(progress: float, total: float | None, message: str | None) -> None:
        loop.call_soon_threadsafe(offer, (progress, total, message))

    async def forward() -> None:
        last = -1.0
        async for progress, total, message in to_send:
            if progress > last:  # the protocol requires increasing values
                last = progress
                await context.session.report_progress(progress, total, message)

    with reports, to_send:
        async with task_group() as tasks:
            tasks.start_soon(forward)
            yield report
            # The last report must precede the response: let scheduled reports arrive before the stream closes.
            await anyio.lowlevel.checkpoint()
            reports.close()


def _describe_tool(tool: ToolSpec) -> types.Tool:
    """The tool as clients see it."""
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=tool.advertised_output(),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def _describe_valid_tool(tool: ToolSpec) -> types.Tool | None:
    """The tool of an upstream as clients see it; None if it would make the whole list unreadable for a client."""
    try:
        described = _describe_tool(tool)
        listing = types.ListToolsResult(tools=[described]).model_dump(by_alias=True, mode="json", exclude_none=True)
        for version in SUPPORTED_PROTOCOL_VERSIONS:
            orjson.dumps(serialize_server_result("tools/list", version, listing))
    except (ValueError, TypeError):
        _log.warning("an invalid tool is not listed", extra={"tool": escape_surrogates(tool.name)})
        return None
    return described
