"""The way into the store. What it is made of is imported when it is opened: other servers do not wait for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from armarium.capabilities.store.settings import StoreSettings
from armarium.capability import Capability, CheckResult, Facilities, Manifest
from armarium.foundation.tools import ToolSpec, bind_tools

_INSTRUCTIONS = (
    "The store keeps text files for you across sessions, in projects; nobody else sees them. file_write keeps, "
    "file_read, file_list and file_stat look, file_rename and file_delete change, file_search finds chunks by "
    "meaning and by words, a moment after they are written. Paths begin with / and directories make themselves. "
    "Branch on the error's code; file_history and file_restore bring back what was overwritten."
)


@asynccontextmanager
async def open_capability(settings: StoreSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The capability, for as long as the block runs."""
    from armarium.capabilities.store.database.heartbeat import Heartbeat
    from armarium.capabilities.store.lifespan import open_store
    from armarium.capabilities.store.source import StoreSource
    from armarium.capabilities.store.tools import TOOLS, store_routes

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


MANIFEST = Manifest(
    "store",
    StoreSettings,
    open_capability,
    check=check_store,
    packages=("asyncpg", "cryptography", "httpx2", "numpy", "onnxruntime", "tantivy", "tokenizers"),
    state_paths=store_state_paths,
    declared_tools=described_tools,
)
