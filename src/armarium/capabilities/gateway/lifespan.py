"""Opens the gateway's parts and closes them in reverse order: upstreams, live servers, models, service."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio

from armarium.capabilities.gateway.admin.service import Administration, administration_routes
from armarium.capabilities.gateway.config.files import has_config_folder
from armarium.capabilities.gateway.errors import ServerConfigInvalid, TooManyCalls
from armarium.capabilities.gateway.metrics import GatewayMetrics
from armarium.capabilities.gateway.query.rank_fusion import RerankPolicy
from armarium.capabilities.gateway.query.synthesis import AnswerWriter
from armarium.capabilities.gateway.servers.builtin import BuiltInServer
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.servers.proxy import ProxyToolProvider
from armarium.capabilities.gateway.service import Gateway
from armarium.capabilities.gateway.settings import (
    AnswerSettings,
    GatewaySettings,
    RerankSettings,
    config_directory,
    secret_value,
    token_secret,
    usable_variables,
)
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.capabilities.gateway.tools import SESSION_TOOLS, bind_rag_tools, gateway_routes
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream import UpstreamListeners
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from armarium.capability import Capability, Facilities
from armarium.foundation.errors import ConfigError
from armarium.foundation.rate_limit import RateLimit
from armarium.foundation.tools import bind_tools

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
        tool_provider = ProxyToolProvider(servers, rate_limit)
        try:
            await servers.reload()
        except ServerConfigInvalid as error:
            raise ConfigError(error.message, hint="correct the file, or remove it") from error
        gateway = _build_gateway(upstreams, settings, facilities, parts)
        servers.on_reload(lambda changes: gateway.servers_changed())
        tasks = await parts.enter_async_context(anyio.create_task_group())
        tasks.start_soon(tool_provider.keep_current)
        if settings.watch:
            tasks.start_soon(servers.watch)
        tools = bind_rag_tools(gateway, rate_limit)
        routes = [
            *gateway_routes([*tools, *bind_tools(SESSION_TOOLS, gateway)]),
            *administration_routes(Administration(servers, settings.admin_commands), admin_group=settings.admin_group),
        ]
        try:
            yield Capability("gateway", tools, _INSTRUCTIONS, routes, tool_provider)
        finally:
            tasks.cancel_scope.cancel()


def _build_gateway(
    upstreams: UpstreamSet, settings: GatewaySettings, facilities: Facilities, parts: AsyncExitStack
) -> Gateway:
    """The service over servers that may change. What it opens is closed with `parts`."""
    secret = token_secret(settings)
    return Gateway(
        upstreams.all,
        BuiltInServer(facilities.sources) if settings.own_sources else None,
        settings.limits,
        LentTokens(max_ttl_s=settings.tokens.session_ttl_s),
        CapabilityTokens(secret.encode() if secret else None, ttl_s=settings.tokens.ttl_s),
        rerank_policy=_rerank_policy(settings.rerank, parts),
        writer=_writer(settings.answers, parts),
    )


def _rerank_policy(rerank: RerankSettings, parts: AsyncExitStack) -> RerankPolicy | None:
    if rerank.base_url is None:
        return None
    from armarium.providers.cohere import CohereReranker, cohere_client

    reranker = CohereReranker(cohere_client(rerank.base_url, secret_value(rerank.api_key)), rerank.model)
    parts.push_async_callback(reranker.aclose)
    return RerankPolicy(reranker, rerank.candidates, rerank.timeout_s)


def _writer(answers: AnswerSettings, parts: AsyncExitStack) -> AnswerWriter | None:
    if answers.model is None:
        return None
    from armarium.providers.openai import OpenAIChat, openai_client
    from armarium.providers.retry import RetryPolicy

    # Few retries: a caller waits, and the extractive answer is a good fallback.
    retry_policy = RetryPolicy(max_attempts=2, deadline_s=answers.timeout_s)
    client = openai_client(answers.base_url, secret_value(answers.api_key), retry_policy=retry_policy)
    chat = OpenAIChat(client, answers.model)
    parts.push_async_callback(chat.aclose)
    return AnswerWriter(chat, answers.timeout_s, answers.max_context_chars)
