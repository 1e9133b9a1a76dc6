"""The host of commands: loads settings, starts servers, and passes calls through the dispatcher."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armarium.assembly import MANIFESTS
from armarium.command_line.host import HttpOptions
from armarium.command_line.options import CONFIG_FILE, settings_file
from armarium.command_line.output import say
from armarium.foundation.errors import ArmariumError, ConfigError

if TYPE_CHECKING:
    from armarium.capability import OpenCapability, ServerIdentity
    from armarium.foundation.cancellation import ProgressListener
    from armarium.foundation.schema import Json
    from armarium.foundation.settings import CoreSettings
    from armarium.foundation.tools import Call, ToolSpec

_log = logging.getLogger("armarium")

_MAX_OPEN_FILES = 65_536


class Host:
    """Implements and is described by `CommandHost`. Imports the server when a command needs it: most do not."""

    @property
    def settings_type(self) -> type[CoreSettings]:
        from armarium.settings import Settings

        return Settings

    def load_settings(self, config: Path | None = None, flags: Mapping[str, Any] | None = None) -> CoreSettings:
        from armarium.foundation.settings_loader import load_settings

        file = settings_file(config)
        if file is None:
            raise ConfigError(
                f"there is no {CONFIG_FILE} here",
                hint=f"name one with --config, or write one: armarium config print --dir . > {CONFIG_FILE}",
            )
        return load_settings(self.settings_type, file, environ=os.environ, flags=flags)

    def section(self, settings: CoreSettings, capability: str) -> Any:
        section = getattr(settings, capability, None)
        if section is None:
            raise ConfigError(f"no {capability} is configured", hint=f"add a section: {capability}")
        next(manifest for manifest in MANIFESTS if manifest.name == capability).require_packages()
        return section

    async def call(
        self,
        capability: str,
        tool: ToolSpec,
        arguments: Mapping[str, Any],
        *,
        settings: CoreSettings | None = None,
        call: Call | None = None,
        on_progress: ProgressListener | None = None,
    ) -> Json:
        import anyio

        from armarium.foundation.audit import AuditLog
        from armarium.foundation.identity import LOCAL
        from armarium.foundation.settings_loader import load_settings
        from armarium.foundation.telemetry import Metrics
        from armarium.surfaces.caller import Caller
        from armarium.surfaces.dispatch import Dispatcher

        # As for `armarium up`: a settings file in the current directory does not apply unless the command loads it.
        settings = settings or load_settings(self.settings_type, environ=os.environ)
        audit: AuditLog | None = None
        if settings.audit.enabled:
            try:
                audit = AuditLog(settings.audit_file(), retention_days=settings.audit.retention_days)
            except (ArmariumError, OSError) as error:
                say(f"note: the audit log cannot be written, so this command is not in it: {error}")
        try:
            dispatcher = Dispatcher([(capability, tool)], metrics=Metrics(), audit=audit, default_deadline_s=None)
            caller = Caller(LOCAL, "cli") if call is None else Caller(call.principal, "cli", credential=call.credential)
            outcome = await dispatcher.outcome(caller, tool.name, arguments, on_progress)
        finally:
            # The dispatcher records a call in the next iteration of the event loop, also one that was cancelled.
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            if audit is not None:
                audit.close()
        if outcome.error is not None:
            raise outcome.error
        return outcome.result["structuredContent"]

    def serve_http(
        self,
        settings: CoreSettings,
        announce: Callable[[str], None],
        options: HttpOptions | None = None,
        *,
        only: OpenCapability | None = None,
    ) -> None:
        import anyio

        from armarium.foundation.authentication import open_authenticator
        from armarium.foundation.sockets import base_address, listen
        from armarium.server import open_server
        from armarium.surfaces.mcp.http_server import serve_http

        options = options or HttpOptions()
        _prepare_process(settings)
        authenticator = options.authenticator or open_authenticator(settings)

        async def main() -> None:
            with options.listening or listen(settings.server.host, settings.server.port) as listening:
                address = base_address(listening, tls=options.tls is not None)
                async with open_server(settings, events=options.events, only=only) as server:
                    await serve_http(
                        server.http(authenticator, endpoint=options.endpoint),
                        listening,
                        grace_s=settings.server.shutdown_grace or 0,
                        on_ready=lambda: announce(address),
                        tls=options.tls,
                    )
            _log.info("stopped")

        anyio.run(main, backend_options={"use_uvloop": True})

    def serve_stdio(
        self,
        settings: CoreSettings,
        *,
        identity: ServerIdentity | None = None,
        only: OpenCapability | None = None,
    ) -> None:
        import anyio

        from armarium.server import open_server
        from armarium.surfaces.mcp.stdio import serve_stdio

        _prepare_process(settings)

        async def main() -> None:
            async with open_server(settings, only=only) as server:
                mcp_server = server.mcp_server(identity=identity)
                await serve_stdio(mcp_server, max_message_bytes=settings.server.max_body_bytes)

        anyio.run(main, backend_options={"use_uvloop": True})


def _prepare_process(settings: CoreSettings) -> None:
    from armarium.foundation.processes.memory import share_one_heap
    from armarium.foundation.telemetry import log_as_json

    log_as_json(settings.telemetry.log_level)
    share_one_heap()
    # Deep trees and many clients need descriptors, and the usual soft limit is 1024.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
