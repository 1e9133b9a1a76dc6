"""The MCP server object: which tools a client is told of, and how its calls reach the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import HTTPConnection

from armarium import __version__
from armarium.foundation.errors import UnknownTool
from armarium.foundation.identity import LOCAL
from armarium.foundation.tools import Json, ToolSpec
from armarium.surfaces.dispatch import Caller, Dispatcher

CALLER = "armarium.caller"
"""Where the gate leaves the caller in an ASGI scope."""

McpServer = Server[Any]
_Context = ServerRequestContext[Any, Any]


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a client is told about whom it speaks to."""

    name: str
    instructions: str
    title: str = "Armarium"
    version: str = __version__


def mcp_server(
    identity: ServerIdentity, dispatcher: Dispatcher, tools: Sequence[ToolSpec], *, traced: bool = False
) -> McpServer:
    """A server that lists `tools` and runs them through the dispatcher; `traced` if somebody collects the spans."""
    listing = types.ListToolsResult(tools=[_advertised(tool) for tool in tools])
    served = frozenset(tool.name for tool in tools)

    async def list_tools(context: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return listing

    async def call_tool(context: _Context, params: types.CallToolRequestParams) -> Json:
        async with _progress_of(context) as report:
            try:
                result = await dispatcher.call(
                    _caller(context), params.name, params.arguments or {}, report, served=served
                )
                # Required from 2026-07-28 on; the SDK leaves it out for older clients.
                return result | {"resultType": "complete"}
            except UnknownTool as error:
                unknown = MCPError(types.INVALID_PARAMS, error.message)
        # Raised out here because the progress task group would wrap it.
        raise unknown

    server: McpServer = Server(
        identity.name,
        version=identity.version,
        title=identity.title,
        instructions=identity.instructions,
        on_list_tools=list_tools,
        get_tool_input_schema={tool.name: tool.input_schema for tool in tools}.get,
    )
    # Registered by name, not as `on_call_tool`, because the dispatcher already returns the wire form.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)

    async def straight_to_the_tool(ctx: _Context, call_next: CallNext) -> HandlerResult:
        """Spare ordinary tool calls the SDK's models: the dispatcher checks all they would."""
        name, arguments = _plain_call(ctx)
        if name not in served:
            return await call_next(ctx)
        async with _progress_of(ctx) as report:
            return await dispatcher.call(_caller(ctx), name, arguments, report)

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


def _advertised(tool: ToolSpec) -> types.Tool:
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


def _caller(context: _Context) -> Caller:
    carried: object = context.request
    if isinstance(carried, Caller):
        return carried
    if isinstance(carried, HTTPConnection):
        return carried.scope[CALLER]
    return Caller(LOCAL, "stdio")


@asynccontextmanager
async def _progress_of(context: _Context) -> AsyncGenerator[Callable[[int], None] | None]:
    """A function that worker threads may call to report progress; None when the client did not ask for any."""
    if context.meta is None or context.meta.get("progress_token") is None:
        yield None
        return
    loop = asyncio.get_running_loop()
    reports, to_send = anyio.create_memory_object_stream[int](1)

    def report(done: int) -> None:
        loop.call_soon_threadsafe(_offer, reports, done)

    async def forward() -> None:
        told = -1
        async for done in to_send:
            if done > told:  # the protocol wants every report to be further than the last
                told = done
                await context.session.report_progress(done)

    with reports, to_send:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forward)
            yield report
            tasks.cancel_scope.cancel()


def _offer(reports: Any, done: int) -> None:
    """Progress is news, not a ledger: what the client was too slow for is dropped."""
    try:
        reports.send_nowait(done)
    except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
        return
