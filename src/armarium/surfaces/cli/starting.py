"""Starts servers: settings from flags, file and environment, and what a person is told once the server answers."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from armarium.assembly import MANIFESTS, Settings, installed, open_authenticator, registry_chores, token_path
from armarium.foundation.errors import ConfigError
from armarium.foundation.events import Events
from armarium.foundation.identity import read_token
from armarium.foundation.settings import CoreSettings
from armarium.foundation.settings_loader import load_settings
from armarium.surfaces.cli.addresses import reached_from_here
from armarium.surfaces.cli.locations import CONFIG_FILE, given_file
from armarium.surfaces.cli.output import say, show_json
from armarium.surfaces.cli.running import run_http, run_stdio
from armarium.surfaces.mcp.serving import listen

if TYPE_CHECKING:
    from armarium.surfaces.cli.indexing_progress.watching import Watching

_log = logging.getLogger("armarium")

TOKEN_VARIABLE = "ARMARIUM_TOKEN"  # noqa: S105 the name of a variable, not a secret


def directory_settings(
    directory: Path,
    *,
    write: bool,
    index: bool = True,
    registry: bool = True,
    name: str = "workspace",
    flags: Mapping[str, Any] | None = None,
) -> CoreSettings:
    """The settings behind `up DIR` and `stdio DIR`: one directory, to work in, to ask, and to keep track of."""
    given = dict(flags or {})
    path = os.path.abspath(directory.expanduser())
    root = {"name": name, "path": path, "allowed_tools": ["*"], "read_only": not write}
    given["sandbox.roots"] = [root]
    writable = os.access(path, os.W_OK)
    if registry and _has_registry(Path(path), writable=writable):
        given["registry.project"] = path
    settings = load_settings(Settings, environ=os.environ, flags=given)
    if not index or not installed("corpus"):
        return settings
    given["corpus.root"] = path
    if not writable:
        # A directory that may not be written is indexed all the same; the index is then kept with our own state.
        name_of_path = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        given["corpus.state_dir"] = str(settings.state_path() / "corpora" / name_of_path)
    return load_settings(Settings, environ=os.environ, flags=given)


def _has_registry(directory: Path, *, writable: bool) -> bool:
    """Whether what is known about a directory's files can be served. Nobody asked for it by name, so one that cannot
    be used is told and does not keep the rest from starting."""
    chores = registry_chores(directory)
    problem = chores.problem()
    if problem is not None:
        say(f"going on without the registry: {problem.message}\nhint: {problem.hint}; or start with --no-registry")
        return False
    # It is kept in the directory: where nothing can be, one that is there already is read.
    return writable or chores.exists


def file_settings(config: Path | None, flags: Mapping[str, Any] | None = None) -> CoreSettings:
    """The settings of the platform; without a file named, ./armarium.yaml."""
    file = given_file(config)
    if file is None:
        raise ConfigError(
            f"there is no {CONFIG_FILE} here",
            hint=f"name one with --config, or write one: armarium config print --dir . > {CONFIG_FILE}",
        )
    return load_settings(Settings, file, environ=os.environ, flags=flags)


def up(settings: CoreSettings, *, as_json: bool) -> None:
    """Serve one directory until Ctrl-C, and say how to connect to it."""
    callers = open_authenticator(settings)
    listening = _listen_somewhere(settings)
    events = Events()
    progress = _shown_progress(settings, events) if not as_json else None

    def announce(address: str) -> None:
        connection = _Connection(settings, address)
        root = getattr(settings, "sandbox").roots[0]  # noqa: B009 the section is the assembly's to declare
        if as_json:
            show_json(connection.as_json() | {"root": root.name, "directory": root.path, "read_only": root.read_only})
            return
        _tell(connection, f"{root.path} ({'read-only' if root.read_only else 'read and write'}) as {root.name!r}")
        if progress is not None:
            progress.begin()

    try:
        run_http(settings, announce, authenticator=callers, listening=listening, events=events)
    finally:
        if progress is not None:
            progress.end()


def _shown_progress(settings: CoreSettings, events: Events) -> Watching | None:
    """How indexing goes, where there is something to index."""
    if getattr(settings, "corpus", None) is None:
        return None
    from armarium.surfaces.cli.indexing_progress.watching import progress_on_stderr

    return progress_on_stderr(events)


def serve(settings: CoreSettings, config: Path, *, as_json: bool) -> None:
    """Serve the platform until a signal; what is worth knowing goes to the log."""

    def announce(address: str) -> None:
        connection = _Connection(settings, address)
        sections = [
            (manifest, section)
            for manifest in MANIFESTS
            if (section := getattr(settings, manifest.name, None)) is not None
        ]
        capabilities = [manifest.name for manifest, section in sections if manifest.is_enabled(section)]
        known = {"capabilities": capabilities, "auth": settings.security.auth, "config_file": str(config)}
        _log.info("listening", extra={"address": address} | connection.as_json(with_config=False) | known)
        if as_json:
            show_json(connection.as_json() | known)

    run_http(settings, announce)


def stdio(settings: CoreSettings) -> None:
    """Serve the client that started us."""
    if sys.stdin.isatty():
        say("speaking MCP on standard input and output; this is for a client to start: armarium install --help")
    run_stdio(settings)


def _listen_somewhere(settings: CoreSettings) -> socket.socket:
    """The port that was asked for; when nobody asked for one, a free one if the usual is taken."""
    host, port = settings.server.host, settings.server.port
    try:
        return listen(host, port)
    except ConfigError as error:
        taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
        if not taken or "port" in settings.server.model_fields_set:
            raise
    listening = listen(host, 0)
    say(f"port {port} is taken; using {listening.getsockname()[1]} instead (--port chooses one)")
    return listening


class _Connection:
    """How a client reaches the server."""

    def __init__(self, settings: CoreSettings, address: str) -> None:
        self.url = f"{reached_from_here(address)}/mcp"
        self.token_file = token_path(settings)
        self.needs_key = settings.security.auth != "none"

    def as_json(self, *, with_config: bool = True) -> dict[str, Any]:
        """For programs; the token itself stays in its file."""
        described = {"url": self.url, "token_file": str(self.token_file) if self.token_file else None}
        return described | ({"config": self.config(f"${{{TOKEN_VARIABLE}}}")} if with_config else {})

    def config(self, token: str) -> dict[str, Any]:
        """The entry that most clients take."""
        entry: dict[str, Any] = {"type": "http", "url": self.url}
        if self.needs_key:
            entry["headers"] = {"Authorization": f"Bearer {token}"}
        return {"mcpServers": {"armarium": entry}}


def _tell(connection: _Connection, what: str) -> None:
    say(f"Armarium serves {what}\n")
    say(f"  endpoint  {connection.url}")
    if connection.token_file:
        say(f"  token     {connection.token_file}")
    say("\nClient configuration:\n")
    token = f"${{{TOKEN_VARIABLE}}}"
    # The token is a secret: it is shown to a person, and never written where a log collects it.
    in_person = sys.stderr.isatty() and sys.stdout.isatty()
    if connection.token_file and in_person:
        token = read_token(connection.token_file)
    say(json.dumps(connection.config(token), indent=2))
    if connection.token_file and not in_person:
        say(f'\nwhere {TOKEN_VARIABLE} is the token: export {TOKEN_VARIABLE}="$(cat {_quoted(connection.token_file)})"')
    given_token = f" --token-file {_quoted(connection.token_file)}" if connection.token_file else ""
    say("\nOr let Armarium write it (for cursor, vscode and windsurf as well):\n")
    say(f"  {_typed_command()} install claude-code --scope user --url {connection.url}{given_token}\n")
    say("Stop with Ctrl-C.")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _typed_command() -> str:
    """What a person types to run this program: its name where the shell finds it, otherwise its path."""
    beside = Path(sys.executable).with_name("armarium")
    return "armarium" if shutil.which("armarium") or not beside.exists() else _quoted(beside)
