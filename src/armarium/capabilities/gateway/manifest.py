"""The manifest of the gateway."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from armarium.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence
    from pathlib import Path

    from armarium.capabilities.gateway.settings import GatewaySettings
    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandGroups
    from armarium.foundation.tools import ToolSpec


def settings_model() -> type[GatewaySettings]:
    """The model of the `gateway` section."""
    from armarium.capabilities.gateway.settings import GatewaySettings

    return GatewaySettings


@asynccontextmanager
async def open_capability(section: GatewaySettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the gateway for the duration of the block. A disabled gateway has no tools."""
    from armarium.capabilities.gateway.settings import is_enabled
    from armarium.capability import Capability

    if not is_enabled(section):
        yield Capability("gateway", [], "")
        return
    from armarium.capabilities.gateway.lifespan import open_gateway

    async with open_gateway(section, facilities) as capability:
        yield capability


def check(section: GatewaySettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """Check the settings and the configuration files of the upstreams."""
    from armarium.capabilities.gateway import checks

    return checks.check(section, facilities)


def state_paths(section: GatewaySettings) -> list[Path]:
    """The directories of the upstreams' configuration. These files name programs that the gateway starts."""
    from armarium.capabilities.gateway.settings import config_directory

    config_dir = config_directory(section)
    return [config_dir / "overrides", config_dir / "defaults"]


def declared_tools() -> Sequence[ToolSpec]:
    """The tools, without a gateway behind them."""
    from armarium.capabilities.gateway.tools import TOOLS

    return [tool.spec for tool in TOOLS]


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
    settings_model,
    open_capability,
    check=check,
    state_paths=state_paths,
    declared_tools=declared_tools,
    is_enabled=is_enabled,
    add_commands=add_commands,
)
