"""A server behind a connection, asked for the three tools: identity and secrets in, the contract's shapes out."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from armarium.capabilities.gateway.access import hint_for
from armarium.capabilities.gateway.config.entries import OPEN_MODES
from armarium.capabilities.gateway.config.files import DataSource, ServerSpec
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.errors import GatewayError, UpstreamRefused
from armarium.capabilities.gateway.filters import wishes
from armarium.capabilities.gateway.model import (
    DiscoveryFilters,
    Hits,
    Listing,
    Member,
    Question,
    Resource,
    Secrets,
    ServerAnswer,
    Synthesis,
)
from armarium.capabilities.gateway.secret_parameters import declared_by, scrubbed
from armarium.capabilities.gateway.servers import response_parser
from armarium.capabilities.gateway.upstreams.types import CallResult, UpstreamTool
from armarium.foundation.schema import Json
from armarium.foundation.telemetry import log_fields
from armarium.foundation.tools import Call

_log = logging.getLogger("armarium.gateway")

_PAGE_SIZE: Final = 500
_MOST_PAGES: Final = 10
_ALWAYS_SENT: Final = frozenset({"username", "query", "sources"})


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a server may take, unless its entry says otherwise."""

    call_s: float = 30.0
    discover_s: float = 10.0


class RemoteServer:
    """One of the servers that the registry names."""

    def __init__(self, member: Member, deadlines: Deadlines) -> None:
        self._upstream = member.upstream
        self.spec: ServerSpec = member.spec
        own = member.spec.timeouts.call_s
        self._call_s = own or deadlines.call_s
        self._discover_s = min(own or deadlines.discover_s, deadlines.discover_s)

    async def discover(self, call: Call, filters: DiscoveryFilters, secrets: Secrets) -> Listing:
        """Every page of what the server tells this caller; what the registry says, of a server that tells nothing."""
        if not await self._offers(DISCOVER):
            return Listing([_hinted(source) for source in self.spec.data_sources])
        wanted: Json = {"types": list(filters.types), "tags": list(filters.tags), "search": filters.search}
        wanted = {name: value for name, value in wanted.items() if value}
        resources: dict[str, Resource] = {}
        dropped = 0
        synthesis_params: Json = {}
        for page in range(1, _MOST_PAGES + 1):
            asked = {"filters": {**wanted, "page": page, "page_size": _PAGE_SIZE}}
            body = await self._ask(call, DISCOVER, asked, secrets, self._discover_s)
            part = response_parser.listing(self.spec.name, body)
            fresh = {each.id: each for each in part.resources if each.id not in resources}
            resources |= fresh
            dropped += part.dropped
            synthesis_params |= part.synthesis_params
            # A server that does not page gives the same again; one that does says how much there is.
            total = response_parser.told_total(body)
            if not fresh or total is None or len(resources) + dropped >= total:
                break
        completed = [_completed(self.spec, resource) for resource in resources.values()]
        return Listing(completed, dropped, synthesis_params)

    async def search(self, call: Call, question: Question, sources: Sequence[str], secrets: Secrets) -> Hits:
        """What it finds in these of its sources; nothing where it takes no filters and some are wished for."""
        unmet = wishes(question.filters)
        if unmet and "filters" not in _declared(await self._tool(RAW_RESULTS, self._call_s)):
            return Hits([], unmet_filters=unmet)
        asked = self._question(question, sources)
        body = await self._ask(call, RAW_RESULTS, asked, secrets, self._call_s, sources)
        return response_parser.hits(self.spec.name, body, frozenset(sources), question.top_k)

    async def can_synthesize(self) -> bool:
        """Whether it has the optional tool."""
        return await self._offers(SYNTHESIZED)

    async def synthesize(
        self, call: Call, question: Question, sources: Sequence[str], synthesis: Synthesis, secrets: Secrets
    ) -> ServerAnswer:
        """Its own answer."""
        asked = {**self._question(question, sources), "synthesis_params": synthesis.params or None}
        if synthesis.provided is not None:
            asked["provided_context"] = {"hits": list(synthesis.provided)}
        body = await self._ask(call, SYNTHESIZED, asked, secrets, self._call_s, sources)
        return response_parser.server_answer(self.spec.name, body)

    @staticmethod
    def _question(question: Question, sources: Sequence[str]) -> Json:
        return {
            "query": question.query,
            "sources": list(sources),
            "top_k": question.top_k,
            "filters": question.filters,
            "ranking": question.ranking,
        }

    async def _ask(
        self, call: Call, tool: str, asked: Json, secrets: Secrets, timeout_s: float, sources: Sequence[str] = ()
    ) -> Json:
        started = time.perf_counter()
        outcome = "cancelled"
        try:
            described = await self._tool(tool, timeout_s)
            given = declared_by(described.input_schema, secrets)
            # The name is ours to say, whatever was asked.
            arguments = {**_accepted(described, asked), **given, "username": call.principal.username}
            result = await self._upstream.call(tool, arguments, timeout_s=timeout_s)
            body = response_parser.body_of(self.spec.name, _without(result, given))
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


def _hinted(source: DataSource) -> Resource:
    return Resource(
        id=source.id,
        name=source.name or source.id,
        source_type="unknown",
        auth_mode=source.auth_mode,
        auth_required=source.auth_mode not in OPEN_MODES,
        scopes=source.scopes,
    )


def _completed(spec: ServerSpec, resource: Resource) -> Resource:
    """A resource with what the registry says of it besides: a demand for a token, scopes."""
    hint = hint_for(spec, resource.id)
    if hint is None:
        return resource
    if resource.auth_mode == "none" and hint.auth_mode != "none":
        hinted = _hinted(hint)
        resource = replace(resource, auth_mode=hinted.auth_mode, auth_required=hinted.auth_required)
    return replace(resource, scopes=resource.scopes or hint.scopes)


def _accepted(tool: UpstreamTool, asked: Mapping[str, Any]) -> Json:
    """What the tool takes of what is asked: it need not know every option of the contract."""
    declared = _declared(tool)
    return {
        name: value for name, value in asked.items() if value is not None and (name in _ALWAYS_SENT or name in declared)
    }


def _declared(tool: UpstreamTool) -> Mapping[str, Any]:
    return tool.input_schema.get("properties", {})


def _without(result: CallResult, secrets: Secrets) -> CallResult:
    """The answer, should a server say a secret back."""
    if not secrets:
        return result
    hidden = list(secrets.values())
    return replace(result, structured=scrubbed(result.structured, hidden), content=scrubbed(result.content, hidden))
