"""`armarium console`: prints or opens the address of the console, with a link that logs in."""

from __future__ import annotations

import html
import os
import secrets
import sys
import time
import webbrowser
from contextlib import suppress
from pathlib import Path

from armarium.command_line.output import say, show, show_json
from armarium.foundation.errors import ArmariumError
from armarium.foundation.files.state_files import fresh_file, make_private_directory
from armarium.surfaces.cli.running_servers import RunningServer, running_servers
from armarium.surfaces.console.links import VALID_S, OwnerLinks, link
from armarium.surfaces.console.page import NOT_BUILT, is_built

_DIRECTORY = "console-redirects"


class NoConsole(ArmariumError):
    """No running server has a console at this address."""

    code = "NO_CONSOLE"


def show_console(state_dir: Path, *, port: int | None, open_browser: bool, as_json: bool) -> None:
    """Print the address of the console. At a terminal it is a link that logs in the user of this command."""
    server = _chosen(running_servers(state_dir), port)
    if not is_built():
        say(NOT_BUILT)
    if open_browser:
        _open(state_dir, link_for(server, state_dir))
        say(f"opened {server.address}/console in the browser")
    elif as_json:
        show_json({"url": f"{server.address}/console"})
    elif not server.needs_key or not sys.stdout.isatty():
        show(f"{server.address}/console")
        if server.needs_key:
            say("a link that logs in is printed at a terminal only; --open opens one")
    else:
        show(link_for(server, state_dir))
        say(f"This link logs in once, within {VALID_S / 60:g} minutes.")


def link_for(server: RunningServer, state_dir: Path) -> str:
    """A link that logs in as the owner of the server."""
    return link(server.address, OwnerLinks(state_dir).create()) if server.needs_key else f"{server.address}/console"


def _chosen(servers: list[RunningServer], port: int | None) -> RunningServer:
    matching = [each for each in servers if port is None or each.address.endswith(f":{port}")]
    if not matching:
        where = "" if port is None else f" on port {port}"
        raise NoConsole(f"no server with a console runs{where}", hint="start one: armarium up")
    if len(matching) > 1:
        others = ", ".join(each.address for each in matching[1:])
        say(f"this is the newest of {len(matching)} servers; --port chooses another: {others}")
    return matching[0]


def _open(state_dir: Path, url: str) -> None:
    """Open the link through a file that only this user can read: command lines are visible to every user."""
    directory = state_dir / _DIRECTORY
    make_private_directory(directory)
    for file in directory.iterdir():
        with suppress(FileNotFoundError):
            if time.time() - file.stat(follow_symlinks=False).st_mtime > VALID_S:
                file.unlink()
    page = directory / f"{secrets.token_hex(8)}.html"
    redirect = f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(url)}"><title>Armarium</title>'
    with fresh_file(page, redirect.encode()) as fresh:
        os.replace(fresh, page)
    if not webbrowser.open(page.as_uri()):
        page.unlink()
        raise NoConsole("there is no browser to open", hint="run `armarium console` at a terminal, and copy its link")
