"""The manifest of the store."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from armarium.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from armarium.capabilities.store.settings import StoreSettings
    from armarium.capability import Capability, Facilities
    from armarium.command_line.host import CommandGroups

_INSTRUCTIONS = (
    "The store holds text files for you across sessions, grouped in projects; other callers cannot see them. "
    "file_write creates a file, appends to it or replaces its content. file_read returns content, file_list and "
    "file_stat return metadata. file_rename and file_delete move and remove files. file_search finds chunks by meaning "
    "and by words, a moment after they are written. file_history lists the versions of a file, file_restore restores "
    "one. Paths begin with /, and missing directories are created. Branch on the error's code."
)


@asynccontextmanager
async def open_capability(section: StoreSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """Open the store for the duration of the block, and register it as a search source."""
    from armarium.capabilities.store.knowledge import StoreKnowledge
    from armarium.capabilities.store.lifespan import Heartbeat, open_store
    from armarium.capabilities.store.route_tools import raw_files, routes_to, tools_for_routes
    from armarium.capabilities.store.source import StoreSource
    from armarium.capabilities.store.tools import TOOLS
    from armarium.capability import Capability
    from armarium.foundation.tools import bind_tools

    heartbeat = Heartbeat()
    async with open_store(section, facilities.state_dir, facilities.metrics.registry, heartbeat) as store:
        access = replace(store.access.whole, require_resources=store.access.require_resources)
        tools = [tool for tool in bind_tools(TOOLS, store, access) if section.tools.offers(tool.name)]
        searches = section.search.enabled and section.tools.offers("file_search")
        unregister = facilities.sources.register(StoreSource(store)) if searches else None
        try:
            further = tools_for_routes(store, access, tools)
            yield Capability(
                "store",
                tools,
                _INSTRUCTIONS,
                routes_to([*tools, *further]),
                access=access,
                is_ready=lambda: heartbeat.is_up,
                raw_files=raw_files(further),
                knowledge=StoreKnowledge(store),
            )
        finally:
            if unregister is not None:
                unregister()


def state_paths(section: StoreSettings) -> list[Path]:
    """The data directory of a database that the store starts, if it is not in the server's state directory, and the
    files with secrets that the address of another database names."""
    from urllib.parse import parse_qsl, urlsplit

    from armarium.foundation.settings.file_secrets import revealed

    parameters = parse_qsl(urlsplit(revealed(section.dsn) or "").query)
    named = [value for name, value in parameters if name in ("passfile", "sslkey")]
    return [Path(file).expanduser() for file in (section.data_dir, *named) if file]


def destinations(section: StoreSettings) -> list[tuple[str, str]]:
    """The hosted embedder and the reranker."""
    embedding, rerank = section.embedding, section.search.rerank
    found = [(embedding.base_url, "embeddings")] if section.search.enabled and embedding.provider != "local" else []
    return found + ([(rerank.endpoint, "reranking")] if section.search.enabled and rerank.is_used else [])


def add_commands(groups: CommandGroups) -> None:
    from armarium.capabilities.store.commands.app import app

    groups.armarium.add_typer(app, name="store")


MANIFEST = Manifest(
    "store",
    open_capability,
    packages=("asyncpg", "cryptography", "httpx2", "numpy", "onnxruntime", "tantivy", "tokenizers"),
    state_paths=state_paths,
    destinations=destinations,
    add_commands=add_commands,
)
