"""A standalone RAG server over one directory: the three tools without a gateway (`armarium rag-server`)."""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any, Final

import orjson

from armarium.capabilities.gateway.arguments import (
    DiscoverArgs,
    QueryArgs,
    RawArgs,
    SynthesisArgs,
    check_query,
    source_filters,
)
from armarium.capabilities.gateway.contract import (
    DEFAULT_TOP_K,
    DISCOVER,
    RAW_RESULTS,
    SYNTHESIZED,
    rag_server_input_schemas,
)
from armarium.capabilities.gateway.errors import InvalidSource, TokenExpired, UpstreamUnavailable
from armarium.capabilities.gateway.model import RagAnswer, RagHit
from armarium.capabilities.gateway.query.fan_out import milliseconds_since
from armarium.capabilities.gateway.query.rank_fusion import MergedHit
from armarium.capabilities.gateway.query.search import hit_fields
from armarium.capabilities.gateway.query.synthesis import write_answer
from armarium.capabilities.gateway.responses import contract_answer, declare_rag_tool
from armarium.capabilities.gateway.servers.builtin import to_rag_hit, unmet_filters
from armarium.capabilities.gateway.servers.response_parser import parse_hit
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityVerifier
from armarium.foundation.errors import ArmariumError
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, ToolSpec, bind_tools
from armarium.retrieval.sources import NO_FILTERS, Collection, SearchSource, SourceFilters, SourceHits, Sources

SOURCE_ID: Final = "files"
"""The id of the one source."""
_REPORT: Final = "report.html"
INSTRUCTIONS: Final = (
    "Searches the files of one directory. rag_discover_resources lists the source, rag_get_raw_results finds chunks in "
    "it, rag_get_synthesized_results answers from it with citations."
)


class DirectoryRagServer:
    """One source, open to all callers unless capability tokens are required."""

    def __init__(self, sources: Sources, tokens: CapabilityVerifier | None = None) -> None:
        self._sources = sources
        self._tokens = tokens

    async def discover(self, call: Call, args: DiscoverArgs) -> Json:
        """List the sources of this server: the one directory."""
        started = time.perf_counter()
        (collection,) = await self._source().collections(call)
        counts = {"docs": collection.documents, "chunks": collection.chunks}
        resource: Json = {
            "id": SOURCE_ID,
            "name": collection.name,
            "sourceType": SOURCE_ID,
            "authRequired": self._tokens is not None,
            "authMode": "capability" if self._tokens else "none",
            "counts": {name: count for name, count in counts.items() if count is not None},
        }
        # The resource has no tags.
        wanted = args.filters
        matches = wanted.search.strip().casefold() in f"{SOURCE_ID} {collection.name}".casefold()
        found = [resource] if matches and not wanted.tags and (not wanted.types or SOURCE_ID in wanted.types) else []
        first = (wanted.page - 1) * wanted.page_size
        paging = {"page": wanted.page, "page_size": wanted.page_size, "total": len(found)}
        shown = found[first : first + wanted.page_size]
        meta: Json = {"elapsed_ms": milliseconds_since(started)} | _incomplete(collection)
        return contract_answer({"resources": shown, "paging": paging}, meta)

    async def search(self, call: Call, args: RawArgs) -> Json:
        """Find chunks in the directory, best first."""
        started = time.perf_counter()
        self._check(args)
        found = await self._find(call, args.query, args.top_k, source_filters(args.filters))
        hits = [to_rag_hit(hit, SOURCE_ID) for hit in found.hits]
        unmet = unmet_filters(args.filters, [found])
        took: Json = {"elapsed_ms": milliseconds_since(started)}
        stats = {"total_found": len(hits), "top_k": args.top_k or DEFAULT_TOP_K, **took}
        meta = took | ({"unmet_filters": unmet} if unmet else {}) | _incomplete(found)
        return contract_answer({"hits": [hit_fields(hit) for hit in hits], "stats": stats}, meta)

    async def synthesize(self, call: Call, args: SynthesisArgs) -> Json:
        """Answer from the directory with its own sentences, each with a citation."""
        started = time.perf_counter()
        self._check(args)
        provided = args.provided_context.hits
        more: Json = {}
        hits: Sequence[RagHit]
        if provided is None:
            found = await self._find(call, args.query, args.top_k)
            hits, more = [to_rag_hit(hit, SOURCE_ID) for hit in found.hits], _incomplete(found)
        else:
            parsed = [parse_hit(entry, place, SOURCE_ID) for place, entry in enumerate(provided)]
            hits = [hit for hit in parsed if hit is not None and hit.resource_id == SOURCE_ID]
        chunks = [MergedHit(hit, "", rank, hit.score) for rank, hit in enumerate(hits, 1)]
        max_chars = args.synthesis_params.get("max_chars")
        answer, metadata = await write_answer(None, args.query, chunks, style=None, max_chars=max_chars)
        metadata = {"elapsed_ms": milliseconds_since(started), **metadata, **more}
        return contract_answer(answer.results(), metadata, **_attachments(args.query, answer))

    def _check(self, args: QueryArgs) -> None:
        """Reject empty queries, unknown sources and invalid tokens."""
        check_query(args.query)
        for source in args.sources:
            if source != SOURCE_ID:
                raise InvalidSource(f"there is no source {source[:80]!r}", hint=f"the one source is {SOURCE_ID}")
        if self._tokens is not None:
            if not args.capability_token:
                raise TokenExpired("a capability token is required", hint="request one from the gateway")
            self._tokens.verify(args.capability_token, args.username or "", [SOURCE_ID])

    async def _find(self, call: Call, query: str, top_k: int | None, filters: SourceFilters = NO_FILTERS) -> SourceHits:
        source = self._source()
        (collection,) = await source.collections(call)
        try:
            return await source.search(call, collection.id, query, top_k or DEFAULT_TOP_K, filters)
        except ArmariumError as error:
            raise UpstreamUnavailable(error.message, hint=error.hint) from error

    def _source(self) -> SearchSource:
        (source,) = self._sources.all
        return source


def _attachments(question: str, answer: RagAnswer) -> Json:
    """The answer as a page, its citations as a file, and how to show them."""
    named = [(each["marker"], each.get("title") or each.get("uri", "")) for each in answer.citations]
    cited = "".join(f"<li>{escape(marker)} {escape(name)}</li>" for marker, name in named)
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(question)}</title>'
        f'<h1>{escape(question)}</h1><p style="white-space:pre-wrap">{escape(answer.answer)}</p><ul>{cited}</ul></html>'
    )
    artifacts = [
        _artifact(_REPORT, page.encode(), "text/html", "The answer as a page", "html"),
        _artifact("citations.json", orjson.dumps(answer.citations), "application/json", "The citations", "code"),
    ]
    display = {"open_canvas": True, "primary_file": _REPORT, "mode": "replace", "viewer_hint": "html"}
    return {"artifacts": artifacts, "display": display}


def _artifact(name: str, content: bytes, mime: str, description: str, viewer: str) -> Json:
    b64 = base64.b64encode(content).decode()
    return {"name": name, "b64": b64, "mime": mime, "size": len(content), "description": description, "viewer": viewer}


def _incomplete(found: SourceHits | Collection) -> Json:
    """The part of `meta_data` that says why documents may be missing."""
    return {} if found.incomplete is None else {"incomplete": {SOURCE_ID: found.incomplete}}


_TRAITS: Final[dict[str, Any]] = {
    "content_fields": frozenset({"provided_context"}),
    "secret_fields": frozenset({"capability_token"}),
}
_SCHEMAS: Final = rag_server_input_schemas(capability_token=False)
TOOLS: Final = (
    declare_rag_tool(DISCOVER, DirectoryRagServer.discover, _SCHEMAS, **_TRAITS),
    declare_rag_tool(RAW_RESULTS, DirectoryRagServer.search, _SCHEMAS, **_TRAITS),
    declare_rag_tool(SYNTHESIZED, DirectoryRagServer.synthesize, _SCHEMAS, **_TRAITS),
)


def rag_server_tools(sources: Sources, tokens: CapabilityVerifier | None = None) -> list[ToolSpec]:
    """The three tools. With `tokens`, every search requires a capability token issued for this server."""
    schemas = rag_server_input_schemas(capability_token=tokens is not None)
    bound = bind_tools(TOOLS, DirectoryRagServer(sources, tokens))
    return [replace(tool, input_schema=schemas[tool.name]) for tool in bound]
