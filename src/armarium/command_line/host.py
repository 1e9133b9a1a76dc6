"""The interface between commands and the program that runs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import typer

    from armarium.capability import Endpoint, OpenCapability, ServerIdentity
    from armarium.foundation.concurrency.cancellation import ProgressListener
    from armarium.foundation.events import Events
    from armarium.foundation.schema import Json
    from armarium.foundation.security.identity import Authenticator
    from armarium.foundation.settings.model import CoreSettings
    from armarium.foundation.tools import Call, ToolSpec


@dataclass(frozen=True, slots=True)
class CommandGroups:
    """Where a capability adds its commands."""

    armarium: typer.Typer
    """`armarium COMMAND`."""
    config: typer.Typer
    """`armarium config COMMAND`."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """What a command determines about its HTTP server besides the settings."""

    authenticator: Authenticator | None = None
    """Identifies callers. None: as the settings say."""
    listening: socket.socket | None = None
    """The socket to serve on. None: the address in the settings."""
    endpoint: Endpoint | None = None
    """The only endpoint. None: `/mcp`, one endpoint for each capability, and the JSON API."""
    tls: ssl.SSLContext | None = None
    events: Events | None = None
    """Events of the server; subscribe before it starts to receive all of them."""


class CommandHost(Protocol):
    """The program that runs a command. It provides what needs the whole server, so that commands need not import it.

    A command finds it in `typer.Context.obj`.
    """

    @property
    def settings_type(self) -> type[CoreSettings]:
        """The model of the settings of a whole server, with a section for each capability."""
        ...

    def load_settings(
        self, config: Path | None = None, flags: Mapping[str, Any] | None = None, *, trust: bool = False
    ) -> CoreSettings:
        """The settings in a file, by default `armarium.yaml`; raises `ConfigError` if there is none, or if the user
        does not trust it. `trust`: the command line says that they do."""
        ...

    def section(self, settings: CoreSettings, capability: str) -> Any:
        """A capability's section of the settings; raises `ConfigError` if it, or a package it needs, is missing."""
        ...

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
        """Run a tool through the dispatcher: validated, and recorded in the audit log that a server would write.

        The caller is the local owner, unless `call` names another one. Raises the error of a call that fails.
        """
        ...

    def serve_http(
        self,
        settings: CoreSettings,
        announce: Callable[[str], None],
        options: HttpOptions | None = None,
        *,
        only: OpenCapability | None = None,
    ) -> None:
        """Serve over HTTP until a signal. `announce` receives the address once the server accepts connections.

        `only` opens a capability that is served instead of those in the settings. It may use their search sources.
        """
        ...

    def serve_stdio(
        self,
        settings: CoreSettings,
        *,
        identity: ServerIdentity | None = None,
        only: OpenCapability | None = None,
    ) -> None:
        """Serve the process that started this one, until it closes standard input."""
        ...
