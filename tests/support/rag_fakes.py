"""Fake RAG servers, and a gateway over them that tests call through the dispatcher."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from armarium.capabilities.gateway.config.files import ServerSpec, parse_entries, resolve_entries
from armarium.capabilities.gateway.contract import DISCOVER, RAW_RESULTS, SYNTHESIZED
from armarium.capabilities.gateway.errors import GatewayError, UpstreamTimeout
from armarium.capabilities.gateway.route_tools import SESSION_TOOLS, SessionTools
from armarium.capabilities.gateway.selections.service import Selections
from armarium.capabilities.gateway.selections.store import SelectionStore
from armarium.capabilities.gateway.servers.builtin import BuiltInServer
from armarium.capabilities.gateway.service import Gateway
from armarium.capabilities.gateway.settings import GatewayLimits
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.capabilities.gateway.tools import bind_rag_tools
from armarium.capabilities.gateway.upstreams.scrubber import Scrubber
from armarium.capabilities.gateway.upstreams.types import UpstreamHealth, UpstreamTool
from armarium.foundation.audit import AuditLog
from armarium.foundation.security.identity import Principal, key_hash
from armarium.foundation.telemetry import Metrics
from armarium.foundation.tools import Call, Relayed, bind_tools
from armarium.retrieval.sources import NO_FILTERS, Collection, SourceFilters, SourceHit, SourceHits, Sources
from armarium.surfaces.dispatch import Caller, Dispatcher, Outcome

Json = dict[str, Any]
Handler = Callable[[Json], Awaitable[Any]]

ANNA = Principal("anna", ("users",), key_hash("anna"))
LEX = Principal("lex", ("users", "legal"), key_hash("lex"))
NOBODY = Principal("nobody", (), key_hash("nobody"))


def resource(source_id: str, **more: Any) -> Json:
    """A resource as a server describes it."""
    described = {"id": source_id, "name": source_id.title(), "sourceType": "wiki", "authRequired": False}
    return described | {"authMode": "none"} | more


def hit(hit_id: str, source_id: str, score: float, **more: Any) -> Json:
    """A hit as a server describes it."""
    described = {"id": hit_id, "score": score, "resourceId": source_id, "snippet": f"about {hit_id}"}
    return described | {"title": hit_id, "uri": f"wiki://{source_id}/{hit_id}"} | more


class FakeUpstream:
    """Responds as a test says, and records its calls."""

    def __init__(
        self,
        resources: Sequence[Any] = (),
        hits: Sequence[Any] = (),
        *,
        answers: bool = False,
        declares: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> None:
        self.spec = ServerSpec("fake", "rag")
        self.resources = list(resources)
        self.hits = list(hits)
        self.asked: list[tuple[str, Json]] = []
        self.handlers: dict[str, Handler] = {}
        self.rejected: list[str] = []
        names = [DISCOVER, RAW_RESULTS, *([SYNTHESIZED] if answers else [])]
        taken = ["username", "query", "sources", "top_k", "filters", "ranking", "synthesis_params", "provided_context"]
        schema = {"type": "object", "properties": {name: {} for name in [*taken, *declares]}}
        self.offered = [UpstreamTool(name, "", schema) for name in names if name not in without]

    @property
    def last_tools(self) -> list[UpstreamTool]:
        return self.offered

    def health(self) -> UpstreamHealth:
        return UpstreamHealth(self.spec.name, "ready")

    async def tools(self, *, timeout_s: float | None = None) -> list[UpstreamTool]:
        return self.offered

    async def call(self, tool: str, arguments: Mapping[str, Any], *, timeout_s: float | None = None) -> Relayed:
        self.asked.append((tool, dict(arguments)))
        assert timeout_s is not None
        try:
            with anyio.fail_after(timeout_s):
                body = await self.handlers.get(tool, self._usual)({"tool": tool, **arguments})
        except TimeoutError:
            raise UpstreamTimeout("the server did not answer in time") from None
        result = body if isinstance(body, Relayed) else Relayed([], body, is_error=False)
        # As a real upstream does; `test_upstreams.py` checks that it does.
        scrubber = Scrubber(ServerSpec("fake", "rag"))
        with scrubber.hold(arguments):
            return scrubber.scrub_result(result, arguments)

    def response_rejected(self, error: GatewayError) -> None:
        self.rejected.append(error.message)

    async def _usual(self, asked: Json) -> Json:
        if asked["tool"] == DISCOVER:
            return {"results": {"resources": self.resources}}
        if asked["tool"] == RAW_RESULTS:
            wanted = [each for each in self.hits if each.get("resourceId") in asked["sources"]]
            return {"results": {"hits": wanted[: asked.get("top_k")]}}
        return {"results": {"answer": "as the server says", "citations": [{"resourceId": asked["sources"][0]}]}}

    def calls_of(self, tool: str) -> list[Json]:
        """The arguments of all calls of one tool."""
        return [arguments for name, arguments in self.asked if name == tool]

    def refuse_with(self, tool: str, code: str, message: str = "") -> None:
        """Respond with one of the contract's errors."""

        async def refuse(asked: Json) -> Json:
            return {"results": {"error": {"code": code, "message": message}}, "meta_data": {}}

        self.handlers[tool] = refuse

    def say(self, tool: str, body: Any) -> None:
        """Respond with this body to every call."""

        async def said(asked: Json) -> Any:
            return body

        self.handlers[tool] = said


class FakeSource:
    """A local source with collections by caller."""

    def __init__(self, kind: str, collections: Mapping[str, Sequence[str]], hits: Sequence[SourceHit] = ()) -> None:
        self.kind = kind
        self._collections = collections
        self._hits = hits
        self.incomplete: str | None = None

    async def collections(self, call: Call) -> Sequence[Collection]:
        mine = self._collections.get(call.principal.username, self._collections.get("*", ()))
        return [
            Collection(each, each.partition(":")[2] or each, documents=1, incomplete=self.incomplete) for each in mine
        ]

    async def search(
        self, call: Call, collection: str, query: str, most: int, filters: SourceFilters = NO_FILTERS
    ) -> SourceHits:
        """It can evaluate no filter."""
        if unmet := [each.name for each in fields(filters) if getattr(filters, each.name)]:
            return SourceHits((), unmet, self.incomplete)
        return SourceHits(
            [each for each in self._hits if each.collection == collection][:most], incomplete=self.incomplete
        )


def own_hit(hit_id: str, collection: str, text: str) -> SourceHit:
    """A hit in a source of this server itself."""
    return SourceHit(hit_id, collection, 0.5, text, text, f"{hit_id}.md", f"{collection}://{hit_id}", f"[{hit_id}]")


def specs(entries: Mapping[str, Json]) -> dict[str, ServerSpec]:
    """Parsed entries; an unused command is added to entries without a transport."""
    import orjson

    filled = {name: {"command": "unused", **entry} for name, entry in entries.items()}
    return resolve_entries({"rag": parse_entries(orjson.dumps(filled), source="test")}, {})


@dataclass
class Rig:
    """A gateway with its servers, called through the dispatcher, which checks results against their schemas."""

    members: dict[str, FakeUpstream]
    gateway: Gateway
    dispatcher: Dispatcher
    sources: Sources
    lent_tokens: LentTokens
    audit_file: Path | None = None
    audit: AuditLog | None = None
    session: str | None = None
    """The MCP session of the calls."""
    meta: Json | None = None
    """The `_meta` of the calls."""

    async def outcome(self, who: Principal, tool: str, **arguments: Any) -> Outcome:
        return await self.dispatcher.outcome(Caller(who, "test", self.session), tool, arguments, meta=self.meta)

    async def answer(self, who: Principal, tool: str, **arguments: Any) -> Json:
        """The structured answer of a call that must succeed."""
        outcome = await self.outcome(who, tool, **arguments)
        assert outcome.error is None, outcome.result
        return outcome.result["structuredContent"]

    async def refusal(self, who: Principal, tool: str, **arguments: Any) -> Json:
        """The error of a call that must fail, in the contract's format."""
        outcome = await self.outcome(who, tool, **arguments)
        assert outcome.error is not None, outcome.result
        body = outcome.result["structuredContent"]
        return body["results"]["error"] if "results" in body else body["error"]

    async def close_audit(self) -> None:
        """Write all pending records and close the audit log."""
        assert self.audit is not None
        # A call is recorded after its response.
        await anyio.lowlevel.checkpoint()
        self.audit.close()

    async def ids(self, who: Principal, **filters: Any) -> list[str]:
        """The ids of the resources that a caller sees."""
        found = await self.answer(who, DISCOVER, **({"filters": filters} if filters else {}))
        return [each["id"] for each in found["results"]["resources"]]

    async def hits(self, who: Principal, *sources: str, **more: Any) -> list[Json]:
        """The hits of a search."""
        found = await self.answer(who, RAW_RESULTS, query="lamp", sources=list(sources), **more)
        return found["results"]["hits"]


def rig(
    upstreams: Mapping[str, FakeUpstream],
    entries: Mapping[str, Json] | None = None,
    *,
    own: Sequence[FakeSource] = (),
    secret: bytes | None = None,
    audit_file: Path | None = None,
    state: Path | None = None,
    call_timeout_s: float = 5.0,
    discover_timeout_s: float = 5.0,
    discovery_kept_s: float = 60.0,
    **parts: Any,
) -> Rig:
    """A gateway over these servers."""
    described = specs({name: (entries or {}).get(name, {}) for name in upstreams})
    members = dict(upstreams)
    for name, upstream in members.items():
        upstream.spec = described[name]
    sources = Sources()
    for source in own:
        sources.register(source)
    lent_tokens = LentTokens(max_ttl_s=3600)
    gateway = Gateway(
        members.values,
        BuiltInServer(sources),
        GatewayLimits(
            call_timeout_s=call_timeout_s, discover_timeout_s=discover_timeout_s, discovery_kept_s=discovery_kept_s
        ),
        lent_tokens,
        CapabilityTokens(secret),
        Selections(
            SelectionStore(state or Path("/nowhere/selections.db")), lambda: [each.spec for each in members.values()]
        ),
        **parts,
    )
    tools = [*bind_rag_tools(gateway), *bind_tools(SESSION_TOOLS, SessionTools(gateway))]
    audit = AuditLog(audit_file) if audit_file else None
    dispatcher = Dispatcher(
        [("gateway", tool) for tool in tools],
        metrics=Metrics(),
        audit=audit,
        default_deadline_s=None,
        check_answers=True,
    )
    return Rig(members, gateway, dispatcher, sources, lent_tokens, audit_file, audit)
