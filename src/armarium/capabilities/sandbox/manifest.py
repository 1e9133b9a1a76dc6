"""The manifest of the sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from armarium.manifest import Manifest, ServedDirectory

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    from armarium.capabilities.sandbox.settings import SandboxSettings
    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandHost


def settings_model() -> type[SandboxSettings]:
    """The model of the `sandbox` section."""
    from armarium.capabilities.sandbox.settings import SandboxSettings

    return SandboxSettings


def open_capability(section: SandboxSettings, facilities: Facilities) -> AbstractAsyncContextManager[Capability]:
    """Open the sandbox for the duration of the block."""
    from armarium.capabilities.sandbox.lifespan import open_sandbox

    return open_sandbox(section, facilities)


def check(section: SandboxSettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """Check the kernel and the roots."""
    from armarium.capabilities.sandbox import checks

    return checks.check(section, facilities)


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
    programs={"mcp-filesystem": run_mcp_filesystem},
    directory_section=directory_section,
)
