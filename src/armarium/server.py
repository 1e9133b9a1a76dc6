"""Opens the capabilities in the settings, and serves their tools over HTTP and stdio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from armarium.assembly import MANIFESTS
from armarium.capability import Capability, Endpoint, Facilities, OpenCapability, ServerIdentity
from armarium.foundation.audit import AuditLog, files_of_audit
from armarium.foundation.authentication import is_loopback, token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import Events
from armarium.foundation.identity import Authenticator
from armarium.foundation.settings import CoreSettings
from armarium.foundation.telemetry import Metrics, export_traces
from armarium.foundation.tools import ToolSpec
from armarium.settings import configured
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.server import McpServer, mcp_server
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.pipe.tool import pipe_tool
from armarium.surfaces.web.app import JsonApi


@dataclass(frozen=True, slots=True)
class Server:
    """The open capabilities, ready to be served."""

    settings: CoreSettings
    capabilities: Sequence[Capability]
    dispatcher: Dispatcher
    metrics: Metrics
    events: Events
    pipe: ToolSpec | None = None
    """The tool `mcp_pipe`. Only the server of all tools offers it."""

    def mcp_server(self, capability: str | None = None, *, identity: ServerIdentity | None = None) -> McpServer:
        """An MCP server of all tools, or of one capability's. Its name is Armarium's, unless an identity is given."""
        chosen = [each for each in self.capabilities if capability in (None, each.name)]
        tools = [tool for each in chosen for tool in each.tools]
        if self.pipe is not None and capability is None and identity is None:
            tools.append(self.pipe)
        return mcp_server(
            identity
            or ServerIdentity(
                f"armarium-{capability}" if capability else "armarium",
                "\n\n".join(each.instructions for each in chosen),
            ),
            self.dispatcher,
            tools,
            tool_providers=(
                self.dispatcher.tool_providers if capability is None else self.dispatcher.tool_providers.of(capability)
            ),
            traced=self.settings.telemetry.otlp_endpoint is not None,
        )

    def http(self, authenticator: Authenticator, *, endpoint: Endpoint | None = None) -> McpApp:
        """The HTTP application: `/mcp` with all tools, `/mcp/<capability>` with one capability's, and the JSON API
        below `/api`; or a single endpoint."""
        server = self.settings.server
        sessions = Sessions(self.settings.sessions, self.metrics)
        gate = Gate(
            authenticator,
            allowed_origins=server.allowed_origins,
            loopback_only=is_loopback(server.host),
            max_body_bytes=server.max_body_bytes,
            metrics=self.metrics,
            limits=self.settings.limits,
            has_session=sessions.has,
        )
        if endpoint is not None:
            paths = {endpoint.path: self.mcp_server(identity=endpoint.identity)}
            routes = []
        else:
            paths = {"/mcp": self.mcp_server()}
            paths |= {f"/mcp/{each.name}": self.mcp_server(each.name) for each in self.capabilities}
            routes = [(each.name, each.routes) for each in self.capabilities if each.routes]
        api = JsonApi(routes, self.dispatcher, gate, self.events) if routes else None
        return McpApp(
            paths,
            gate,
            sessions,
            self.metrics,
            beside=api,
            not_ready=self._not_ready,
            metrics_groups=self.settings.security.metrics_groups,
        )

    def _not_ready(self) -> list[str]:
        return [each.name for each in self.capabilities if not each.is_ready()]


@asynccontextmanager
async def open_server(
    settings: CoreSettings,
    *,
    events: Events | None = None,
    only: OpenCapability | None = None,
    check_answers: bool = False,
) -> AsyncGenerator[Server]:
    """Open the capabilities in the settings, and close them in reverse order.

    `events` are the server's; subscribe before to receive the events of the opening. With `only`, the capability that
    it opens is served instead. Those in the settings are opened, and it may use their search sources.
    """
    facilities = facilities_for(settings, events)
    sections = configured(settings)
    for manifest, _ in sections:
        manifest.require_packages()
    async with AsyncExitStack() as parts:
        if settings.telemetry.otlp_endpoint:
            parts.callback(export_traces(settings.telemetry.otlp_endpoint, "armarium"))
        opened = [await parts.enter_async_context(manifest.open(section, facilities)) for manifest, section in sections]
        served = opened if only is None else [await parts.enter_async_context(only(facilities))]
        if not served:
            raise ConfigError(
                "no capability is configured", hint=f"add a section: {', '.join(each.name for each in MANIFESTS)}"
            )
        audit: AuditLog | None = None
        if settings.audit.enabled:
            audit = AuditLog(settings.audit_file(), retention_days=settings.audit.retention_days)
            parts.callback(audit.close)
        tools = [(each.name, tool) for each in served for tool in each.every_tool]
        offers_pipe = settings.pipe.enabled and only is None
        pipe = pipe_tool(settings.pipe, settings.limits) if offers_pipe else None
        if pipe is not None:
            tools.append(("pipe", pipe))
        dispatcher = Dispatcher(
            tools,
            tool_providers=[(each.name, each.tool_provider) for each in served if each.tool_provider is not None],
            metrics=facilities.metrics,
            audit=audit,
            default_deadline_s=settings.limits.call_timeout,
            limits=settings.limits,
            check_answers=check_answers,
        )
        yield Server(settings, served, dispatcher, facilities.metrics, facilities.events, pipe)


def facilities_for(settings: CoreSettings, events: Events | None = None) -> Facilities:
    """What a server with these settings provides to its capabilities."""
    private_paths = [path for path in (settings.state_path(), token_path(settings)) if path is not None]
    private_paths += files_of_audit(settings.audit_file()) if settings.audit.enabled else []
    private_paths += [path for manifest, section in configured(settings) for path in manifest.state_paths(section)]
    return Facilities(
        events or Events(),
        settings.state_path(),
        private_paths=private_paths,
        max_body_bytes=settings.server.max_body_bytes,
    )
