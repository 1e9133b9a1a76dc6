"""A remote RAG server: calls its three tools with the caller's name and secrets, and parses the responses."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from armarium.capabilities.gateway.access import source_hint
from armarium.capabilities.gateway.arguments import DiscoveryFilters, active_filters
from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import DataSource, ServerSpec
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.errors import GatewayError, UpstreamProtocol, UpstreamRefused
from armarium.capabilities.gateway.model import (
    Attachments,
    RagAnswer,
    RagHits,
    RagQuery,
    Resource,
    ResourceList,
    Secrets,
)
from armarium.capabilities.gateway.servers import response_parser
from armarium.capabilities.gateway.servers.builtin import BuiltInServer
from armarium.capabilities.gateway.servers.identity import rag_identity
from armarium.capabilities.gateway.servers.untrusted_json import as_object
from armarium.capabilities.gateway.settings import GatewayLimits
from armarium.capabilities.gateway.upstreams.types import UpstreamTool
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import log_fields
from armarium.foundation.tools import Call

_log = logging.getLogger("armarium.gateway")

_PAGE_SIZE: Final = 500
_MAX_PAGES: Final = 10
_ALWAYS_SENT: Final = frozenset({"query", "sources"})


def is_rag_server(spec: ServerSpec, tools: Iterable[UpstreamTool]) -> bool:
    """Whether a server's sources are searched with those of all others: it is in `rag-mcp.json`, or its entry in
    `mcp.json` describes sources, or says how to show it and it has the tool for searches."""
    if spec.kind == "rag" or spec.data_sources:
        return True
    return spec.has_source_hints and any(tool.name == RAW_RESULTS for tool in tools)


class RemoteServer:
    """A server of the configuration files."""

    def __init__(self, upstream: Upstream, limits: GatewayLimits) -> None:
        self._upstream = upstream
        # The entry may change during a call.
        self.spec: ServerSpec = upstream.spec
        own = self.spec.timeouts.call_s
        self._call_s = own or limits.call_timeout_s
        self._discover_s = min(own or limits.discover_timeout_s, limits.discover_timeout_s)

    async def discover(self, call: Call, filters: DiscoveryFilters, secrets: Secrets) -> ResourceList:
        """All sources that the server lists for this caller; the configured hints if it has no discovery tool."""
        if await self._tool(DISCOVER, self._discover_s) is None:
            hints = self.spec.data_sources
            return ResourceList(
                [_with_hint(Resource(each.id, each.name or each.id, "unknown"), each) for each in hints]
            )
        wanted: Json = {"types": list(filters.types), "tags": list(filters.tags), "search": filters.search}
        wanted = {name: value for name, value in wanted.items() if value}
        resources: dict[str, Resource] = {}
        dropped = 0
        synthesis_params: Json = {}
        attachments: Attachments | None = None
        for page in range(1, _MAX_PAGES + 1):
            asked = {"filters": {**wanted, "page": page, "page_size": _PAGE_SIZE}}
            body = await self._ask(call, DISCOVER, asked, secrets, self._discover_s)
            part = response_parser.parse_listing(self.spec.name, body)
            fresh = {each.id: each for each in part.resources if each.id not in resources}
            resources |= fresh
            dropped += part.dropped
            synthesis_params |= part.synthesis_params
            attachments = attachments or part.attachments
            # A server without paging repeats its first page; one with paging reports the total.
            if not fresh or part.total is None or len(resources) + dropped >= part.total:
                break
        completed = [_with_hint(each, source_hint(self.spec, each.id)) for each in resources.values()]
        return ResourceList(completed, dropped, synthesis_params, attachments=attachments or Attachments())

    async def search(self, call: Call, query: RagQuery, sources: Sequence[str], secrets: Secrets) -> RagHits:
        """Search some of its sources. Without support for filters, a filtered search returns no hits."""
        unmet = active_filters(query.filters)
        if unmet and "filters" not in _declared(await self._required_tool(RAW_RESULTS, self._call_s)):
            return RagHits([], unmet_filters=unmet)
        body = await self._ask(call, RAW_RESULTS, _query_arguments(query, sources), secrets, self._call_s)
        return response_parser.parse_hits(self.spec.name, body, frozenset(sources), query.top_k)

    async def synthesize(
        self, call: Call, query: RagQuery, sources: Sequence[str], secrets: Secrets
    ) -> RagAnswer | None:
        """Let the server write an answer; None if it does not offer the optional tool."""
        if await self._tool(SYNTHESIZED, self._discover_s) is None:
            return None
        body = await self._ask(call, SYNTHESIZED, _query_arguments(query, sources), secrets, self._call_s)
        return response_parser.parse_answer(self.spec.name, body, sources)

    async def _ask(self, call: Call, tool: str, asked: Json, secrets: Secrets, timeout_s: float) -> Json:
        started = time.perf_counter()
        outcome = "cancelled"
        try:
            described = await self._required_tool(tool, timeout_s)
            accepted = _declared(described)
            arguments: Json = {name: value for name, value in secrets.items() if name in accepted}
            # The tool need not support every option of the contract.
            accepted |= _ALWAYS_SENT
            arguments |= {name: value for name, value in asked.items() if value is not None and name in accepted}
            # The authenticated name replaces any other.
            arguments |= rag_identity(self._upstream.spec, described.input_schema, call.principal.username)
            result = await self._upstream.call(tool, arguments, timeout_s=timeout_s)
            try:
                body = response_parser.parse_body(self.spec.name, result)
            except UpstreamProtocol as error:
                self._upstream.response_rejected(error)
                raise
            outcome = "success"
            return body
        except GatewayError as error:
            outcome = error.code
            raise
        finally:
            fields: Json = {
                "server": self.spec.name,
                "tool": tool,
                "username": call.principal.username,
                "sources": asked.get("sources", []),
                "outcome": outcome,
                "duration_ms": round((time.perf_counter() - started) * 1000, 3),
            }
            log_fields(_log, logging.INFO, "asked a server", fields)

    async def _tool(self, name: str, timeout_s: float) -> UpstreamTool | None:
        return next((tool for tool in await self._upstream.tools(timeout_s=timeout_s) if tool.name == name), None)

    async def _required_tool(self, name: str, timeout_s: float) -> UpstreamTool:
        if (tool := await self._tool(name, timeout_s)) is None:
            raise UpstreamRefused(f"{self.spec.name} does not offer {name}")
        return tool


def _query_arguments(query: RagQuery, sources: Sequence[str]) -> Json:
    return {
        "query": query.query,
        "sources": list(sources),
        "top_k": query.top_k,
        "filters": query.filters,
        "ranking": query.ranking,
        "synthesis_params": query.synthesis_params or None,
        "provided_context": None if query.provided is None else {"hits": list(query.provided)},
    }


def _with_hint(resource: Resource, hint: DataSource | None) -> Resource:
    """A resource with the auth mode and scopes of its configured hint."""
    if hint is None:
        return resource
    if resource.auth_mode == "none" and hint.auth_mode != "none":
        resource = replace(resource, auth_mode=hint.auth_mode, auth_required=hint.auth_mode not in OPEN_MODES)
    return replace(resource, scopes=resource.scopes or hint.scopes)


def _declared(tool: UpstreamTool) -> frozenset[str]:
    """The names of the tool's parameters."""
    return frozenset(as_object(tool.input_schema.get("properties")))


RagServer = RemoteServer | BuiltInServer
"""A server with the three tools."""
