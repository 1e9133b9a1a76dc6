"""The gateway's routes, and the tools that only they offer: configuration, selections, and tokens of a caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, NotRequired

from typing_extensions import TypedDict

from armarium.capabilities.gateway.access import may_see_server
from armarium.capabilities.gateway.admin.service import ADMIN_ROUTES, ADMIN_TOOLS
from armarium.capabilities.gateway.arguments import (
    ConnectArgs,
    DisconnectArgs,
    DiscoverArgs,
    DiscoveryFilters,
    MessageSelection,
    ResourcesArgs,
    SelectArgs,
    Selection,
    SessionArgs,
    TokenArgs,
)
from armarium.capabilities.gateway.config.files import ServerKind, ServerSpec
from armarium.capabilities.gateway.contract import (
    ASK_OUTPUT_SCHEMA,
    RAG_TOOLS,
    RAW_RESULTS,
    SYNTHESIZED,
    ask_input_schema,
)
from armarium.capabilities.gateway.downloads.links import DOWNLOAD_PATH
from armarium.capabilities.gateway.downloads.service import Downloads
from armarium.capabilities.gateway.errors import InvalidSource
from armarium.capabilities.gateway.model import Resource
from armarium.capabilities.gateway.query.discovery import describe_resource, discover_sources
from armarium.capabilities.gateway.query.outcome import record_sources
from armarium.capabilities.gateway.query.overview import overview
from armarium.capabilities.gateway.responses import RAG_ERRORS
from armarium.capabilities.gateway.selections.store import DEFAULT
from armarium.capabilities.gateway.service import Gateway
from armarium.capabilities.gateway.tools import RAG_TRAITS, SECRET_FIELDS, rate_limited
from armarium.capabilities.gateway.upstreams.types import HealthState, UpstreamTool
from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.routes import declare_route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import Principal
from armarium.foundation.telemetry import timestamp
from armarium.foundation.tools import Call, NoArgs, ToolSpec, declare_tool, no_text


class Connection(TypedDict):
    server: str
    kind: str
    """The parameter with which the server receives the token."""
    expires_at: str
    expires_in_s: float
    session: NotRequired[str]
    """The only session that uses the token; without it, all sessions do that have no token of their own."""


class Connections(TypedDict):
    connections: list[Connection]


class SessionTools:
    """What user interfaces need besides the three tools. Only the JSON API offers it."""

    def __init__(
        self, gateway: Gateway, is_administrator: Callable[[Principal], bool] = lambda principal: False
    ) -> None:
        self._gateway = gateway
        self._is_administrator = is_administrator

    async def config(self, call: Call, args: SessionArgs) -> Json:
        """Show which servers and sources the caller may use, and which are selected."""
        gateway = self._gateway
        choice = await gateway.selections.of_call(call, MessageSelection(session=args.session))
        discovered = await discover_sources(gateway.lookup, choice.call, gateway.servers(), DiscoveryFilters(), {})
        shown = [describe_resource(gateway.secret_selector, choice.call, *each) for each in discovered.resources]
        visible = {server.spec.name: server.spec for server in discovered.servers}
        refused = {
            name: gateway.cache.refused(gateway.secret_selector.cache_owner(choice.call, name), spec)
            for name, spec in visible.items()
        }
        locked: list[ServerSpec] = []
        if self._is_administrator(call.principal):
            others = (server.spec for name, server in gateway.servers().items() if name not in visible)
            locked = sorted(others, key=lambda spec: (spec.ui.order, spec.name))
        return overview(call.principal, discovered, shown, choice.selection, refused, locked)

    async def resources(self, call: Call, args: ResourcesArgs) -> Json:
        """List the sources that the caller may search, page by page, as `rag_discover_resources` does."""
        filters = DiscoveryFilters(**args.model_dump(exclude={"session"}))
        selection = MessageSelection(session=args.session)
        return await self._gateway.discover(call, DiscoverArgs(rag=selection, filters=filters))

    async def servers(self, call: Call, args: NoArgs) -> Json:
        """List every server the caller may use, also those that only offer tools: its kind, its state, its tools, and
        how its sources authenticate callers."""
        gateway, rag_servers = self._gateway, self._gateway.servers()
        found: list[tuple[ServerSpec, HealthState, Iterable[UpstreamTool]]] = [
            (server.spec, "ready", ()) for server in rag_servers.values() if server is gateway.built_in
        ]
        found.extend((each.spec, each.health().state, each.last_tools) for each in gateway.upstreams())
        shown = [
            _describe_server(
                spec,
                "rag" if spec.name in rag_servers else "generic",
                state,
                tools,
                (gateway.cache.get(gateway.secret_selector.cache_owner(call, spec.name), spec) or {}).values(),
            )
            for spec, state, tools in found
            if may_see_server(call.principal, spec)
        ]
        return {"servers": sorted(shown, key=lambda each: each["server"])}

    async def selection(self, call: Call, args: SessionArgs) -> Json:
        """Show the selection of a session, or the caller's default."""
        choice = await self._gateway.selections.of_call(call, MessageSelection(session=args.session))
        return {"from": choice.origin, **_as_json(choice.selection)}

    async def select(self, call: Call, args: SelectArgs) -> Json:
        """Store the selection of a session, or the caller's default. It applies to searches that name no sources."""
        selection = Selection(selectedServers=args.servers, selectedResourceIds=args.sources, top_k=args.top_k)
        if not selection.chooses and selection.top_k is None:
            raise InvalidArgument(
                "nothing is selected", hint="send selectedServers, selectedResourceIds or top_k; DELETE removes them"
            )
        await self._gateway.selections.store.write(call.principal.username, args.session or DEFAULT, selection)
        return {"from": "session" if args.session else "default", **_as_json(selection)}

    async def deselect(self, call: Call, args: SessionArgs) -> Json:
        """Remove the selection of a session, or the caller's default."""
        removed = await self._gateway.selections.store.delete(call.principal.username, args.session or DEFAULT)
        return {"removed": removed}

    async def connections(self, call: Call, args: NoArgs) -> Connections:
        """List the servers for which the caller has stored a token, and when each token expires. Tokens themselves are
        never shown."""
        servers, now = self._gateway.servers(), datetime.now(UTC)
        found: list[Connection] = []
        for name, session, kind, left_s in self._gateway.lent_tokens.of(call.principal):
            if name in servers and may_see_server(call.principal, servers[name].spec):
                expires_at = timestamp(now + timedelta(seconds=left_s))
                found.append({"server": name, "kind": kind, "expires_at": expires_at, "expires_in_s": round(left_s, 3)})
                if session is not None:
                    found[-1]["session"] = session
        return {"connections": sorted(found, key=lambda each: (each["server"], each.get("session", "")))}

    async def connect(self, call: Call, args: ConnectArgs) -> Json:
        """Store a token for a server, in memory, until it expires or is removed."""
        gateway, session = self._gateway, args.session
        server = gateway.servers().get(args.server)
        if server is None or not may_see_server(call.principal, server.spec):
            raise InvalidSource("there is no such server", hint="GET /api/config lists those you may use")
        actual_ttl_s = gateway.lent_tokens.store(
            call.principal, args.server, args.kind, args.token, args.ttl_s, session=session
        )
        gateway.cache.remove((call.principal, session), args.server)
        more = {"session": session} if session else {}
        return {"server": args.server, "kind": args.kind, "expires_in_s": actual_ttl_s, **more}

    async def disconnect(self, call: Call, args: DisconnectArgs) -> Json:
        """Remove the stored token for a server."""
        removed = self._gateway.lent_tokens.remove(call.principal, args.server, args.session)
        self._gateway.cache.remove((call.principal, args.session), args.server)
        return {"server": args.server, "forgotten": removed}

    async def issue_token(self, call: Call, args: TokenArgs) -> Json:
        """Issue a short-lived capability token for one source that the caller may use."""
        gateway = self._gateway
        resolution = await gateway.resolve(call, [args.source], {})
        record_sources(call, resolution, resolution.errors, {})
        (selection,) = resolution.selections.values()
        name = selection.server.spec.name
        if selection.server is gateway.built_in:
            raise InvalidArgument(f"the sources of {name} itself need no token", field="source")
        token, expires_at = gateway.capability_tokens.issue(
            name, call.principal.username, list(selection.resources), ttl_s=args.ttl_s
        )
        return {"capability_token": token, "expires_at": expires_at, "server": name, "source": args.source}


def _nobody(name: str, token: str) -> None:
    """Stands for what identifies the callers of links."""


ASK: Final = declare_tool(
    "rag_ask",
    Gateway.ask,
    title="Ask sources",
    question_argument="query",
    input_schema=ask_input_schema(),
    output_schema=ASK_OUTPUT_SCHEMA,
    read_only=True,
    idempotent=True,
    is_search=True,
    subject=("", ""),
    errors=RAG_ERRORS,
    **RAG_TRAITS | {"content_fields": RAG_TRAITS["content_fields"] | {"query", "earlier"}},
)
"""An answer with its hits, to questions that may refer to earlier ones. Only the JSON API offers it."""
SESSION_TOOLS: Final = (
    declare_tool("rag_config", SessionTools.config, title="Configuration for user interfaces", read_only=True),
    declare_tool("gateway_servers", SessionTools.servers, title="Servers the caller may use", read_only=True),
    declare_tool("rag_resources", SessionTools.resources, title="Search the list of sources", read_only=True),
    declare_tool("rag_connections", SessionTools.connections, title="Stored tokens", read_only=True),
    declare_tool("rag_selection", SessionTools.selection, title="Show the selection", read_only=True),
    declare_tool("rag_select", SessionTools.select, title="Store the selection", idempotent=True),
    declare_tool("rag_deselect", SessionTools.deselect, title="Remove the selection", idempotent=True),
    declare_tool(
        "rag_connect", SessionTools.connect, title="Store a token", secret_fields=SECRET_FIELDS, subject=("server", "")
    ),
    declare_tool("rag_disconnect", SessionTools.disconnect, title="Remove a token", subject=("server", "")),
    declare_tool("rag_issue_token", SessionTools.issue_token, title="Issue a capability token", subject=("source", "")),
)
"""Tools for user interfaces, which call them after every event: not rate limited. Only the JSON API offers them."""


DOWNLOAD: Final = declare_tool(
    "gateway_download",
    Downloads.download,
    title="Fetch a file by its link",
    read_only=True,
    # The tool that reads the file checks whether its caller may read it.
    for_every_caller=True,
    secret_fields=SECRET_FIELDS,
    subject=("", "name"),
    text=no_text,
)
"""Only the JSON API offers it, to whoever has a link."""
ROUTE_TOOLS: Final = (ASK, *SESSION_TOOLS, DOWNLOAD, *ADMIN_TOOLS)

_CONNECTION, _SELECTION = "/rag/connections/{server}", "/rag/selection"
RAG_ROUTES: Final = (
    declare_route("GET", "/config", "rag_config", "List the caller's servers and sources", at_root=True),
    declare_route("GET", "/gateway/servers", "gateway_servers", "List all servers the caller may use", at_root=True),
    declare_route("GET", "/rag/resources", "rag_resources", "Search the list of sources", at_root=True),
    declare_route("POST", "/rag/search", RAW_RESULTS, "Search sources", at_root=True),
    declare_route("POST", "/rag/synthesize", SYNTHESIZED, "Answer from sources", at_root=True, streams=True),
    declare_route("POST", "/rag/ask", "rag_ask", "Ask sources", at_root=True, streams=True),
    declare_route("GET", _SELECTION, "rag_selection", "Show the selected servers and sources", at_root=True),
    declare_route("PUT", _SELECTION, "rag_select", "Select servers and sources", at_root=True),
    declare_route("DELETE", _SELECTION, "rag_deselect", "Remove a selection", at_root=True),
    declare_route("GET", "/rag/connections", "rag_connections", "List the stored tokens", at_root=True),
    declare_route("POST", _CONNECTION, "rag_connect", "Store a token for a server", success=201, at_root=True),
    declare_route("DELETE", _CONNECTION, "rag_disconnect", "Remove the token", at_root=True),
    declare_route("POST", "/rag/tokens", "rag_issue_token", "Issue a capability token", success=201, at_root=True),
)
"""The contract fixes the paths, so they are at the root of the API."""
DOWNLOAD_ROUTE: Final = declare_route(
    "GET",
    f"{DOWNLOAD_PATH}/{{name}}",
    "gateway_download",
    "Fetch a file by its link",
    at_root=True,
    # It needs no key, since a link has a token.
    identify=_nobody,
    is_file=True,
)
ROUTES: Final = (*RAG_ROUTES, DOWNLOAD_ROUTE, *ADMIN_ROUTES)
"""All of them. `identify` and the group of administrators are replaced when they are bound."""


def bind_ask_tool(gateway: Gateway, rate_limit: RateLimit | None = None, access: Access | None = None) -> ToolSpec:
    """`ASK`, like the three tools."""
    tool = replace(ASK.bind(gateway, access), input_schema=ask_input_schema(gateway.limits.top_k_max))
    return rate_limited(tool, rate_limit)


def _describe_server(
    spec: ServerSpec, kind: ServerKind, state: HealthState, tools: Iterable[UpstreamTool], known: Iterable[Resource]
) -> Json:
    """One server. The modes of authentication are those of its configured sources and of the `known` ones."""
    modes = {hint.auth_mode for hint in spec.data_sources} | {resource.auth_mode for resource in known}
    hidden = RAG_TOOLS if kind == "rag" else frozenset[str]()
    offered = [f"{spec.name}.{tool.name}" for tool in tools if spec.kind == "generic" and tool.name not in hidden]
    details: Json = {
        "server": spec.name,
        "kind": kind,
        "displayName": spec.ui.display_name or spec.name,
        "icon": spec.ui.icon,
        "description": spec.description,
        "state": state,
        "authModes": sorted(modes or {"none"}),
        "tools": offered,
    }
    return {name: value for name, value in details.items() if value}


def _as_json(selection: Selection) -> Json:
    return selection.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"session"})
