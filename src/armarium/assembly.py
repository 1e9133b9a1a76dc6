"""Puts the server together: settings, then capabilities, then the ways in. The only module that knows every part."""

from __future__ import annotations

import ipaddress
import logging
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import create_model

from armarium.capabilities.corpus.manifest import MANIFEST as CORPUS
from armarium.capabilities.gateway.manifest import MANIFEST as GATEWAY
from armarium.capabilities.registry.manifest import MANIFEST as REGISTRY
from armarium.capabilities.sandbox.manifest import MANIFEST as SANDBOX
from armarium.capabilities.store.manifest import MANIFEST as STORE
from armarium.capability import Capability, Facilities, Manifest
from armarium.foundation.audit import AuditLog, files_of_audit
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import Events
from armarium.foundation.identity import ANYONE, Authenticator, Principal, ensure_token, key_hash, read_token
from armarium.foundation.schema import JsonSchema
from armarium.foundation.settings import CoreSettings, LimitSettings, SecuritySettings
from armarium.foundation.telemetry import Metrics, export_traces
from armarium.surfaces.caller_limits import CallLimits, RequestLimits
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.server import McpServer, ServerIdentity, mcp_server
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.web.app import JsonApi

if TYPE_CHECKING:
    from armarium.capabilities.registry.chores import RegistryChores
    from armarium.capabilities.store.chores import StoreChores

_log = logging.getLogger(__name__)

MANIFESTS: tuple[Manifest, ...] = (SANDBOX, STORE, REGISTRY, CORPUS, GATEWAY)
"""The capabilities there are, in the order they open: whoever listens comes before the corpus, which tells from its
first scan on and until its last; the gateway asks all others, so it is the first to close."""

OWNER_GROUPS = ("admin",)
"""Whoever has the token of a server that has only one is its administrator."""

_sections: dict[str, Any] = {manifest.name: (manifest.settings | None, None) for manifest in MANIFESTS}
Settings: type[CoreSettings] = create_model("Settings", __base__=CoreSettings, **_sections)
"""The settings of a whole server: the core's, and a section for each capability."""


def installed(capability: str) -> bool:
    """Whether the packages that a capability needs are there."""
    return any(manifest.name == capability and manifest.is_installed for manifest in MANIFESTS)


@dataclass(frozen=True, slots=True)
class OneEndpoint:
    """Where every tool is served, and under what name."""

    identity: ServerIdentity
    path: str = "/mcp"


@dataclass(frozen=True, slots=True)
class Armarium:
    """The open server, without a way in yet."""

    settings: CoreSettings
    capabilities: Sequence[Capability]
    dispatcher: Dispatcher
    metrics: Metrics
    events: Events

    def mcp_server(self, capability: str | None = None, *, identity: ServerIdentity | None = None) -> McpServer:
        """What clients speak to: all tools, or one capability's; as Armarium unless another identity is given."""
        chosen = [each for each in self.capabilities if capability in (None, each.name)]
        return mcp_server(
            identity
            or ServerIdentity(
                f"armarium-{capability}" if capability else "armarium",
                "\n\n".join(each.instructions for each in chosen),
            ),
            self.dispatcher,
            [tool for each in chosen for tool in each.tools],
            tool_providers=self.dispatcher.tool_providers
            if capability is None
            else self.dispatcher.tool_providers.of(capability),
            traced=self.settings.telemetry.otlp_endpoint is not None,
        )

    def http(self, authenticator: Authenticator, *, only: OneEndpoint | None = None) -> McpApp:
        """The HTTP application: `/mcp` with every tool, `/mcp/<capability>` with one capability's and `/api` with the
        routes they offer, or only one endpoint for a command with a name of its own."""
        server, sessions = self.settings.server, self.settings.sessions
        open_sessions = Sessions(
            inactivity_timeout_s=sessions.inactivity_timeout,
            max_lifetime_s=sessions.max_lifetime,
            max_sessions=sessions.max_sessions,
            max_sessions_per_caller=sessions.max_sessions_per_caller,
            metrics=self.metrics,
        )
        gate = Gate(
            authenticator,
            allowed_origins=server.allowed_origins,
            loopback_only=is_loopback(server.host),
            max_body_bytes=server.max_body_bytes,
            metrics=self.metrics,
            limits=_request_limits(self.settings.limits),
            has_session=open_sessions.has,
        )
        if only is not None:
            paths = {only.path: self.mcp_server(identity=only.identity)}
        else:
            paths = {"/mcp": self.mcp_server()}
            paths |= {f"/mcp/{each.name}": self.mcp_server(each.name) for each in self.capabilities}
        routes = [] if only is not None else [(each.name, each.routes) for each in self.capabilities if each.routes]
        api = JsonApi(routes, self.dispatcher, gate, self.events) if routes else None
        return McpApp(paths, gate, open_sessions, self.metrics, beside=api, not_ready=self._not_ready)

    def _not_ready(self) -> list[str]:
        return [each.name for each in self.capabilities if not each.is_ready()]


@asynccontextmanager
async def open_armarium(
    settings: CoreSettings, *, events: Events | None = None, check_answers: bool = False
) -> AsyncGenerator[Armarium]:
    """Open every capability the settings ask for; close them in reverse. Whoever wants to hear of the opening itself
    subscribes to `events` before."""
    metrics, events = Metrics(), events or Events()
    sections = [
        (manifest, section) for manifest in MANIFESTS if (section := getattr(settings, manifest.name, None)) is not None
    ]
    private_paths = [path for path in (settings.state_path(), token_path(settings)) if path is not None]
    private_paths += files_of_audit(settings.audit_file()) if settings.audit.enabled else []
    private_paths += [path for manifest, section in sections for path in manifest.state_paths(section)]
    facilities = Facilities(events, settings.state_path(), metrics, private_paths)
    for manifest, _ in sections:
        _check_installed(manifest)
    async with AsyncExitStack() as parts:
        if settings.telemetry.otlp_endpoint:
            parts.callback(export_traces(settings.telemetry.otlp_endpoint, "armarium"))
        capabilities = [
            await parts.enter_async_context(manifest.open(section, facilities)) for manifest, section in sections
        ]
        if not capabilities:
            raise ConfigError(
                "no capability is configured",
                hint=f"add a section: {', '.join(manifest.name for manifest in MANIFESTS)}",
            )
        audit: AuditLog | None = None
        if settings.audit.enabled:
            audit = AuditLog(settings.audit_file(), retention_days=settings.audit.retention_days)
            parts.callback(audit.close)
        dispatcher = Dispatcher(
            [(each.name, tool) for each in capabilities for tool in each.every_tool],
            tool_providers=[(each.name, each.tool_provider) for each in capabilities if each.tool_provider is not None],
            metrics=metrics,
            audit=audit,
            default_deadline_s=settings.limits.call_timeout,
            limits=_call_limits(settings.limits),
            check_answers=check_answers,
        )
        yield Armarium(settings, capabilities, dispatcher, metrics, events)


@asynccontextmanager
async def open_rag_server(
    settings: CoreSettings, name: str, capability_key: str | None = None
) -> AsyncGenerator[Armarium]:
    """A server of the three RAG tools over the corpus that the settings ask for, and of nothing else; with a key,
    callers need a capability token for the server of this name, signed with it."""
    from armarium.capabilities.gateway.rag_server import INSTRUCTIONS, rag_server_tools
    from armarium.capabilities.gateway.tokens.capability_tokens import CapabilityVerifier

    _check_installed(CORPUS)
    metrics, events = Metrics(), Events()
    facilities = Facilities(events, settings.state_path(), metrics)
    tokens = CapabilityVerifier(name, capability_key) if capability_key is not None else None
    async with CORPUS.open(getattr(settings, CORPUS.name), facilities):
        capability = Capability("rag-server", rag_server_tools(facilities.sources, tokens), INSTRUCTIONS)
        dispatcher = Dispatcher(
            [(capability.name, tool) for tool in capability.tools],
            metrics=metrics,
            audit=None,
            default_deadline_s=settings.limits.call_timeout,
            limits=_call_limits(settings.limits),
        )
        yield Armarium(settings, [capability], dispatcher, metrics, events)


def capability_key(settings: CoreSettings, server: str) -> str:
    """The key that the gateway of these settings signs a server's capability tokens with."""
    from armarium.capabilities.gateway.settings import token_secret
    from armarium.capabilities.gateway.tokens.capability_tokens import configured_server_key

    return configured_server_key(token_secret(getattr(settings, GATEWAY.name)), server)


def servers_schema() -> JsonSchema:
    """The JSON schema of the files that name the servers behind the gateway."""
    from armarium.capabilities.gateway.config.schema import server_config_schema

    return server_config_schema()


def store_chores(settings: CoreSettings) -> StoreChores:
    """What `armarium store` does for the store that the settings ask for."""
    section = getattr(settings, STORE.name)
    if section is None:
        raise ConfigError("no store is configured", hint="add a section: store")
    _check_installed(STORE)
    from armarium.capabilities.store.chores import StoreChores

    return StoreChores(section, settings.state_path())


def registry_chores(directory: Path | None) -> RegistryChores:
    """What `armarium registry` does with the registry of a directory; without one, with the nearest from here up."""
    from armarium.capabilities.registry.chores import RegistryChores

    return RegistryChores(directory)


def _call_limits(settings: LimitSettings) -> CallLimits:
    return CallLimits(**{field.name: getattr(settings, field.name) for field in fields(CallLimits)})


def _request_limits(settings: LimitSettings) -> RequestLimits:
    return RequestLimits(
        settings.requests_per_second,
        settings.request_burst,
        settings.request_bytes_in_flight,
        settings.total_request_bytes_in_flight,
        settings.max_argument_values,
    )


def _check_installed(manifest: Manifest) -> None:
    if not manifest.is_installed:
        hint = f"pip install 'armarium[{manifest.name}]'"
        raise ConfigError(f"the {manifest.name} needs packages that are not installed", hint=hint)


def open_authenticator(settings: CoreSettings) -> Authenticator:
    """Who may call, as `security.auth` says."""
    if settings.security.auth == "none":
        if not is_loopback(settings.server.host):
            raise ConfigError(
                f"security.auth is none, but the server would listen on {settings.server.host}",
                hint="use auth: auto, file:<path> or keys, or listen on 127.0.0.1",
            )
        return Authenticator((), open_to_anyone=True)
    return Authenticator(callers(settings))


def callers(settings: CoreSettings) -> list[Principal]:
    """Everybody who may call, by name."""
    security = settings.security
    if security.auth == "none":
        return [ANYONE]
    if security.auth == "keys":
        return _principals(security)
    token_file = token_path(settings)
    assert token_file is not None
    token = ensure_token(token_file) if security.auth == "auto" else read_token(token_file)
    return [Principal("owner", OWNER_GROUPS, key_hash(token))]


def _principals(security: SecuritySettings) -> list[Principal]:
    if not security.keys:
        raise ConfigError("security.auth is keys, but security.keys is empty", hint="add at least one caller")
    return [Principal(key.username, key.groups, key.key_sha256) for key in security.keys]


def token_path(settings: CoreSettings) -> Path | None:
    """The file that holds the token, for the modes that have one."""
    if settings.security.auth == "auto":
        return settings.state_path() / "secret.token"
    if settings.security.auth.startswith("file:"):
        return Path(os.path.expanduser(settings.security.auth.removeprefix("file:")))
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
