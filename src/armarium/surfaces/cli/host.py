"""The host of commands: loads settings, starts servers, and passes calls through the dispatcher."""

from __future__ import annotations

import logging
import os
import resource
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armarium.assembly import MANIFESTS
from armarium.command_line.host import HttpOptions
from armarium.command_line.options import CONFIG_FILE, settings_file
from armarium.command_line.output import say
from armarium.foundation.errors import ArmariumError, ConfigError
from armarium.foundation.security.network import restrict_network
from armarium.surfaces.cli.trust import require_trusted_files

if TYPE_CHECKING:
    from armarium.capability import OpenCapability, ServerIdentity
    from armarium.foundation.concurrency.cancellation import ProgressListener
    from armarium.foundation.schema import Json
    from armarium.foundation.settings.model import CoreSettings
    from armarium.foundation.tools import Call, ToolSpec

_log = logging.getLogger("armarium")

_MAX_OPEN_FILES = 65_536


class Host:
    """Implements and is described by `CommandHost`. Imports the server when a command needs it: most do not."""

    @property
    def settings_type(self) -> type[CoreSettings]:
        from armarium.settings import Settings

        return Settings

    def load_settings(
        self, config: Path | None = None, flags: Mapping[str, Any] | None = None, *, trust: bool = False
    ) -> CoreSettings:
        from armarium.foundation.settings.loader import load_settings

        file = settings_file(config)
        if file is None:
            raise ConfigError(
                f"there is no {CONFIG_FILE} here",
                hint=f"name one with --config, or write one: armarium config print --dir . > {CONFIG_FILE}",
            )
        settings = load_settings(self.settings_type, file, environ=os.environ, flags=flags)
        require_trusted_files(settings, config, granted=trust)
        restrict_network(settings.network)
        return settings

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
        from armarium.foundation.security.identity import LOCAL
        from armarium.foundation.settings.loader import load_settings
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

        from armarium.command_line.addresses import local_address
        from armarium.foundation.security.authentication import open_authenticator
        from armarium.foundation.sockets import base_address, configured_tls, listen, travels_in_clear_text
        from armarium.server import open_server
        from armarium.surfaces.mcp.http_server import serve_http

        options = options or HttpOptions()
        _prepare_process(settings)
        authenticator = options.authenticator or open_authenticator(settings)
        tls = options.tls or configured_tls(settings.server.tls)
        if tls is None and travels_in_clear_text(settings.server):
            _log.warning(
                "keys and files travel in clear text; set server.tls, or trusted_proxies behind a proxy with TLS",
                extra={"host": settings.server.host},
            )

        async def main() -> None:
            with options.listening or listen(settings.server.host, settings.server.port) as listening:
                address = base_address(listening, tls=tls is not None)
                near = local_address(address)
                is_whole = only is None and options.endpoint is None
                async with open_server(settings, events=options.events, only=only, address=near) as server:
                    with _recorded(settings, near) if is_whole else nullcontext():
                        await serve_http(
                            server.http(authenticator, endpoint=options.endpoint),
                            listening,
                            grace_s=settings.server.shutdown_grace or 0,
                            on_ready=lambda: announce(address),
                            tls=tls,
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


@contextmanager
def _recorded(settings: CoreSettings, address: str) -> Generator[None]:
    """Let `armarium console` find this server inside the block."""
    from armarium.surfaces.cli.running_servers import RunningServer, recorded

    with ExitStack() as record:
        if settings.console.enabled:
            server = RunningServer(address, settings.security.auth != "none", time.time())
            try:
                record.enter_context(recorded(settings.state_path(), server))
            except OSError as error:
                _log.warning("commands cannot find this server", extra={"reason": error.strerror})
        yield


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
