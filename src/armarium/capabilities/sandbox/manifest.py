"""The manifest of the sandbox."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from armarium.manifest import Manifest, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from armarium.capabilities.sandbox.settings import SandboxSettings
    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandHost
    from armarium.foundation.tools import ToolSpec

_INSTRUCTIONS = (
    "The sandbox lets you work on real files in named roots. Call list_roots first; every tool takes a `root` and a "
    "path relative to it. Find with glob and grep, read with read_file, change with patch_file (small edits) or "
    "write_file. Errors carry a stable `code` and a `hint`."
)


def settings_model() -> type[SandboxSettings]:
    """The model of the `sandbox` section."""
    from armarium.capabilities.sandbox.settings import SandboxSettings

    return SandboxSettings


@asynccontextmanager
async def open_capability(section: SandboxSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the sandbox for the duration of the block."""
    from armarium.capabilities.sandbox.lifespan import open_sandbox
    from armarium.capabilities.sandbox.tools import TOOLS
    from armarium.capability import Capability
    from armarium.foundation.tools import bind_tools

    async with open_sandbox(section, facilities) as sandbox:
        yield Capability("sandbox", bind_tools(TOOLS, sandbox), _INSTRUCTIONS)


def check(section: SandboxSettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """Check the kernel and the roots."""
    from armarium.capabilities.sandbox import checks

    return checks.check(section, facilities)


def declared_tools() -> Sequence[ToolSpec]:
    """The tools, without a sandbox behind them."""
    from armarium.capabilities.sandbox.tools import TOOLS

    return [tool.spec for tool in TOOLS]


def run_mcp_filesystem(host: CommandHost) -> NoReturn:
    """Run the `mcp-filesystem` program."""
    from armarium.capabilities.sandbox.commands import main

    main(host)


def directory_section(directory: ServedDirectory) -> dict[str, Any]:
    """The directory as the only root."""
    root = {"name": directory.name, "path": str(directory.path), "allowed_tools": ["*"]}
    return {"roots": [root | {"read_only": not directory.agents_may_write}]}


MANIFEST = Manifest(
    "sandbox",
    settings_model,
    open_capability,
    check=check,
    declared_tools=declared_tools,
    programs={"mcp-filesystem": run_mcp_filesystem},
    directory_section=directory_section,
)
