"""The gateway's service: discover, search and answer over all servers that the caller may see."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.arguments import (
    AskArgs,
    DiscoverArgs,
    QueryArgs,
    RawArgs,
    Selection,
    SynthesisArgs,
    check_filters,
    check_query,
)
from armarium.capabilities.gateway.contract import DEFAULT_TOP_K
from armarium.capabilities.gateway.errors import DENIALS, UnauthorizedSource, UpstreamBusy, UpstreamTimeout
from armarium.capabilities.gateway.model import RagAnswer, RagQuery, Secrets
from armarium.capabilities.gateway.query.discovery import describe_resource, discover_sources
from armarium.capabilities.gateway.query.fan_out import milliseconds_since
from armarium.capabilities.gateway.query.outcome import (
    base_metadata,
    emit_failures,
    record_sources,
    server_answer_as_json,
    total_failure,
)
from armarium.capabilities.gateway.query.rank_fusion import MergedHit, RerankPolicy
from armarium.capabilities.gateway.query.search import (
    SearchOutcome,
    SourceSearch,
    hit_as_json,
    hit_fields,
    select_provided_hits,
)
from armarium.capabilities.gateway.query.selected_sources import selected_sources
from armarium.capabilities.gateway.query.source_cache import SourceCache
from armarium.capabilities.gateway.query.source_lookup import SourceLookup
from armarium.capabilities.gateway.query.source_resolution import Resolution, SourceError, resolve_sources
from armarium.capabilities.gateway.query.synthesis import AnswerWriter, truncate_answer, write_answer
from armarium.capabilities.gateway.responses import contract_answer
from armarium.capabilities.gateway.selections.service import Choice, Selections
from armarium.capabilities.gateway.servers.remote import RagServer, RemoteServer, is_rag_server
from armarium.capabilities.gateway.settings import GatewayLimits
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.capabilities.gateway.tokens.secret_selector import SecretSelector, require_single_server
from armarium.capabilities.gateway.upstreams.upstream import Upstream
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call
from armarium.retrieval.search.follow_ups import searchable_question


@dataclass(eq=False, repr=False)
class Gateway:
    """The tools over many servers: each public method with arguments is one, and its docstring is what models read."""

    upstreams: Callable[[], Iterable[Upstream]]
    """Called for every request, since the configuration may change."""
    built_in: RagServer | None
    limits: GatewayLimits
    lent_tokens: LentTokens
    capability_tokens: CapabilityTokens
    selections: Selections
    _: KW_ONLY
    rerank_policy: RerankPolicy | None = None
    writer: AnswerWriter | None = None

    def __post_init__(self) -> None:
        self.cache = SourceCache(ttl_s=self.limits.discovery_kept_s)
        self.secret_selector = SecretSelector(self.lent_tokens, self.capability_tokens)
        self.lookup = SourceLookup(self.cache, self.secret_selector, discover_s=self.limits.discover_timeout_s)
        self._search = SourceSearch(self.secret_selector, self.limits.call_timeout_s, self.rerank_policy)
        self.servers_changed()

    async def discover(self, call: Call, args: DiscoverArgs) -> Json:
        """List the sources you may search, over all servers: documents of this server, and of servers behind it. Call
        it first; the `id` of a resource is what the other two tools take as `sources`. Narrow the list with `filters`
        (types, search) and page through it. `meta_data.errors` names servers that did not respond."""
        started = time.perf_counter()
        filters = args.filters
        choice = await self.selections.of_call(call, args.rag)
        call, within = choice.call, None if choice.exclusive is None else (choice.exclusive,)
        discovered = await discover_sources(self.lookup, call, self.servers(), filters, args.secrets(), within=within)
        first = (filters.page - 1) * filters.page_size
        shown = discovered.resources[first : first + filters.page_size]
        resources = [describe_resource(self.secret_selector, call, *each) for each in shown]
        paging = {"page": filters.page, "page_size": filters.page_size, "total": len(discovered.resources)}
        errors = [SourceError("", name, error) for name, error in discovered.failed.items()]
        call.denials.extend(each.error for each in errors if each.error.security)
        metadata = base_metadata(started, discovered.per_server, errors)
        more = {"artifacts": discovered.artifacts, "display": discovered.display}
        return contract_answer({"resources": resources, "paging": paging}, metadata, **more)

    async def search(self, call: Call, args: RawArgs) -> Json:
        """Search sources of one or several servers at once. Returns chunks, best first, each with its text, title and
        uri. Use it to read the evidence yourself. Sources that could not be searched are listed in `meta_data.errors`;
        the others still return hits. Scores give the order only, not the quality of a hit."""
        started = time.perf_counter()
        choice = await self.selections.of_call(call, args.rag)
        call, query = choice.call, self._query(args, choice, args.filters, args.ranking)
        check_filters(query.filters)
        if not args.sources and not choice.selection.chooses:
            raise InvalidArgument(
                "`sources` is required, since none are selected",
                hint="rag_discover_resources lists those you may search",
                field="sources",
            )
        resolution, selected = await self._resolve_chosen(args, choice, args.secrets())
        found = await self._search_sources(call, query, resolution, args.secrets())
        stats = {"total_found": found.total_found, "top_k": query.top_k, "elapsed_ms": milliseconds_since(started)}
        metadata = base_metadata(started, found.per_server, found.errors) | {"reranked": found.reranked} | selected
        results = {"hits": [hit_as_json(each) for each in found.hits], "stats": stats}
        return contract_answer(results, metadata, artifacts=found.artifacts, display=found.display)

    async def synthesize(self, call: Call, args: SynthesisArgs) -> Json:
        """Get an answer with citations from sources of one or several servers. If one server has all the sources and
        can write answers, it writes this one; otherwise the gateway writes it from the chunks found. Without `sources`
        it is written from those that the user selected, or else from all that you may use. Pass hits as
        `provided_context` to have the answer written from those. Check important statements with
        rag_get_raw_results."""
        answer, _ = await self._answer(call, args)
        return answer

    async def ask(self, call: Call, args: AskArgs) -> Json:
        """Answer a question from sources of one or several servers, with citations and the hits. A question that refers
        to earlier ones is made searchable by the chat model, or together with the one it refers to. As a stream, the
        hits and the sources that failed come first, then the text as it is written, then the citations."""
        check_query(args.query)
        chat = self.writer.chat if self.writer is not None else None
        searched_for = await searchable_question(args.query, args.earlier, chat)
        answer, hits = await self._answer(call, args.model_copy(update={"query": searched_for}))
        answer["results"] |= {"hits": [hit_as_json(each) for each in hits], "searched_for": searched_for}
        return answer

    async def _answer(self, call: Call, args: SynthesisArgs) -> tuple[Json, Sequence[MergedHit]]:
        """The answer, and the hits it is based on. Both are emitted as they are known."""
        started = time.perf_counter()
        choice = await self.selections.of_call(call, args.rag)
        call, query, given, params = choice.call, self._query(args, choice), args.secrets(), args.synthesis_params
        resolution, more = await self._resolve_chosen(args, choice, given)
        call.emit("progress", {"phase": "searching"})
        provided: list[MergedHit] | None = None
        if (selected := args.provided_context.hits) is not None:
            provided = select_provided_hits(selected, resolution)
            more |= {"provided_context": {"used": len(provided), "dropped": len(selected) - len(provided)}}
        if len(resolution.selections) == 1:
            (selection,) = resolution.selections.values()
            # With the server's own ids and only the contract's fields, since others may be for another server.
            passed = None if provided is None else [hit_fields(each.hit) for each in provided]
            asked = replace(query, synthesis_params=params, provided=passed)
            server_answer = await self._answer_of_server(call, asked, resolution, given)
            if server_answer is not None:
                truncated = truncate_answer(server_answer, params.get("max_chars"))
                answer = server_answer_as_json(started, selection, truncated, resolution.errors, more)
                emit_failures(call, resolution.errors)
                call.emit("text", {"text": answer["results"]["answer"]})
                call.emit("citations", {"citations": answer["results"]["citations"]})
                return answer, provided or ()
        if provided is not None:
            found = SearchOutcome(provided, resolution.errors, {}, len(provided))
            self._record(call, resolution, found.errors, {})
        else:
            found = await self._search_sources(call, query, resolution, given)
        call.emit("hits", {"hits": [hit_as_json(each) for each in found.hits], "searched_for": query.query})
        call.emit("progress", {"phase": "answering"})
        answer, writer_metadata = await write_answer(
            self.writer,
            query.query,
            found.hits,
            style=params.get("style"),
            max_chars=params.get("max_chars"),
            on_text=lambda text: call.emit("text", {"text": text}),
        )
        call.emit("citations", {"citations": list(answer.citations)})
        metadata = base_metadata(started, found.per_server, found.errors)
        metadata |= {"synthesized_by": "armarium", **writer_metadata}
        results, attached = answer.results(), {"artifacts": found.artifacts, "display": found.display}
        return contract_answer(results, metadata | more, **attached), found.hits

    def servers_changed(self) -> None:
        """Remove the tokens for servers that were removed or replaced by a reload."""
        self.lent_tokens.update_servers({name: server.spec.transport for name, server in self.servers().items()})

    def servers(self) -> dict[str, RagServer]:
        """All current servers, visible or not. The built-in server takes precedence over another with its name."""
        servers: dict[str, RagServer] = {
            upstream.spec.name: RemoteServer(upstream, self.limits)
            for upstream in self.upstreams()
            if upstream.spec.enabled and is_rag_server(upstream.spec, upstream.last_tools)
        }
        if self.built_in is not None:
            servers[self.built_in.spec.name] = self.built_in
        return servers

    def _query(
        self, args: QueryArgs, choice: Choice, filters: Json | None = None, ranking: Json | None = None
    ) -> RagQuery:
        check_query(args.query)
        top_k = min(args.top_k or choice.top_k or DEFAULT_TOP_K, self.limits.top_k_max)
        return RagQuery(args.query, top_k, filters, ranking)

    async def _resolve_chosen(self, args: QueryArgs, choice: Choice, given: Secrets) -> tuple[Resolution, Json]:
        """The sources that the call names, or else those selected; and a note about the selection for `meta_data`."""
        call, only = choice.call, choice.exclusive
        if args.sources:
            # In the servers of the message, as in those of the call. A stored selection does not say what a call means.
            within = args.servers or (choice.selection.servers if choice.origin == "message" else None) or ()
            return await self.resolve(call, args.sources, given, within=within, only=only), {}
        selection, origin = choice.selection, choice.origin
        if args.servers:
            selection, origin = Selection(selectedServers=args.servers), "call"
        chosen = await selected_sources(self.lookup, call, self.servers(), selection, given, only=only)
        if not chosen.ids:
            raise total_failure(chosen.errors)
        resolution = await self.resolve(call, chosen.ids, given, within=chosen.within, only=only, errors=chosen.errors)
        note: Json = {"from": origin, "sources": len(chosen.ids)}
        return resolution, {"selection": note | ({"omitted": chosen.omitted} if chosen.omitted else {})}

    async def resolve(
        self,
        call: Call,
        sources: Iterable[str],
        given: Secrets,
        *,
        within: Sequence[str] = (),
        only: str | None = None,
        errors: Sequence[SourceError] = (),
    ) -> Resolution:
        """The servers of these sources; raises if the caller may use none of them."""
        resolution = await resolve_sources(self.lookup, call, self.servers(), sources, given, within=within, only=only)
        resolution = replace(resolution, errors=[*errors, *resolution.errors])
        require_single_server(given, list(resolution.selections))
        if not resolution.selections:
            self._record(call, resolution, resolution.errors, {})
            raise total_failure(resolution.errors)
        return resolution

    def _record(
        self, call: Call, resolution: Resolution, errors: Sequence[SourceError], servers: Mapping[str, Json]
    ) -> None:
        """Record the outcome of each source in the audit log, and which the caller was refused for user interfaces."""
        first = len(call.parts)
        record_sources(call, resolution, errors, servers)
        refused, searched = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
        for part in call.parts[first:]:
            if part.error is None:
                searched[part.root or ""].add(part.path or "")
            elif isinstance(part.error, UnauthorizedSource):
                # The error of an id without a server names the server.
                refused[part.root or part.error.details.get("root", "")].add(part.path or "")
        known = self.servers()
        for name in (refused.keys() | searched.keys()) & known.keys():
            if may_see_server(call.principal, spec := known[name].spec):
                owner = self.secret_selector.cache_owner(call, name)
                self.cache.record_access(owner, spec, refused[name], searched[name])

    async def _search_sources(
        self, call: Call, query: RagQuery, resolution: Resolution, given: Secrets
    ) -> SearchOutcome:
        found = await self._search.search(call, query, resolution, given)
        self._record(call, resolution, found.errors, found.per_server)
        failed = {error.source for error in found.errors}
        asked = {each for selection in resolution.selections.values() for each in selection.asked.values()}
        if asked <= failed:
            raise total_failure(found.errors)
        return found

    async def _answer_of_server(
        self, call: Call, query: RagQuery, resolution: Resolution, given: Secrets
    ) -> RagAnswer | None:
        """The answer of the only selected server; None if it writes no answers or fails."""
        (selection,) = resolution.selections.values()
        name = selection.server.spec.name
        result = await self._search.ask_selected(
            call, resolution, given, lambda server, sources, secrets: server.synthesize(call, query, sources, secrets)
        )
        failure, answered = result.failed.get(name), result.answered.get(name)
        took = {name: {"elapsed_ms": result.elapsed_ms[name]}}
        # A search would be denied as well, or would wait for a server that has already timed out.
        if isinstance(failure, (*DENIALS, UpstreamBusy, UpstreamTimeout)):
            failed = [SourceError(asked, name, failure) for asked in selection.asked.values()]
            self._record(call, resolution, failed, took)
            # The server's error first: it is about the sources that were left to search.
            raise total_failure([*failed, *resolution.errors])
        if answered is not None:
            self._record(call, resolution, resolution.errors, took)
        return answered
