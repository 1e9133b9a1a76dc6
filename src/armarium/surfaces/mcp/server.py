"""The MCP server object: which tools a client is told of, and how its calls reach the dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from starlette.requests import HTTPConnection

from armarium import __version__
from armarium.foundation.errors import UnknownTool
from armarium.foundation.identity import LOCAL
from armarium.foundation.tools import Json, ToolSpec
from armarium.surfaces.mcp.dispatch import Caller, Dispatcher

CALLER = "armarium.caller"
"""Where the gate leaves the caller in an ASGI scope."""

McpServer = Server[Any]
_Context = ServerRequestContext[Any, Any]


def mcp_server(name: str, dispatcher: Dispatcher, tools: Sequence[ToolSpec], instructions: str) -> McpServer:
    """A server that lists `tools` and runs them through the dispatcher."""
    listing = types.ListToolsResult(tools=[_advertised(tool) for tool in tools])
    served = frozenset(tool.name for tool in tools)

    async def list_tools(context: _Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return listing

    async def call_tool(context: _Context, params: types.CallToolRequestParams) -> Json:
        async with _progress_of(context) as report:
            try:
                return await dispatcher.call(
                    _caller(context), params.name, params.arguments or {}, report, served=served
                )
            except UnknownTool as error:
                unknown = MCPError(types.INVALID_PARAMS, error.message)
        # Raised out here because the progress task group would wrap it.
        raise unknown

    server: McpServer = Server(
        name,
        version=__version__,
        title="Armarium",
        instructions=instructions,
        on_list_tools=list_tools,
        get_tool_input_schema={tool.name: tool.input_schema for tool in tools}.get,
    )
    # Registered by name, not as `on_call_tool`, because the dispatcher already returns the wire form.
    server.add_request_handler("tools/call", types.CallToolRequestParams, call_tool)
    return server


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
