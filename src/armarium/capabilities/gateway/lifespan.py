"""Opens the gateway's parts and closes them in reverse order: upstreams, live servers, models, service."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
from pydantic import SecretStr

from armarium.capabilities.gateway.admin.service import Administration
from armarium.capabilities.gateway.config.files import has_config_folder
from armarium.capabilities.gateway.errors import ServerConfigInvalid, TooManyCalls
from armarium.capabilities.gateway.metrics import GatewayMetrics
from armarium.capabilities.gateway.query.search import RerankPolicy
from armarium.capabilities.gateway.query.synthesis import AnswerWriter
from armarium.capabilities.gateway.servers.builtin import BuiltInServer
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.servers.proxy import ProxyToolProvider
from armarium.capabilities.gateway.servers.remote import Deadlines
from armarium.capabilities.gateway.service import ConfiguredServers, Gateway, GatewayPolicy
from armarium.capabilities.gateway.settings import GatewayLimits, GatewaySettings, config_directory, token_secret
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import LentTokens
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream_set import UpstreamSet
from armarium.capability import Facilities
from armarium.foundation.errors import ConfigError
from armarium.foundation.rate_limit import RateLimit

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenGateway:
    """The open gateway: its service, the tools of generic servers, and the administration."""

    gateway: Gateway
    tool_provider: ProxyToolProvider
    administration: Administration
    rate_limit: RateLimit | None = None
    """The rate limit per caller. The tool provider applies it to its own tools."""


@asynccontextmanager
async def open_gateway(settings: GatewaySettings, facilities: Facilities) -> AsyncGenerator[OpenGateway]:
    """The gateway over the servers of the configuration files and over this server's own sources."""
    async with AsyncExitStack() as parts:
        # Both are created below: they need the upstreams, which report to them.
        tool_provider: ProxyToolProvider
        servers: LiveServers
        metrics = GatewayMetrics(facilities.metrics.registry, lambda: upstreams.health())
        upstreams = UpstreamSet(
            upstream_limits(settings.limits),
            on_tools_changed=lambda server: tool_provider.tools_changed(server),
            on_health=lambda health: servers.publish_health(health),
            on_request=metrics.record_request,
        )
        await parts.enter_async_context(upstreams)
        directory = config_directory(settings)
        if not has_config_folder(directory):
            # Not an error, since the gateway has sources of its own; but the directory may be misspelled.
            _log.warning("no server configuration found", extra={"config_dir": str(directory)})
        servers = LiveServers(directory, upstreams, facilities.events, admin_group=settings.admin_group)
        rate_limit = _rate_limit(settings.limits.rate_per_minute)
        tool_provider = ProxyToolProvider(servers, rate_limit)
        try:
            await servers.reload()
        except ServerConfigInvalid as error:
            raise ConfigError(error.message, hint="correct the file, or remove it") from error
        gateway = await build_gateway(servers.configured, settings, facilities, parts)
        servers.on_reload(lambda changes: gateway.servers_changed())
        tasks = await parts.enter_async_context(anyio.create_task_group())
        tasks.start_soon(tool_provider.keep_current)
        if settings.watch:
            tasks.start_soon(servers.watch)
        try:
            yield OpenGateway(gateway, tool_provider, Administration(servers), rate_limit)
        finally:
            tasks.cancel_scope.cancel()


async def build_gateway(
    configured: ConfiguredServers, settings: GatewaySettings, facilities: Facilities, parts: AsyncExitStack
) -> Gateway:
    """The service over servers that may change. What it opens is closed with `parts`."""
    rerank_policy, writer = _rerank_policy(settings), _writer(settings)
    if rerank_policy is not None:
        parts.push_async_callback(rerank_policy.reranker.aclose)
    if writer is not None:
        parts.push_async_callback(writer.chat.aclose)
    limits, tokens = settings.limits, settings.tokens
    secret = token_secret(settings)
    return Gateway(
        configured,
        BuiltInServer(facilities.sources) if settings.own_sources else None,
        GatewayPolicy(
            Deadlines(limits.call_timeout_s, limits.discover_timeout_s), limits.discovery_kept_s, limits.top_k_max
        ),
        LentTokens(max_ttl_s=tokens.session_ttl_s),
        CapabilityTokens(secret.encode() if secret else None, ttl_s=tokens.ttl_s),
        rerank_policy=rerank_policy,
        writer=writer,
    )


def upstream_limits(limits: GatewayLimits) -> UpstreamLimits:
    """The limits of one server, from the settings."""
    return UpstreamLimits(
        connect_timeout_s=limits.connect_timeout_s,
        call_timeout_s=limits.call_timeout_s,
        discover_timeout_s=limits.discover_timeout_s,
        concurrency=limits.concurrency_per_server,
        max_answer_bytes=limits.max_answer_bytes,
        breaker_failures=limits.breaker.failures,
        breaker_open_s=limits.breaker.open_s,
        ping_s=limits.breaker.ping_s,
    )


def _rate_limit(per_minute: int | None) -> RateLimit | None:
    return None if per_minute is None else RateLimit(per_minute / 60, per_minute, TooManyCalls)


def _rerank_policy(settings: GatewaySettings) -> RerankPolicy | None:
    rerank = settings.rerank
    if rerank.base_url is None:
        return None
    from armarium.providers.cohere import CohereReranker, cohere_client

    reranker = CohereReranker(cohere_client(rerank.base_url, _value(rerank.api_key)), rerank.model)
    return RerankPolicy(reranker, rerank.candidates, rerank.timeout_s)


def _writer(settings: GatewaySettings) -> AnswerWriter | None:
    answers = settings.answers
    if answers.model is None:
        return None
    from armarium.providers.openai import OpenAIChat, openai_client
    from armarium.providers.retry import RetryPolicy

    # Few retries: a caller waits, and the extractive answer is a good fallback.
    retry_policy = RetryPolicy(max_attempts=2, deadline_s=answers.timeout_s)
    chat = OpenAIChat(
        openai_client(answers.base_url, _value(answers.api_key), retry_policy=retry_policy), answers.model
    )
    return AnswerWriter(chat, answers.timeout_s, answers.max_context_chars)


def _value(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() or None if secret is not None else None
