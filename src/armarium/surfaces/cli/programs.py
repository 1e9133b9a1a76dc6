"""The entry points of programs that belong to one capability: `mcp-filesystem` and `dir2mcp`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

from armarium.assembly import MANIFESTS
from armarium.command_line.output import MISUSED, say
from armarium.surfaces.cli.host import Host


def mcp_filesystem() -> NoReturn:
    """Run the sandbox alone, as its contract specifies."""
    # Load the server before the program confines its process to the roots.
    import_module("armarium.server")
    _run("mcp-filesystem")


def dir2mcp() -> NoReturn:
    """Run the corpus alone, as its contract specifies."""
    _run("dir2mcp")


def _run(program: str) -> NoReturn:
    for manifest in MANIFESTS:
        if program in manifest.programs:
            manifest.programs[program](Host())
    say(f"{program}: this installation does not contain the capability of this program")
    sys.exit(MISUSED)
