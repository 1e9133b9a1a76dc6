"""The manifest of the store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from armarium.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Sequence

    from armarium.capabilities.store.settings import StoreSettings
    from armarium.capability import Capability, CheckResult, Facilities
    from armarium.command_line.host import CommandGroups
    from armarium.foundation.tools import ToolSpec

_INSTRUCTIONS = (
    "The store keeps text files for you across sessions, in projects; nobody else sees them. file_write keeps, "
    "file_read, file_list and file_stat look, file_rename and file_delete change, file_search finds chunks by "
    "meaning and by words, a moment after they are written. Paths begin with / and directories make themselves. "
    "Branch on the error's code; file_history and file_restore bring back what was overwritten."
)


def settings_model() -> type[StoreSettings]:
    """The model of its section."""
    from armarium.capabilities.store.settings import StoreSettings

    return StoreSettings


@asynccontextmanager
async def open_capability(settings: StoreSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The capability, for as long as the block runs."""
    from armarium.capabilities.store.database.heartbeat import Heartbeat
    from armarium.capabilities.store.lifespan import open_store
    from armarium.capabilities.store.source import StoreSource
    from armarium.capabilities.store.tools import TOOLS, store_routes
    from armarium.capability import Capability
    from armarium.foundation.tools import bind_tools

    heartbeat = Heartbeat()
    async with open_store(settings, facilities.state_dir, facilities.metrics.registry, heartbeat) as store:
        tools = bind_tools(TOOLS, store)
        unregister = facilities.sources.register(StoreSource(store)) if settings.search.enabled else None
        try:
            yield Capability("store", tools, _INSTRUCTIONS, store_routes(tools), is_ready=lambda: heartbeat.is_up)
        finally:
            if unregister is not None:
                unregister()


def check_store(section: StoreSettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    """What `armarium doctor` is told."""
    from armarium.capabilities.store.checks import check

    return check(section, facilities)


def described_tools() -> Sequence[ToolSpec]:
    """The tools without a store behind them: no database is started to write a manual."""
    from armarium.capabilities.store.tools import TOOLS

    return [tool.spec for tool in TOOLS]


def store_state_paths(section: StoreSettings) -> list[Path]:
    """The files of a database that is started here, where they are not in the server's state directory."""
    return [Path(section.data_dir).expanduser()] if section.data_dir else []


def add_commands(groups: CommandGroups) -> None:
    """`armarium store`."""
    from armarium.capabilities.store.commands.app import app

    groups.armarium.add_typer(app, name="store")


MANIFEST = Manifest(
    "store",
    settings_model,
    open_capability,
    check=check_store,
    packages=("asyncpg", "cryptography", "httpx2", "numpy", "onnxruntime", "tantivy", "tokenizers"),
    state_paths=store_state_paths,
    declared_tools=described_tools,
    add_commands=add_commands,
)
