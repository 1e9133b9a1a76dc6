"""The manifest of the sandbox."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from armarium.manifest import Manifest, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from armarium.capabilities.sandbox.settings import SandboxSettings
    from armarium.capability import Capability, Facilities
    from armarium.command_line.host import CommandHost
    from armarium.foundation.security.access import AccessRule

_INSTRUCTIONS = (
    "The sandbox lets you work on real files in named roots. Call list_roots first; every tool takes a `root` and a "
    "path relative to it. Find with glob and grep, read with read_file, change with patch_file (small edits) or "
    "write_file. Errors carry a stable `code` and a `hint`."
)


@asynccontextmanager
async def open_capability(section: SandboxSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the sandbox for the duration of the block."""
    from armarium.capabilities.sandbox.knowledge import SandboxKnowledge
    from armarium.capabilities.sandbox.lifespan import open_sandbox
    from armarium.capabilities.sandbox.route_tools import ROUTE_TOOLS, ROUTES, raw_files
    from armarium.capabilities.sandbox.tools import bound_tools
    from armarium.capability import Capability
    from armarium.foundation.routes import bind_routes
    from armarium.foundation.security.access import Access
    from armarium.foundation.tools import bind_tools

    async with open_sandbox(section, facilities) as sandbox:
        access = Access("sandbox", section.rule, sandbox.require_resources)
        tools = bound_tools(sandbox, access)
        routes, raw = bind_routes(ROUTES, tools), raw_files(bind_tools(ROUTE_TOOLS, sandbox, access))
        knowledge = SandboxKnowledge(sandbox)
        yield Capability("sandbox", tools, _INSTRUCTIONS, routes, access=access, raw_files=raw, knowledge=knowledge)


def run_mcp_filesystem(host: CommandHost) -> NoReturn:
    from armarium.capabilities.sandbox.commands import main

    main(host)


def readable_directories(section: SandboxSettings) -> Iterable[tuple[str, Path, AccessRule]]:
    """The roots."""
    return [(f"the root {root.name}", Path(os.path.expanduser(root.path)), root.rule) for root in section.roots]


def directory_section(directory: ServedDirectory) -> dict[str, Any]:
    """The directory as the only root."""
    root = {"name": directory.name, "path": str(directory.path), "allowed_tools": ["*"]}
    return {"roots": [root | {"read_only": not directory.agents_may_write}]}


MANIFEST = Manifest(
    "sandbox",
    open_capability,
    readable_directories=readable_directories,
    programs={"mcp-filesystem": run_mcp_filesystem},
    directory_section=directory_section,
)
