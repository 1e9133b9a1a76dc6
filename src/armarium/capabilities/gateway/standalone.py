"""The three RAG tools of a server that has one source and keeps it itself, as an example and to be used."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from armarium.capabilities.gateway.capability_tokens import CapabilityTokens
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
from armarium.capabilities.gateway.merging import MergedHit
from armarium.capabilities.gateway.model import Hit, Json
from armarium.capabilities.gateway.refusals import InvalidSource, TokenExpired
from armarium.capabilities.gateway.synthesis import written
from armarium.capabilities.gateway.telling import ms_since
from armarium.capabilities.gateway.tools import DiscoverArgs, RawArgs, SynthesisArgs
from armarium.foundation.errors import ArmariumError, InvalidArgument
from armarium.foundation.tools import Call, ToolSpec, local_tool
from armarium.retrieval.sources import SearchSource, SourceHit, Sources

FILES: Final = "files"
"""The id of the one source."""
INSTRUCTIONS: Final = (
    "Searches the files of one directory. rag_discover_resources tells the source, rag_get_raw_results finds passages "
    "in it, rag_get_synthesized_results answers from it with citations."
)


class FilesServer:
    """One source under one name. Who asks makes no difference, unless capability tokens are wanted."""

    def __init__(self, sources: Sources, tokens: CapabilityTokens | None = None) -> None:
        self._sources = sources
        self._tokens = tokens

    async def discover(self, call: Call, search: str, types: Sequence[str]) -> Json:
        """The one resource, if it is wanted."""
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
        wanted = search.casefold() in f"{FILES} {collection.name}".casefold() and (not types or FILES in types)
        found = [resource] if wanted else []
        paging = {"page": 1, "page_size": max(1, len(found)), "total": len(found)}
        return answer({"resources": found, "paging": paging}, {"elapsed_ms": ms_since(started)})

    async def search(self, call: Call, args: RawArgs) -> Json:
        """Passages, best first."""
        started = time.perf_counter()
        hits = await self._found(call, args, args.top_k or DEFAULT_TOP_K)
        stats = {"total_found": len(hits), "top_k": args.top_k or DEFAULT_TOP_K, "elapsed_ms": ms_since(started)}
        return answer({"hits": [_as_json(hit) for hit in hits], "stats": stats}, {"elapsed_ms": ms_since(started)})

    async def synthesize(self, call: Call, args: SynthesisArgs) -> Json:
        """The best sentences found, with citations; no model is asked."""
        started = time.perf_counter()
        hits = await self._found(call, args, args.top_k or DEFAULT_TOP_K)
        passages = [MergedHit(_as_hit(hit), "", rank, hit.score) for rank, hit in enumerate(hits, 1)]
        ours = await written(None, args.query, passages, style=None, max_chars=args.synthesis_params.get("max_chars"))
        results: Json = {"answer": ours.text, "citations": list(ours.citations)}
        if ours.truncated:
            results["limits"] = {"truncated": True, "reason": "longer than max_chars"}
        return answer(results, {"model": ours.model, "elapsed_ms": ms_since(started)})

    async def _found(self, call: Call, args: RawArgs | SynthesisArgs, most: int) -> Sequence[SourceHit]:
        if not args.query.strip():
            raise InvalidArgument("`query` has no words in it", field="query")
        for source in args.sources:
            if source != FILES:
                raise InvalidSource(f"there is no source {source[:80]!r}", hint=f"the one source is {FILES}")
        if self._tokens is not None:
            if not args.capability_token:
                raise TokenExpired("a capability token is needed", hint="ask the gateway for one")
            self._tokens.verify(args.capability_token, args.username or "", [FILES])
        source = self._source()
        (collection,) = await source.collections(call)
        try:
            return await source.search(call, collection.id, args.query, most)
        except GatewayError:
            raise
        except ArmariumError as error:
            raise UpstreamUnavailable(error.message, hint=error.hint) from error

    def _source(self) -> SearchSource:
        (source,) = self._sources.all
        return source


def standalone_tools(sources: Sources, tokens: CapabilityTokens | None = None) -> list[ToolSpec]:
    """The three tools; with `tokens` a caller needs one that was issued with the same secret."""
    server = FilesServer(sources, tokens)

    async def rag_discover_resources(call: Call, args: DiscoverArgs) -> Json:
        """Tell which sources this server has: the one directory."""
        return await server.discover(call, args.filters.search.strip(), args.filters.types)

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


def _as_json(hit: SourceHit) -> Json:
    return {
        "id": hit.id,
        "score": round(hit.score, 6),
        "snippet": hit.snippet,
        "chunk": hit.text,
        "title": hit.title,
        "uri": hit.uri,
        "resourceId": FILES,
        "provenance": {"citation": hit.citation, **hit.provenance},
    }


def _as_hit(hit: SourceHit) -> Hit:
    return Hit(
        id=hit.id,
        score=hit.score,
        resource_id=FILES,
        chunk=hit.text,
        title=hit.title,
        uri=hit.uri,
        provenance=dict(hit.provenance),
        is_code=hit.is_code,
    )
