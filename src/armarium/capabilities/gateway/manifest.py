"""The manifest of the gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from armarium.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable
    from pathlib import Path

    from armarium.capabilities.gateway.settings import GatewaySettings
    from armarium.capability import Capability, Facilities
    from armarium.command_line.host import CommandGroups
    from armarium.foundation.security.access import AccessRule
    from armarium.foundation.security.trust import Confirmable


@asynccontextmanager
async def open_capability(section: GatewaySettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the gateway for the duration of the block."""
    from armarium.capabilities.gateway.lifespan import open_gateway

    async with open_gateway(section, facilities) as capability:
        yield capability


def state_paths(section: GatewaySettings) -> list[Path]:
    """The directories of the upstreams' configuration. These files name programs that the gateway starts."""
    from armarium.capabilities.gateway.settings import config_directory

    config_dir = config_directory(section)
    return [config_dir / "overrides", config_dir / "defaults"]


def access_rules(section: GatewaySettings) -> Iterable[tuple[str, AccessRule]]:
    """The groups of the gateway, and of each server and source in the configuration files."""
    from armarium.capabilities.gateway import checks

    return [*section.rules(), *checks.server_rules(section)]


def confirmable_files(directory: Path, section: GatewaySettings | None) -> Iterable[Confirmable]:
    """The servers in the directory's configuration files: programs that the gateway starts, and addresses."""
    from armarium.capabilities.gateway.config.files import files_to_confirm
    from armarium.capabilities.gateway.settings import GatewaySettings

    return files_to_confirm(directory, (section or GatewaySettings()).config_dir)


def destinations(section: GatewaySettings) -> Iterable[tuple[str, str]]:
    """The servers with an address, and the models that answer and rerank."""
    from armarium.capabilities.gateway import checks

    return checks.destinations(section)


def is_enabled(section: GatewaySettings) -> bool:
    """Whether neither the settings nor the environment disable the gateway."""
    from armarium.capabilities.gateway import settings

    return settings.is_enabled(section)


def add_commands(groups: CommandGroups) -> None:
    """Add `armarium gateway`, `armarium rag-server` and `armarium config servers-schema`."""
    from armarium.capabilities.gateway.commands.app import app, print_servers_schema, rag_server

    groups.armarium.add_typer(app, name="gateway")
    groups.armarium.command("rag-server")(rag_server)
    groups.config.command("servers-schema")(print_servers_schema)


MANIFEST = Manifest(
    "gateway",
    open_capability,
    state_paths=state_paths,
    access_rules=access_rules,
    confirmable_files=confirmable_files,
    destinations=destinations,
    is_enabled=is_enabled,
    add_commands=add_commands,
)
