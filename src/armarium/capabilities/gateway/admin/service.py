"""Administration of servers: overview, reload, and changes to servers and their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import anyio
import orjson
from anyio import to_thread

from armarium.capabilities.gateway.admin.masks import mask, remaining_masks, unmask
from armarium.capabilities.gateway.config.entries import ServerEntry
from armarium.capabilities.gateway.config.files import (
    SCHEMA_KEY,
    ServerConfig,
    ServerKind,
    override_file,
    parse_entry,
    read_server_config,
    resolve_entries,
)
from armarium.capabilities.gateway.errors import InvalidSource, ServerConfigInvalid
from armarium.capabilities.gateway.servers.live_servers import LiveServers, ReloadResult
from armarium.foundation.files.state_files import replace_file
from armarium.foundation.schema import Json

Entries = dict[str, ServerEntry]


class Administration:
    """Changes are written to the overrides, so that shipped defaults stay unchanged, and apply immediately."""

    def __init__(self, servers: LiveServers) -> None:
        self._servers = servers
        self._lock = anyio.Lock()

    def overview(self) -> Json:
        """All servers with their health, the files in use, and problems of newer files."""
        servers, config = self._servers, self._servers.config
        health = {each.server: each for each in servers.upstreams.health()}
        problem = servers.last_problem
        return {
            "servers": [
                self._describe(kind, name, entry)
                | ({"health": _health_as_json(asdict(health[name]))} if name in health else {"health": None})
                for kind, entries in config.entries.items()
                for name, entry in sorted(entries.items())
            ],
            "files": dict(config.origins),
            "last_reload": servers.last_reload.isoformat(timespec="milliseconds") if servers.last_reload else None,
            "problems": list(problem.problems) if problem else [],
        }

    def server(self, name: str) -> Json:
        """The entry of one server, with possible secrets masked."""
        kind, entry = _find(self._servers.config, name)
        return self._describe(kind, name, entry)

    async def reload(self) -> Json:
        """Reload the configuration files."""
        return _reload_as_json(await self._servers.reload())

    async def put_server(self, name: str, kind: ServerKind, given: Mapping[str, Any]) -> Json:
        """Create or replace a server."""

        def put(entries: Entries) -> None:
            current = entries.get(name)
            unmasked = unmask(given, _entry_as_json(current) if current is not None else {})
            if places := remaining_masks(unmasked):
                problems = tuple(
                    f"`{name}.{place}` is masked, but there is no current value for it" for place in places
                )
                raise ServerConfigInvalid(
                    problems[0],
                    problems=problems,
                    hint="send the value itself, or ${NAME} for an environment variable",
                )
            entries[name] = parse_entry(name, unmasked)

        return await self._change(kind, put)

    async def delete_server(self, name: str) -> Json:
        """Delete a server."""
        kind, _ = _find(self._servers.config, name)

        def delete(entries: Entries) -> None:
            if entries.pop(name, None) is None:
                raise _no_server()

        return await self._change(kind, delete)

    async def put_source(self, name: str, source_id: str, given: Mapping[str, Any]) -> Json:
        """Create or replace the hint about a source of a server."""
        return await self._change_sources(name, source_id, {**given, "id": source_id})

    async def delete_source(self, name: str, source_id: str) -> Json:
        """Delete the hint about a source. The server may still offer the source."""
        return await self._change_sources(name, source_id, None)

    async def _change_sources(self, name: str, source_id: str, given: Mapping[str, Any] | None) -> Json:
        kind, _ = _find(self._servers.config, name)

        def change(entries: Entries) -> None:
            if name not in entries:
                raise _no_server()
            current = _entry_as_json(entries[name])
            sources = [each for each in current.get("dataSources", ()) if each["id"] != source_id]
            if given is not None:
                sources.append(dict(given))
            elif len(sources) == len(current.get("dataSources", ())):
                raise InvalidSource("the server has no hint about this source", hint="GET /api/admin/mcp lists them")
            entries[name] = parse_entry(name, current | {"dataSources": sources})

        return await self._change(kind, change)

    async def _change(self, kind: ServerKind, change: Callable[[Entries], None]) -> Json:
        """Change the entries of one file, if the resulting configuration is valid as a whole."""
        async with self._lock:
            directory = self._servers.config_dir
            config = await to_thread.run_sync(read_server_config, directory)
            entries = dict(config.entries[kind])
            change(entries)
            resolve_entries({**config.entries, kind: entries})
            schema = {SCHEMA_KEY: config.schemas[kind]} if kind in config.schemas else {}
            content = schema | {name: _entry_as_json(entry) for name, entry in sorted(entries.items())}
            file = override_file(directory, kind)

            def write() -> None:
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

            try:
                await to_thread.run_sync(write)
            except OSError as error:
                raise ServerConfigInvalid(
                    f"overrides/{file.name} cannot be written: {error.strerror}",
                    hint="give the server write permission",
                ) from error
            return _reload_as_json(await self._servers.reload())

    def _describe(self, kind: ServerKind, name: str, entry: ServerEntry) -> Json:
        return {"name": name, "kind": kind, "entry": mask(_entry_as_json(entry))}


def _entry_as_json(entry: ServerEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _health_as_json(health: dict[str, Any]) -> Json:
    health.pop("pid")
    return {name: value for name, value in health.items() if value is not None}


def _find(config: ServerConfig, name: str) -> tuple[ServerKind, ServerEntry]:
    for kind, entries in config.entries.items():
        if name in entries:
            return kind, entries[name]
    raise _no_server()


def _no_server() -> InvalidSource:
    return InvalidSource("there is no such server", hint="GET /api/admin/mcp lists them")


def _reload_as_json(reloaded: ReloadResult) -> Json:
    changes = {kind: list(names) for kind, names in asdict(reloaded.changes).items()}
    return {"at": reloaded.at.isoformat(timespec="milliseconds"), **changes}
