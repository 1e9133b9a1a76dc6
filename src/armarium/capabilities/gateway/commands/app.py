"""Declares `armarium gateway`, `armarium rag-server` and `armarium config servers-schema`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from armarium.command_line import run as command
from armarium.command_line.options import AsJson, ConfigFile, LogLevel
from armarium.command_line.output import Misuse, show, show_help, show_json

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def gateway(context: typer.Context) -> None:
    """Administer the gateway."""
    show_help(context)


@app.command("token-key")
def gateway_token_key(
    context: typer.Context,
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The server's name in rag-mcp.json.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the key with which one server verifies its capability tokens.

    It is derived from gateway.tokens.secret and the name. It does not verify tokens of other servers.

    \b
    armarium gateway token-key lawRag > lawRag.key
    armarium rag-server cases --name lawRag --capability-key-file lawRag.key
    """
    from armarium.capabilities.gateway.settings import token_secret
    from armarium.capabilities.gateway.tokens.capability_tokens import configured_server_key

    key = configured_server_key(token_secret(context.obj.load_settings(config).gateway), server)
    show_json({"server": server, "key": key}) if as_json else show(key)


def rag_server(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to search.")],
    http: Annotated[
        int | None,
        typer.Option("--http", metavar="PORT", min=0, max=65535, help="Serve over HTTP on this port instead of stdio."),
    ] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = None,
    auth: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="With --http: auto, file:PATH or none, as for `armarium up`."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of this server in the gateway. [default: the name of DIR]"),
    ] = None,
    capability_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Require a capability token for NAME; the key is that of `armarium gateway token-key`.",
        ),
    ] = None,
    index_dir: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Directory of the index. [default: DIR/.dir2mcp]")
    ] = None,
    log_level: LogLevel = None,
    as_json: AsJson = False,
) -> None:
    """Serve the three RAG tools over one directory, for a gateway or any MCP client.

    \b
    armarium rag-server docs               over stdio, started by a gateway
    armarium rag-server docs --http 8092   over HTTP, with a token
    armarium rag-server cases --name lawRag --capability-key-file lawRag.key
    """
    from armarium.capabilities.gateway.commands.rag_server import serve_rag_server

    if http is None and (host is not None or auth is not None or as_json):
        raise Misuse(
            "--host, --auth and --json go with --http",
            hint="over stdio, only the process that started the server can call it",
        )
    flags = {
        "server.port": http,
        "server.host": host,
        "security.auth": auth,
        "telemetry.log_level": log_level,
        "corpus.state_dir": None if index_dir is None else os.path.abspath(index_dir.expanduser()),
    }
    serve = partial(
        serve_rag_server, context.obj, directory, flags, name=name, key_file=capability_key_file, as_json=as_json
    )
    command.run_until_interrupted(serve)


def print_servers_schema() -> None:
    """Print the JSON schema of `rag-mcp.json` and `mcp.json`.

    Editors use it to complete and validate files that refer to it.

    \b
    armarium config servers-schema > config/servers.schema.json
    {"$schema": "../servers.schema.json", "docsRag": {"command": "armarium", "args": ["rag-server", "docs"]}}
    """
    from armarium.capabilities.gateway.config.schema import server_config_schema

    show_json(server_config_schema())
