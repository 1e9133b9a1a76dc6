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
    "The store holds text files for you across sessions, grouped in projects; other callers cannot see them. "
    "file_write creates a file, appends to it or replaces its content. file_read returns content, file_list and "
    "file_stat return metadata. file_rename and file_delete move and remove files. file_search finds chunks by meaning "
    "and by words, a moment after they are written. file_history lists the versions of a file, file_restore restores "
    "one. Paths begin with /, and missing directories are created. Branch on the error's code."
)


def settings_model() -> type[StoreSettings]:
    from armarium.capabilities.store.settings import StoreSettings

    return StoreSettings


@asynccontextmanager
async def open_capability(section: StoreSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the store for the duration of the block, and register it as a search source."""
    from armarium.capabilities.store.lifespan import Heartbeat, open_store
    from armarium.capabilities.store.source import StoreSource
    from armarium.capabilities.store.tools import TOOLS, store_routes
    from armarium.capability import Capability
    from armarium.foundation.tools import bind_tools

    heartbeat = Heartbeat()
    async with open_store(section, facilities.state_dir, facilities.metrics.registry, heartbeat) as store:
        tools = bind_tools(TOOLS, store)
        unregister = facilities.sources.register(StoreSource(store)) if section.search.enabled else None
        try:
            yield Capability("store", tools, _INSTRUCTIONS, store_routes(tools), is_ready=lambda: heartbeat.is_up)
        finally:
            if unregister is not None:
                unregister()


def check(section: StoreSettings | None, facilities: Facilities) -> Iterable[CheckResult]:
    from armarium.capabilities.store import checks

    return checks.check(section, facilities)


def state_paths(section: StoreSettings) -> list[Path]:
    """The data directory of a database that the store starts, if it is not in the server's state directory."""
    return [Path(section.data_dir).expanduser()] if section.data_dir else []


def declared_tools() -> Sequence[ToolSpec]:
    """The tools, without a store behind them."""
    from armarium.capabilities.store.tools import TOOLS

    return [tool.spec for tool in TOOLS]


def add_commands(groups: CommandGroups) -> None:
    from armarium.capabilities.store.commands.app import app

    groups.armarium.add_typer(app, name="store")


MANIFEST = Manifest(
    "store",
    settings_model,
    open_capability,
    check=check,
    packages=("asyncpg", "cryptography", "httpx2", "numpy", "onnxruntime", "tantivy", "tokenizers"),
    state_paths=state_paths,
    declared_tools=declared_tools,
    add_commands=add_commands,
)
