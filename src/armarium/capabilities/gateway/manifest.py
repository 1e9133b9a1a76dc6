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

_INSTRUCTIONS = (
    "The gateway searches sources of many servers at once. rag_discover_resources lists the sources you may use, "
    "rag_get_raw_results finds passages in those you name, rag_get_synthesized_results answers from them with "
    "citations. Sources that fail are told in meta_data.errors; the others answer all the same."
)


def settings_model() -> type[GatewaySettings]:
    """The model of its section."""
    from armarium.capabilities.gateway.settings import GatewaySettings

    return GatewaySettings


@asynccontextmanager
async def open_capability(settings: GatewaySettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The capability, for as long as the block runs; without tools while it is switched off."""
    from armarium.capabilities.gateway.settings import is_enabled
    from armarium.capability import Capability

    if not is_enabled(settings):
        yield Capability("gateway", [], "")
        return
    from armarium.capabilities.gateway.admin.tools import administration_routes
    from armarium.capabilities.gateway.lifespan import open_gateway
    from armarium.capabilities.gateway.tools import bind_rag_tools, bind_session_tools, gateway_routes

    async with open_gateway(settings, facilities) as opened:
        tools = bind_rag_tools(opened.gateway, opened.rate_limit)
        routes = [
            *gateway_routes([*tools, *bind_session_tools(opened.gateway)]),
            *administration_routes(opened.administration, admin_group=settings.admin_group),
        ]
        yield Capability("gateway", tools, _INSTRUCTIONS, routes, opened.tool_provider)


def described_tools() -> Sequence[ToolSpec]:
    """The tools without any server behind them."""
    from armarium.capabilities.gateway.tools import TOOLS

    return [tool.spec for tool in TOOLS]


def check_gateway(section: GatewaySettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """What `armarium doctor` is told."""
    from armarium.capabilities.gateway.checks import check

    return check(section, facilities)


def gateway_state_paths(section: GatewaySettings) -> list[Path]:
    """The folders with the files of servers: whoever could write there could have any program started."""
    from armarium.capabilities.gateway.settings import config_directory

    config_dir = config_directory(section)
    return [config_dir / "overrides", config_dir / "defaults"]


def gateway_is_enabled(section: GatewaySettings) -> bool:
    """Whether neither the settings nor the environment disable it."""
    from armarium.capabilities.gateway.settings import is_enabled

    return is_enabled(section)


def add_commands(groups: CommandGroups) -> None:
    """`armarium gateway`, `armarium rag-server` and `armarium config servers-schema`."""
    from armarium.capabilities.gateway.commands.app import app, print_servers_schema, rag_server

    groups.armarium.add_typer(app, name="gateway")
    groups.armarium.command("rag-server")(rag_server)
    groups.config.command("servers-schema")(print_servers_schema)


MANIFEST = Manifest(
    "gateway",
    settings_model,
    open_capability,
    check=check_gateway,
    state_paths=gateway_state_paths,
    declared_tools=described_tools,
    add_commands=add_commands,
    is_enabled=gateway_is_enabled,
)
