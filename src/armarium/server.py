"""Opens the capabilities in the settings, and serves their tools over HTTP and stdio."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from armarium.assembly import MANIFESTS
from armarium.capability import Capability, Endpoint, OpenCapability, ServerIdentity
from armarium.checks import server_checks
from armarium.facilities import facilities_for
from armarium.foundation.audit import AuditLog
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import Events
from armarium.foundation.security.access import Access
from armarium.foundation.security.identity import Authenticator
from armarium.foundation.security.network import EXCLUDED, is_loopback, permits, restrict_network
from armarium.foundation.settings.model import CoreSettings
from armarium.foundation.telemetry import Metrics, export_traces
from armarium.foundation.tools import ToolSpec
from armarium.settings import configured
from armarium.surfaces.console.app import Console
from armarium.surfaces.console.threads.tools import QuestionTool
from armarium.surfaces.console.tools import Offer
from armarium.surfaces.dispatch import Dispatcher
from armarium.surfaces.gate import Gate
from armarium.surfaces.mcp.app import McpApp
from armarium.surfaces.mcp.server import McpServer, mcp_server
from armarium.surfaces.mcp.sessions import Sessions
from armarium.surfaces.operations.app import METRICS, Operations, open_operations, operations_access, sees_calls_of
from armarium.surfaces.operations.status import ServedCapability
from armarium.surfaces.pipe.tool import pipe_tool
from armarium.surfaces.web.app import JsonApi
from armarium.surfaces.web.file_tools import FILES, FileTools

_log = logging.getLogger("armarium")


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
    operations: Operations | None = None
    """What the server tells about itself. Only the server of all capabilities does."""
    file_tools: FileTools | None = None
    """What is about files of any capability. Only the server of all capabilities has it."""
    console: Console | None = None
    """The web console. Only the server of all capabilities has one."""

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
        server, console = self.settings.server, self.console if endpoint is None else None
        sessions, operations = Sessions(self.settings.sessions, self.metrics), operations_access(self.settings)
        gate = Gate(
            authenticator,
            allowed_origins=server.allowed_origins,
            allowed_hosts=server.allowed_hosts,
            loopback_only=is_loopback(server.host),
            max_body_bytes=server.max_body_bytes,
            metrics=self.metrics,
            limits=self.settings.limits,
            has_session=sessions.has,
            browsers=console.sessions if console is not None else None,
        )
        if endpoint is not None:
            paths = {endpoint.path: self.mcp_server(identity=endpoint.identity)}
            routes = []
        else:
            paths = {"/mcp": self.mcp_server()}
            paths |= {f"/mcp/{each.name}": self.mcp_server(each.name) for each in self.capabilities}
            routes = [(each.name, each.routes) for each in self.capabilities if each.routes]
            if self.operations is not None:
                routes += self.operations.routes
            if console is not None:
                routes.append((console.name, console.routes))
            if self.file_tools is not None:
                routes.append((FILES, self.file_tools.routes))
        api: JsonApi | None = None
        if routes:
            api = JsonApi(
                routes,
                self.dispatcher,
                gate,
                self.events,
                operations=console.operations if console is not None else None,
                file_tools=self.file_tools,
                sees_calls_of=partial(sees_calls_of, operations),
            )
        return McpApp(
            paths,
            gate,
            sessions,
            self.metrics,
            beside=api,
            further=console.endpoints(gate, self.dispatcher, authenticator) if console is not None else (),
            not_ready=self._not_ready,
            may_read_metrics=lambda principal: operations.admits(principal, METRICS),
            trusted_proxies=server.trusted_proxies,
        )

    def _not_ready(self) -> list[str]:
        return [each.name for each in self.capabilities if not each.is_ready()]


@asynccontextmanager
async def open_server(
    settings: CoreSettings,
    *,
    events: Events | None = None,
    only: OpenCapability | None = None,
    address: str | None = None,
    check_answers: bool = False,
) -> AsyncGenerator[Server]:
    """Open the capabilities in the settings, and close them in reverse order.

    `events` are the server's; subscribe before to receive the events of the opening. With `only`, the capability that
    it opens is served instead. Those in the settings are opened, and it may use their search sources. `address` is the
    URL at which programs on this machine reach the server.
    """
    if settings.renamed:
        _log.info("the settings file has names of another document", extra={"renamed": dict(settings.renamed)})
    restrict_network(settings.network)
    facilities = facilities_for(settings, events, address, is_served=True)
    sections = [(manifest, section) for manifest, section in configured(settings) if manifest.is_enabled(section)]
    for manifest, _ in sections:
        manifest.require_packages()
    async with AsyncExitStack() as parts:
        endpoint = settings.telemetry.otlp_endpoint
        if endpoint and not permits(endpoint):
            _log.warning("traces are not sent: %s their host", EXCLUDED)
        elif endpoint:
            parts.callback(export_traces(endpoint, "armarium"))
        opened = [await parts.enter_async_context(manifest.open(section, facilities)) for manifest, section in sections]
        served = opened if only is None else [await parts.enter_async_context(only(facilities))]
        # A server whose capabilities are all disabled starts, and offers nothing.
        if only is None and not configured(settings):
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
        access = [_access_of(each) for each in served]
        operations = console = None
        if only is None:
            shown = [ServedCapability(_access_of(each), each.is_ready) for each in served]
            checks = partial(server_checks, settings)
            opening = open_operations(settings, shown, facilities.metrics, checks, audit)
            operations = await parts.enter_async_context(opening)
            tools += [(name, route.tool) for name, routes in operations.routes for route in routes]
            access.append(operations.access)
        if settings.console.enabled and only is None:
            question_tools = [
                QuestionTool(_access_of(each), tool)
                for each in served
                for tool in each.every_tool
                if tool.question_argument
            ]
            offers = [Offer(_access_of(each), each.every_tool) for each in served]
            console = Console(settings.console, settings.state_path(), offers, question_tools, access)
            tools += [(console.name, tool) for tool in console.tools]
        file_tools = None
        if only is None and any(each.knowledge is not None for each in served):
            file_tools = FileTools(served, [_access_of(each) for each in served])
            tools += [(FILES, tool) for tool in file_tools.tools]
        dispatcher = Dispatcher(
            tools,
            tool_providers=[(each.name, each.tool_provider) for each in served if each.tool_provider is not None],
            metrics=facilities.metrics,
            audit=audit,
            default_deadline_s=settings.limits.call_timeout,
            limits=settings.limits,
            access=access,
            check_answers=check_answers,
        )
        metrics, events = facilities.metrics, facilities.events
        yield Server(settings, served, dispatcher, metrics, events, pipe, operations, file_tools, console)


def _access_of(capability: Capability) -> Access:
    return capability.access or Access(capability.name)
