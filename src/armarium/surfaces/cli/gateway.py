"""`armarium gateway`: what an operator of a gateway can ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from armarium.surfaces.cli.options import AsJson, ConfigFile
from armarium.surfaces.cli.output import show, show_json

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def gateway(context: typer.Context) -> None:
    """Work for the gateway besides serving it."""
    if context.invoked_subcommand is None:
        show(context.get_help())


@app.command("token-key")
def gateway_token_key(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="The server's name in rag-mcp.json.")],
    config: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the key by which one server verifies its capability tokens.

    It is made from gateway.tokens.secret and the name: always the same, and of no use for another server's tokens.

    \b
    armarium gateway token-key lawRag > lawRag.key
    armarium rag-server cases --name lawRag --capability-key-file lawRag.key
    """
    from armarium.assembly import capability_key
    from armarium.surfaces.cli import starting

    key = capability_key(starting.file_settings(config), server)
    show_json({"server": server, "key": key}) if as_json else show(key)
