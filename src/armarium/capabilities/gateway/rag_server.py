"""The three RAG tools of a server that has one source and keeps it itself, as an example and to be used."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from armarium.capabilities.gateway.contract import (
    DEFAULT_TOP_K,
    DISCOVER,
    OUTPUT,
    RAG_ERRORS,
    RAW_RESULTS,
    SYNTHESIZED,
    answer,
    standalone_inputs,
)
from armarium.capabilities.gateway.errors import GatewayError, UpstreamUnavailable
from armarium.capabilities.gateway.filters import check_filters, wishes
from armarium.capabilities.gateway.model import Hit
from armarium.capabilities.gateway.query.outcome import ms_since
from armarium.capabilities.gateway.query.rank_fusion import MergedHit
from armarium.capabilities.gateway.query.search import hit_fields
from armarium.capabilities.gateway.query.synthesis import TOO_LONG, told_of_writing, written
from armarium.capabilities.gateway.refusals import InvalidSource, TokenExpired
from armarium.capabilities.gateway.servers import response_parser
from armarium.capabilities.gateway.servers.builtin import as_hit
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityVerifier
from armarium.capabilities.gateway.tools import DiscoverArgs, RawArgs, SynthesisArgs
from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, ToolSpec, local_tool
from armarium.retrieval.sources import SearchSource, Sources

FILES: Final = "files"
"""The id of the one source."""
INSTRUCTIONS: Final = (
    "Searches the files of one directory. rag_discover_resources tells the source, rag_get_raw_results finds passages "
    "in it, rag_get_synthesized_results answers from it with citations."
)


class FilesServer:
    """One source under one name. Who asks makes no difference, unless capability tokens are wanted."""

    def __init__(self, sources: Sources, tokens: CapabilityVerifier | None = None) -> None:
        self._sources = sources
        self._tokens = tokens

    async def discover(self, call: Call, args: DiscoverArgs) -> Json:
        """The one resource, if it is wanted. It has no tags, so a wish for some finds nothing."""
        started = time.perf_counter()
        (collection,) = await self._source().collections(call)
        counts = {"docs": collection.documents, "chunks": collection.passages}
        resource: Json = {
            "id": FILES,
            "name": collection.name,
            "sourceType": FILES,
            "authRequired": self._tokens is not None,
            "authMode": "capability" if self._tokens else "none",
            "counts": {name: count for name, count in counts.items() if count is not None},
        }
        wanted = args.filters
        said = wanted.search.strip().casefold() in f"{FILES} {collection.name}".casefold()
        found = [resource] if said and not wanted.tags and (not wanted.types or FILES in wanted.types) else []
        first = (wanted.page - 1) * wanted.page_size
        paging = {"page": wanted.page, "page_size": wanted.page_size, "total": len(found)}
        shown = found[first : first + wanted.page_size]
        return answer({"resources": shown, "paging": paging}, {"elapsed_ms": ms_since(started)})

    async def search(self, call: Call, args: RawArgs) -> Json:
        """Passages, best first. They have no date, tags or owner, so a wish for any of these finds nothing."""
        started = time.perf_counter()
        self._admit(args)
        check_filters(args.filters)
        unmet = wishes(args.filters)
        hits: Sequence[Hit] = () if unmet else await self._found(call, args.query, args.top_k)
        stats = {"total_found": len(hits), "top_k": args.top_k or DEFAULT_TOP_K, "elapsed_ms": ms_since(started)}
        meta: Json = {"elapsed_ms": ms_since(started)} | ({"unmet_filters": unmet} if unmet else {})
        return answer({"hits": [hit_fields(hit) for hit in hits], "stats": stats}, meta)

    async def synthesize(self, call: Call, args: SynthesisArgs) -> Json:
        """The best sentences of the hits that the caller chose, else of those found, with citations; no model is
        asked."""
        started = time.perf_counter()
        self._admit(args)
        chosen = args.provided_context.hits if args.provided_context else None
        hits = await self._found(call, args.query, args.top_k) if chosen is None else _own_among(chosen)
        passages = [MergedHit(hit, "", rank, hit.score) for rank, hit in enumerate(hits, 1)]
        ours = await written(None, args.query, passages, style=None, max_chars=args.synthesis_params.get("max_chars"))
        results: Json = {"answer": ours.text, "citations": list(ours.citations)}
        if ours.truncated:
            results["limits"] = dict(TOO_LONG)
        return answer(results, {"elapsed_ms": ms_since(started), **told_of_writing(ours)})

    def _admit(self, args: RawArgs | SynthesisArgs) -> None:
        """Refuse what cannot be answered, or may not be."""
        if not args.query.strip():
            raise InvalidArgument("`query` has no words in it", field="query")
        for source in args.sources:
            if source != FILES:
                raise InvalidSource(f"there is no source {source[:80]!r}", hint=f"the one source is {FILES}")
        if self._tokens is not None:
            if not args.capability_token:
                raise TokenExpired("a capability token is needed", hint="ask the gateway for one")
            self._tokens.verify(args.capability_token, args.username or "", [FILES])

    async def _found(self, call: Call, query: str, top_k: int | None) -> Sequence[Hit]:
        source = self._source()
        (collection,) = await source.collections(call)
        try:
            found = await source.search(call, collection.id, query, top_k or DEFAULT_TOP_K)
        except GatewayError:
            raise
        except ArmariumError as error:
            raise UpstreamUnavailable(error.message, hint=error.hint) from error
        return [as_hit(hit, FILES) for hit in found]

    def _source(self) -> SearchSource:
        (source,) = self._sources.all
        return source


def standalone_tools(sources: Sources, tokens: CapabilityVerifier | None = None) -> list[ToolSpec]:
    """The three tools; with `tokens` a caller needs one that was issued for this server."""
    server = FilesServer(sources, tokens)

    async def rag_discover_resources(call: Call, args: DiscoverArgs) -> Json:
        """Tell which sources this server has: the one directory."""
        return await server.discover(call, args)

    async def rag_get_raw_results(call: Call, args: RawArgs) -> Json:
        """Find passages in the directory, best first."""
        return await server.search(call, args)

    async def rag_get_synthesized_results(call: Call, args: SynthesisArgs) -> Json:
        """Answer from the directory with its own sentences, each with a citation."""
        return await server.synthesize(call, args)

    taken = standalone_inputs(capability_token=tokens is not None)

    def tool(name: str, function: Callable[[Call, Any], Awaitable[Json]]) -> ToolSpec:
        return local_tool(
            name,
            function,
            input_schema=taken[name],
            output_schema=OUTPUT[name],
            read_only=True,
            idempotent=True,
            is_search=name != DISCOVER,
            content_fields=frozenset({"provided_context"}),
            secret_fields=frozenset({"capability_token"}),
            subject=("", ""),
            errors=RAG_ERRORS,
        )

    return [
        tool(DISCOVER, rag_discover_resources),
        tool(RAW_RESULTS, rag_get_raw_results),
        tool(SYNTHESIZED, rag_get_synthesized_results),
    ]


def _own_among(entries: Sequence[Json]) -> list[Hit]:
    """The hits among what a caller chose that are of the one source."""
    hits = [response_parser.hit(entry, place, FILES) for place, entry in enumerate(entries)]
    return [hit for hit in hits if hit is not None and hit.resource_id == FILES]
