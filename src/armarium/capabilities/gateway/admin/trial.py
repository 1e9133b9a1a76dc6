"""Tries a server that is not one of the gateway's, and describes what a server offers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NotRequired

from typing_extensions import TypedDict

from armarium.capabilities.gateway.arguments import DiscoveryFilters
from armarium.capabilities.gateway.config.files import ServerSpec
from armarium.capabilities.gateway.contract import RAW_RESULTS
from armarium.capabilities.gateway.errors import GatewayError, TokenExpired, UpstreamRefused
from armarium.capabilities.gateway.servers.remote import RemoteServer, is_rag_server
from armarium.capabilities.gateway.servers.untrusted_json import as_object
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits, UpstreamTool
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from armarium.foundation.tools import Call

_MAX_SHOWN: Final = 100
_MAX_DESCRIPTION: Final = 2000


class OfferedTool(TypedDict):
    name: str
    title: NotRequired[str]
    description: str
    parameters: list[str]
    """Those that are required come first."""
    required: int
    """How many are required."""
    read_only: NotRequired[bool]
    """As the server says."""
    destructive: NotRequired[bool]


class TriedSource(TypedDict):
    id: str
    name: str


class Failure(TypedDict):
    code: str
    message: str
    hint: NotRequired[str]


class Trial(TypedDict):
    ok: bool
    elapsed_ms: float
    server_name: NotRequired[str]
    server_version: NotRequired[str]
    tools: list[OfferedTool]
    """The first of its tools."""
    tool_count: int
    notes: NotRequired[list[str]]
    """What operators should know about its tools."""
    sources: NotRequired[list[TriedSource]]
    """The first of the sources that it lists for the administrator."""
    source_count: NotRequired[int]
    error: NotRequired[Failure]


async def try_server(call: Call, spec: ServerSpec, limits: UpstreamLimits) -> Trial:
    """Connect to a server, list its tools and, if it is a RAG server, its sources. Then close the connection."""
    started = time.perf_counter()
    trial: Trial = {"ok": False, "elapsed_ms": 0.0, "tools": [], "tool_count": 0}
    async with UpstreamSet(limits, drain_s=0.0) as servers:
        await servers.apply({spec.name: spec})
        upstream = servers.get(spec.name)
        assert upstream is not None, "it is enabled"
        try:
            tools = await upstream.tools(timeout_s=spec.timeouts.connect_s or limits.connect_timeout_s)
            _describe_offer(trial, upstream, tools)
            if is_rag_server(spec, tools):
                await _list_sources(call, trial, RemoteServer(upstream, limits), tools)
            trial["ok"] = True
        except GatewayError as error:
            trial["error"] = failure_of(error)
        trial["elapsed_ms"] = round((time.perf_counter() - started) * 1000, 1)
    return trial


def _describe_offer(trial: Trial, upstream: Upstream, tools: Sequence[UpstreamTool]) -> None:
    health = upstream.health()
    trial["tools"], trial["tool_count"] = [offered_tool(tool) for tool in tools[:_MAX_SHOWN]], len(tools)
    if health.server_name:
        trial["server_name"] = health.server_name
    if health.server_version:
        trial["server_version"] = health.server_version
    if health.notes:
        trial["notes"] = list(health.notes)


async def _list_sources(call: Call, trial: Trial, server: RemoteServer, tools: Sequence[UpstreamTool]) -> None:
    if all(tool.name != RAW_RESULTS for tool in tools):
        raise UpstreamRefused(
            f"`{server.spec.name}` does not offer {RAW_RESULTS}",
            hint="a server that only offers other tools belongs in mcp.json",
        )
    try:
        listed = (await server.discover(call, DiscoveryFilters(), {})).resources
    except TokenExpired:
        # It works, and lists its sources to callers with a token.
        trial["notes"] = [*trial.get("notes", ()), "it lists its sources only to callers with a token"]
        return
    trial["sources"] = [{"id": each.id, "name": each.name} for each in listed[:_MAX_SHOWN]]
    trial["source_count"] = len(listed)


def offered_tool(tool: UpstreamTool) -> OfferedTool:
    """A tool as its server describes it, shortened."""
    parameters, hints = as_object(tool.input_schema.get("properties")), tool.annotations or {}
    required = tool.input_schema.get("required")
    needed = [name for name in parameters if isinstance(required, list) and name in required]
    others = [name for name in parameters if name not in needed]
    offered: OfferedTool = {
        "name": tool.name,
        "description": tool.description[:_MAX_DESCRIPTION],
        "parameters": [*needed, *others][:_MAX_SHOWN],
        "required": len(needed),
    }
    if tool.title:
        offered["title"] = tool.title
    if isinstance(hints.get("readOnlyHint"), bool):
        offered["read_only"] = hints["readOnlyHint"]
    if isinstance(hints.get("destructiveHint"), bool):
        offered["destructive"] = hints["destructiveHint"]
    return offered


def failure_of(error: GatewayError) -> Failure:
    """An error, with the hint for operators."""
    failure: Failure = {"code": error.code, "message": error.message}
    if hint := error.for_operators or error.hint:
        failure["hint"] = hint
    return failure
