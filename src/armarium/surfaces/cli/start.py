"""`armarium up`, `serve`, `stdio` and `config print`: builds settings, starts servers, and prints how to connect."""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from armarium.assembly import MANIFESTS
from armarium.command_line.addresses import local_address
from armarium.command_line.host import CommandHost, HttpOptions
from armarium.command_line.options import settings_file
from armarium.command_line.output import Misuse, destinations_line, say, show_json, without_credentials
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import Events
from armarium.foundation.security.authentication import open_authenticator, token_path
from armarium.foundation.security.identity import read_token
from armarium.foundation.security.network import restrict_network
from armarium.foundation.settings.loader import load_settings
from armarium.foundation.settings.model import CoreSettings
from armarium.foundation.sockets import listen
from armarium.manifest import ServedDirectory
from armarium.settings import Settings, configured, text_destinations

_log = logging.getLogger("armarium")

TOKEN_VARIABLE = "ARMARIUM_TOKEN"  # noqa: S105 the name of a variable, not a secret


def directory_settings(
    directory: Path,
    *,
    write: bool,
    wanted: Mapping[str, bool] | None = None,
    name: str = "workspace",
    flags: Mapping[str, Any] | None = None,
) -> CoreSettings:
    """The settings of `up DIR` and `stdio DIR`: every capability that can serve the directory, unless `wanted` says no.

    A capability that cannot serve it is reported and omitted, so that the others can start.
    """
    values = dict(flags or {})
    state_dir = load_settings(Settings, environ=os.environ, flags=values).state_path()
    served = ServedDirectory(Path(os.path.abspath(directory.expanduser())), name, write, state_dir)
    for manifest in MANIFESTS:
        if not (wanted or {}).get(manifest.name, True) or not manifest.is_installed:
            continue
        try:
            section = manifest.directory_section(served)
        except ConfigError as error:
            say(f"starting without the {manifest.name}: {error.message}")
            if error.hint:
                say(f"hint: {error.hint}")
            continue
        values |= {f"{manifest.name}.{key}": value for key, value in (section or {}).items()}
    settings = load_settings(Settings, environ=os.environ, flags=values)
    restrict_network(settings.network)
    return settings


def up(host: CommandHost, directory: Path, settings: CoreSettings, *, name: str, write: bool, as_json: bool) -> None:
    """Serve one directory until Ctrl-C, and print how to connect to it."""
    path = os.path.abspath(directory.expanduser())
    events = Events()
    options = HttpOptions(open_authenticator(settings), _listen_or_choose_port(settings), events=events)
    progress = [] if as_json else [manifest.progress_display for manifest, _ in configured(settings)]
    displays = [display(events) for display in progress if display is not None]
    say(destinations_line(text_destinations(settings)))

    def announce(address: str) -> None:
        client = _ClientConfiguration(settings, address)
        if as_json:
            show_json(client.as_json() | {"root": name, "directory": path, "read_only": not write})
            return
        _print_connection(client, f"{path} ({'read and write' if write else 'read-only'}) as {name!r}")
        if settings.console.enabled:
            _print_console(settings, local_address(address))
        say("Stop with Ctrl-C.")
        for display in displays:
            display.begin()

    try:
        host.serve_http(settings, announce, options)
    finally:
        for display in displays:
            display.end()


def serve(host: CommandHost, settings: CoreSettings, config: Path, *, as_json: bool) -> None:
    """Serve the capabilities in the settings until a signal. Standard error is the log."""

    def announce(address: str) -> None:
        client = _ClientConfiguration(settings, address)
        capabilities = [manifest.name for manifest, section in configured(settings) if manifest.is_enabled(section)]
        facts = {"capabilities": capabilities, "auth": settings.security.auth, "config_file": str(config)}
        _log.info(destinations_line(text_destinations(settings)))
        _log.info("listening", extra={"address": address} | client.as_json(with_config=False) | facts)
        if as_json:
            show_json(client.as_json() | facts)

    host.serve_http(settings, announce)


def stdio(host: CommandHost, settings: CoreSettings) -> None:
    if sys.stdin.isatty():
        say("speaking MCP on standard input and output; this is for a client to start: armarium install --help")
    say(destinations_line(text_destinations(settings)))
    host.serve_stdio(settings)


def effective_settings(config: Path | None, directory: Path | None, *, write: bool) -> dict[str, Any]:
    """The settings of a file, or of `armarium up DIR`, as plain values for a settings file."""
    if directory is None:
        if write:
            raise Misuse("--write goes with --dir", hint="a file says `read_only` for each root")
        effective = load_settings(Settings, settings_file(config), environ=os.environ)
    elif config is not None:
        raise Misuse("--dir and --config exclude each other", hint="name the directory in the file's sandbox.roots")
    else:
        effective = directory_settings(directory, write=write)
    return _without_credentials(effective.model_dump(mode="json") | {"state_dir": str(effective.state_path())})


def _without_credentials(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_credentials(inner) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType] any JSON
    if isinstance(value, list):
        return [_without_credentials(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType] any JSON
    return without_credentials(value) if isinstance(value, str) else value


def as_yaml(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120).rstrip()


def _listen_or_choose_port(settings: CoreSettings) -> socket.socket:
    """Listen on the port in the settings. If that is the default and in use, listen on a free port."""
    host, port = settings.server.host, settings.server.port
    try:
        return listen(host, port)
    except ConfigError as error:
        taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        if not taken or "port" in settings.server.model_fields_set:
            raise
    listening = listen(host, 0)
    say(f"port {port} is in use; using {listening.getsockname()[1]} instead (--port chooses one)")
    return listening


class _ClientConfiguration:
    def __init__(self, settings: CoreSettings, address: str) -> None:
        self.url = f"{local_address(address)}/mcp"
        self.token_file = token_path(settings)
        self.needs_key = settings.security.auth != "none"

    def as_json(self, *, with_config: bool = True) -> dict[str, Any]:
        """For programs. It contains the path of the token file, not the token."""
        connection = {"url": self.url, "token_file": str(self.token_file) if self.token_file else None}
        return connection | ({"config": self.config(f"${{{TOKEN_VARIABLE}}}")} if with_config else {})

    def config(self, token: str) -> dict[str, Any]:
        entry: dict[str, Any] = {"type": "http", "url": self.url}
        if self.needs_key:
            entry["headers"] = {"Authorization": f"Bearer {token}"}
        return {"mcpServers": {"armarium": entry}}


def _print_connection(client: _ClientConfiguration, served: str) -> None:
    say(f"Armarium serves {served}\n")
    say(f"  endpoint  {client.url}")
    if client.token_file:
        say(f"  token     {client.token_file}")
    say("\nClient configuration:\n")
    token = f"${{{TOKEN_VARIABLE}}}"
    # The token is a secret: print it at a terminal only, never to a log.
    at_terminal = sys.stderr.isatty() and sys.stdout.isatty()
    if client.token_file and at_terminal:
        token = read_token(client.token_file)
    say(json.dumps(client.config(token), indent=2))
    if client.token_file and not at_terminal:
        say(f'\nwhere {TOKEN_VARIABLE} is the token: export {TOKEN_VARIABLE}="$(cat {_quoted(client.token_file)})"')
    token_option = f" --token-file {_quoted(client.token_file)}" if client.token_file else ""
    say("\nOr let Armarium write it (for cursor, vscode and windsurf as well):\n")
    say(f"  {_shell_command()} install claude-code --scope user --url {client.url}{token_option}\n")


def _print_console(settings: CoreSettings, address: str) -> None:
    from armarium.surfaces.console.links import VALID_S, OwnerLinks, link
    from armarium.surfaces.console.page import NOT_BUILT, is_built

    if not is_built():
        say(NOT_BUILT)
        return
    needs_key = settings.security.auth != "none"
    # Like the token, a link that logs in is printed at a terminal only.
    if needs_key and sys.stderr.isatty() and sys.stdout.isatty():
        code = OwnerLinks(settings.state_path()).create()
        say(f"Console, logged in by this link once, within {VALID_S / 60:g} minutes:\n\n  {link(address, code)}\n")
    else:
        how = f" (a link that logs in: {_shell_command()} console)" if needs_key else ""
        say(f"Console: {address}/console{how}\n")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _shell_command() -> str:
    """How to run this program in a shell: its name if the shell finds it, otherwise its path."""
    beside = Path(sys.executable).with_name("armarium")
    return "armarium" if shutil.which("armarium") or not beside.exists() else _quoted(beside)
