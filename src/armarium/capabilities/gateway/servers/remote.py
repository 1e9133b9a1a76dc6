"""A remote RAG server: calls its three tools with the caller's name and secrets, and parses the responses."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from armarium.capabilities.gateway.access import source_hint
from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import DataSource, ServerSpec
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.errors import GatewayError, UpstreamRefused
from armarium.capabilities.gateway.filters import active_filters
from armarium.capabilities.gateway.model import (
    ConfiguredServer,
    DiscoveryFilters,
    RagHits,
    RagQuery,
    Resource,
    ResourceList,
    Secrets,
    ServerAnswer,
    SynthesisOptions,
)
from armarium.capabilities.gateway.secret_parameters import declared_secrets
from armarium.capabilities.gateway.servers import response_parser
from armarium.capabilities.gateway.upstreams.types import UpstreamTool
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import log_fields
from armarium.foundation.tools import Call

_log = logging.getLogger("armarium.gateway")

_PAGE_SIZE: Final = 500
_MAX_PAGES: Final = 10
_ALWAYS_SENT: Final = frozenset({"username", "query", "sources"})


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Default deadlines of a server; its entry may set others."""

    call_s: float = 30.0
    discover_s: float = 10.0


class RemoteServer:
    """A server of the configuration files."""

    def __init__(self, server: ConfiguredServer, deadlines: Deadlines) -> None:
        self._upstream = server.upstream
        self.spec: ServerSpec = server.spec
        own = server.spec.timeouts.call_s
        self._call_s = own or deadlines.call_s
        self._discover_s = min(own or deadlines.discover_s, deadlines.discover_s)

    async def discover(self, call: Call, filters: DiscoveryFilters, secrets: Secrets) -> ResourceList:
        """All sources that the server lists for this caller; the configured hints if it has no discovery tool."""
        if not await self._offers(DISCOVER):
            return ResourceList([_hinted(source) for source in self.spec.data_sources])
        wanted: Json = {"types": list(filters.types), "tags": list(filters.tags), "search": filters.search}
        wanted = {name: value for name, value in wanted.items() if value}
        resources: dict[str, Resource] = {}
        dropped = 0
        synthesis_params: Json = {}
        for page in range(1, _MAX_PAGES + 1):
            asked = {"filters": {**wanted, "page": page, "page_size": _PAGE_SIZE}}
            body = await self._ask(call, DISCOVER, asked, secrets, self._discover_s)
            part = response_parser.parse_listing(self.spec.name, body)
            fresh = {each.id: each for each in part.resources if each.id not in resources}
            resources |= fresh
            dropped += part.dropped
            synthesis_params |= part.synthesis_params
            # A server without paging repeats its first page; one with paging reports the total.
            total = response_parser.total_resources(body)
            if not fresh or total is None or len(resources) + dropped >= total:
                break
        completed = [_with_hint(self.spec, resource) for resource in resources.values()]
        return ResourceList(completed, dropped, synthesis_params)

    async def search(self, call: Call, query: RagQuery, sources: Sequence[str], secrets: Secrets) -> RagHits:
        """Search some of its sources. Without support for filters, a filtered search returns no hits."""
        unmet = active_filters(query.filters)
        if unmet and "filters" not in _declared(await self._tool(RAW_RESULTS, self._call_s)):
            return RagHits([], unmet_filters=unmet)
        asked = _search_arguments(query, sources)
        body = await self._ask(call, RAW_RESULTS, asked, secrets, self._call_s, sources)
        return response_parser.parse_hits(self.spec.name, body, frozenset(sources), query.top_k)

    async def can_synthesize(self) -> bool:
        """Whether it offers the optional tool."""
        return await self._offers(SYNTHESIZED)

    async def synthesize(
        self, call: Call, query: RagQuery, sources: Sequence[str], options: SynthesisOptions, secrets: Secrets
    ) -> ServerAnswer:
        """Let the server write an answer."""
        asked = {**_search_arguments(query, sources), "synthesis_params": options.params or None}
        if options.provided is not None:
            asked["provided_context"] = {"hits": list(options.provided)}
        body = await self._ask(call, SYNTHESIZED, asked, secrets, self._call_s, sources)
        return response_parser.parse_answer(self.spec.name, body)

    async def _ask(
        self, call: Call, tool: str, asked: Json, secrets: Secrets, timeout_s: float, sources: Sequence[str] = ()
    ) -> Json:
        started = time.perf_counter()
        outcome = "cancelled"
        try:
            described = await self._tool(tool, timeout_s)
            given = declared_secrets(described.input_schema, secrets)
            # The authenticated name replaces any other.
            arguments = {**_accepted(described, asked), **given, "username": call.principal.username}
            result = await self._upstream.call(tool, arguments, timeout_s=timeout_s)
            body = response_parser.parse_body(self.spec.name, result)
            outcome = "success"
            return body
        except GatewayError as error:
            outcome = error.code
            raise
        finally:
            seconds = time.perf_counter() - started
            fields: Json = {
                "server": self.spec.name,
                "tool": tool,
                "username": call.principal.username,
                "sources": list(sources),
                "outcome": outcome,
                "duration_ms": round(seconds * 1000, 3),
            }
            log_fields(_log, logging.INFO, "asked a server", fields)

    async def _offers(self, name: str) -> bool:
        return any(tool.name == name for tool in await self._upstream.tools(timeout_s=self._discover_s))

    async def _tool(self, name: str, timeout_s: float) -> UpstreamTool:
        for tool in await self._upstream.tools(timeout_s=timeout_s):
            if tool.name == name:
                return tool
        raise UpstreamRefused(f"{self.spec.name} does not offer {name}")


def _search_arguments(query: RagQuery, sources: Sequence[str]) -> Json:
    return {
        "query": query.query,
        "sources": list(sources),
        "top_k": query.top_k,
        "filters": query.filters,
        "ranking": query.ranking,
    }


def _hinted(source: DataSource) -> Resource:
    return Resource(
        id=source.id,
        name=source.name or source.id,
        source_type="unknown",
        auth_mode=source.auth_mode,
        auth_required=source.auth_mode not in OPEN_MODES,
        scopes=source.scopes,
    )


def _with_hint(spec: ServerSpec, resource: Resource) -> Resource:
    """A resource with the auth mode and scopes of its configured hint."""
    hint = source_hint(spec, resource.id)
    if hint is None:
        return resource
    if resource.auth_mode == "none" and hint.auth_mode != "none":
        hinted = _hinted(hint)
        resource = replace(resource, auth_mode=hinted.auth_mode, auth_required=hinted.auth_required)
    return replace(resource, scopes=resource.scopes or hint.scopes)


def _accepted(tool: UpstreamTool, asked: Mapping[str, Any]) -> Json:
    """The arguments that the tool declares; it need not support every option of the contract."""
    declared = _declared(tool)
    return {
        name: value for name, value in asked.items() if value is not None and (name in _ALWAYS_SENT or name in declared)
    }


def _declared(tool: UpstreamTool) -> Mapping[str, Any]:
    return tool.input_schema.get("properties", {})
