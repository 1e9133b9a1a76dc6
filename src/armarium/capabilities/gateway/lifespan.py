"""Opens the gateway's parts and closes them in reverse order: upstreams, live servers, models, service."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anyio

from armarium.capabilities.gateway.admin.service import ADMIN_ROUTES, ADMIN_TOOLS, Administration
from armarium.capabilities.gateway.config.files import ServerSpec, has_config_folder
from armarium.capabilities.gateway.downloads.links import DownloadLinks
from armarium.capabilities.gateway.downloads.service import Downloads
from armarium.capabilities.gateway.errors import ServerConfigInvalid, TooManyCalls
from armarium.capabilities.gateway.metrics import GatewayMetrics
from armarium.capabilities.gateway.query.rank_fusion import RerankPolicy
from armarium.capabilities.gateway.query.synthesis import AnswerWriter
from armarium.capabilities.gateway.route_tools import (
    DOWNLOAD,
    DOWNLOAD_ROUTE,
    RAG_ROUTES,
    SESSION_TOOLS,
    SessionTools,
    bind_ask_tool,
)
from armarium.capabilities.gateway.selections.service import Selections
from armarium.capabilities.gateway.selections.store import SelectionStore
from armarium.capabilities.gateway.servers.builtin import BuiltInServer
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.servers.proxy import Arguments, ProxyToolProvider
from armarium.capabilities.gateway.service import Gateway
from armarium.capabilities.gateway.settings import (
    AnswerSettings,
    GatewaySettings,
    RerankSettings,
    config_directory,
    usable_variables,
)
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.capabilities.gateway.tools import bind_rag_tools
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits, UpstreamTool
from armarium.capabilities.gateway.upstreams.upstream import UpstreamListeners
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from armarium.capability import Capability, Facilities
from armarium.foundation.concurrency.rate_limit import RateLimit
from armarium.foundation.errors import ConfigError
from armarium.foundation.routes import bind_routes
from armarium.foundation.security.access import ADMINISTER, Access, is_member
from armarium.foundation.tools import Call, bind_tools

_log = logging.getLogger(__name__)


_INSTRUCTIONS = (
    "The gateway searches the sources of many servers at once. rag_discover_resources lists the sources you may use; "
    "call it first. rag_get_raw_results returns the chunks that match a query in the sources you name. "
    "rag_get_synthesized_results answers a query from them, with citations. If a source fails, meta_data.errors "
    "reports it and the other sources still answer."
)


@asynccontextmanager
async def open_gateway(settings: GatewaySettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The gateway over the servers of the configuration files and over this server's own sources."""
    async with AsyncExitStack() as parts:
        # Both are created below: they need the upstreams, which report to them.
        tool_provider: ProxyToolProvider
        servers: LiveServers
        metrics = GatewayMetrics(facilities.metrics.registry, lambda: upstreams.health())
        listeners = UpstreamListeners(
            on_tools_changed=lambda server: tool_provider.tools_changed(server),
            on_health=lambda health: servers.publish_health(health),
            on_request=metrics.record_request,
        )
        limits = UpstreamLimits.model_validate(settings.limits.model_dump())
        upstreams = await parts.enter_async_context(UpstreamSet(limits, listeners))
        directory = config_directory(settings)
        if not has_config_folder(directory):
            # Not an error, since the gateway has sources of its own; but the directory may be misspelled.
            _log.warning("no server configuration found", extra={"config_dir": str(directory)})
        servers = LiveServers(
            directory,
            upstreams,
            facilities.events,
            admin_group=settings.admin_group,
            environ=usable_variables(settings),
        )
        per_minute = settings.limits.rate_per_minute
        rate_limit = None if per_minute is None else RateLimit(per_minute / 60, per_minute, TooManyCalls)
        administrators = {ADMINISTER: frozenset({settings.admin_group})}
        access = Access("gateway", replace(settings.rule, narrower={**settings.rule.narrower, **administrators}))
        selections = Selections(
            SelectionStore(facilities.state_dir / "gateway" / "selections.db"),
            lambda: [upstream.spec for upstream in upstreams.all()],
        )
        parts.callback(selections.store.close)

        downloads = Downloads(
            DownloadLinks(ttl_s=settings.downloads.ttl_s),
            address=facilities.address,
            base_url=settings.downloads.base_url,
            max_bytes=settings.downloads.max_bytes,
        )

        async def prepare(call: Call, spec: ServerSpec, tool: UpstreamTool, arguments: Arguments) -> Arguments:
            await selections.require_permitted(call, spec.name)
            return await downloads.with_links(call, spec, tool, arguments)

        def update_links() -> None:
            downloads.links.update_servers({each.spec.name: each.spec.transport for each in upstreams.all()})

        tool_provider = ProxyToolProvider(servers, rate_limit, access, prepare)
        try:
            await servers.reload()
        except ServerConfigInvalid as error:
            raise ConfigError(error.message, hint="correct the file, or remove it") from error
        gateway = Gateway(
            upstreams.all,
            BuiltInServer(facilities.sources) if settings.own_sources else None,
            settings.limits,
            LentTokens(max_ttl_s=settings.tokens.session_ttl_s),
            CapabilityTokens(settings.tokens.secret, ttl_s=settings.tokens.ttl_s),
            selections,
            rerank_policy=_rerank_policy(settings.rerank, parts),
            writer=_writer(settings.answers, parts),
        )
        update_links()
        servers.on_reload(lambda changes: gateway.servers_changed())
        servers.on_reload(lambda changes: update_links())
        tasks = await parts.enter_async_context(anyio.create_task_group())
        tasks.start_soon(tool_provider.keep_current)
        if settings.watch:
            tasks.start_soon(servers.watch)
        tools = bind_rag_tools(gateway, rate_limit, access)
        administration = Administration(servers, settings.admin_commands, limits)
        admin_group = frozenset({settings.admin_group})
        session_tools = SessionTools(gateway, lambda principal: is_member(principal, admin_group))
        own = [*bind_tools(SESSION_TOOLS, session_tools, access), bind_ask_tool(gateway, rate_limit, access)]
        admin_tools = bind_tools(ADMIN_TOOLS, administration, access)
        routes = [
            *bind_routes(RAG_ROUTES, [*tools, *own]),
            *bind_routes([DOWNLOAD_ROUTE], [DOWNLOAD.bind(downloads, access)], identify=downloads.principal_of),
            *bind_routes(ADMIN_ROUTES, admin_tools, groups=admin_group),
        ]
        try:
            yield Capability("gateway", tools, _INSTRUCTIONS, routes, tool_provider, access)
        finally:
            tasks.cancel_scope.cancel()


def _rerank_policy(rerank: RerankSettings, parts: AsyncExitStack) -> RerankPolicy | None:
    if rerank.base_url is None:
        return None
    from armarium.providers.client import ProviderClient
    from armarium.providers.hosted import CohereReranker
    from armarium.providers.vendors import COHERE

    client = ProviderClient(COHERE, rerank.api_key, base_url=rerank.base_url)
    reranker = CohereReranker(client, rerank.model)
    parts.push_async_callback(reranker.aclose)
    return RerankPolicy(reranker, rerank.candidates, rerank.timeout_s)


def _writer(answers: AnswerSettings, parts: AsyncExitStack) -> AnswerWriter | None:
    if answers.model is None:
        return None
    from armarium.providers.client import ProviderClient
    from armarium.providers.hosted import HostedChat
    from armarium.providers.retry import RetryPolicy
    from armarium.providers.vendors import OPENAI

    # Few retries: a caller waits, and the extractive answer is a good fallback.
    retry_policy = RetryPolicy(max_attempts=2, deadline_s=answers.timeout_s)
    client = ProviderClient(OPENAI, answers.api_key, base_url=answers.base_url, retry_policy=retry_policy)
    chat = HostedChat(client, answers.model)
    parts.push_async_callback(chat.aclose)
    return AnswerWriter(chat, answers.timeout_s, answers.max_context_chars)
