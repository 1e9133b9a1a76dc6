"""Opens the gateway, part by part, and closes it in reverse: the servers of the registry, models, and the gateway."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio
from pydantic import SecretStr

from armarium.capabilities.gateway.admin.service import Administration
from armarium.capabilities.gateway.config.files import has_files
from armarium.capabilities.gateway.errors import RegistryInvalid
from armarium.capabilities.gateway.metrics import GatewayMetrics
from armarium.capabilities.gateway.pace import pace_of
from armarium.capabilities.gateway.query.search import SecondLook
from armarium.capabilities.gateway.query.synthesis import Writer
from armarium.capabilities.gateway.servers.builtin import OwnServer
from armarium.capabilities.gateway.servers.live_servers import LiveServers
from armarium.capabilities.gateway.servers.proxy import ProxyToolProvider
from armarium.capabilities.gateway.servers.remote import Deadlines
from armarium.capabilities.gateway.service import Current, Gateway, Rules
from armarium.capabilities.gateway.settings import GatewayLimits, GatewaySettings, config_directory
from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityTokens
from armarium.capabilities.gateway.tokens.lent_tokens import Connections
from armarium.capabilities.gateway.upstreams.types import UpstreamLimits
from armarium.capabilities.gateway.upstreams.upstream_set import Upstreams
from armarium.capability import Facilities
from armarium.foundation.errors import ConfigError
from armarium.foundation.rate_limit import RateLimit

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenGateway:
    """The gateway while it is open: the three tools' service, and what changes under it."""

    gateway: Gateway
    tool_provider: ProxyToolProvider
    administration: Administration
    pace: RateLimit | None = None
    """How often each caller may call; the tool_provider's tools keep it by themselves."""


@asynccontextmanager
async def open_gateway(settings: GatewaySettings, facilities: Facilities) -> AsyncGenerator[OpenGateway]:
    """The gateway over the servers that the files name, and over what this server keeps itself."""
    async with AsyncExitStack() as parts:
        # Both are made below: they need the connections that tell them their news.
        tool_provider: ProxyToolProvider
        servers: LiveServers
        metrics = GatewayMetrics(facilities.metrics.registry, lambda: upstreams.health())
        upstreams = Upstreams(
            upstream_limits(settings.limits),
            on_tools_changed=lambda server: tool_provider.tools_changed(server),
            on_health=lambda health: servers.tell_health(health),
            on_request=metrics.asked,
        )
        await parts.enter_async_context(upstreams)
        directory = config_directory(settings)
        if not has_files(directory):
            # Not an error: the gateway has sources of its own. But a directory that was mistyped looks like this, too.
            _log.warning("no servers: there are no folders for files of them", extra={"config_dir": str(directory)})
        servers = LiveServers(directory, upstreams, facilities.events, admin_group=settings.admin_group)
        pace = pace_of(settings.limits.rate_per_minute)
        tool_provider = ProxyToolProvider(servers, pace)
        try:
            await servers.reload()
        except RegistryInvalid as error:
            raise ConfigError(error.message, hint="mend the file, or take it away") from error
        gateway = await gateway_over(servers.current, settings, facilities, parts)
        servers.on_reload(lambda changes: gateway.servers_changed())
        tasks = await parts.enter_async_context(anyio.create_task_group())
        tasks.start_soon(tool_provider.keep_filled)
        if settings.watch:
            tasks.start_soon(servers.watch)
        try:
            yield OpenGateway(gateway, tool_provider, Administration(servers), pace)
        finally:
            tasks.cancel_scope.cancel()


async def gateway_over(
    current: Current, settings: GatewaySettings, facilities: Facilities, parts: AsyncExitStack
) -> Gateway:
    """The gateway over servers that may change; what it opens is closed with `parts`."""
    second_look, writer = _second_look(settings), _writer(settings)
    if second_look is not None:
        parts.push_async_callback(second_look.reranker.aclose)
    if writer is not None:
        parts.push_async_callback(writer.chat.aclose)
    limits, tokens = settings.limits, settings.tokens
    secret = _value(tokens.secret)
    return Gateway(
        current,
        OwnServer(facilities.sources) if settings.own_sources else None,
        Rules(Deadlines(limits.call_timeout_s, limits.discover_timeout_s), limits.discovery_kept_s),
        Connections(longest_s=tokens.session_ttl_s),
        CapabilityTokens(secret.encode() if secret else None, ttl_s=tokens.ttl_s),
        second_look=second_look,
        writer=writer,
    )


def upstream_limits(limits: GatewayLimits) -> UpstreamLimits:
    """What one server may cost, as its connection wants it."""
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


def _second_look(settings: GatewaySettings) -> SecondLook | None:
    rerank = settings.rerank
    if rerank.base_url is None:
        return None
    from armarium.providers.cohere import CohereReranker, cohere_client

    reranker = CohereReranker(cohere_client(rerank.base_url, _value(rerank.api_key)), rerank.model)
    return SecondLook(reranker, rerank.candidates, rerank.timeout_s)


def _writer(settings: GatewaySettings) -> Writer | None:
    answers = settings.answers
    if answers.model is None:
        return None
    from armarium.providers.openai import OpenAIChat, openai_client
    from armarium.providers.pacing import Patience

    # Somebody waits, and has the best sentences instead: a model that fails is not asked many times.
    patience = Patience(tries=2, deadline_s=answers.timeout_s)
    chat = OpenAIChat(openai_client(answers.base_url, _value(answers.api_key), patience=patience), answers.model)
    return Writer(chat, answers.timeout_s, answers.max_context_chars)


def _value(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() or None if secret is not None else None
