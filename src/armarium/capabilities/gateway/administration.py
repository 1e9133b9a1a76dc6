"""What administrators do: see how the servers are, load the files again, and change servers and their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import anyio
import orjson
from anyio import to_thread

from armarium.capabilities.gateway.errors import RegistryInvalid
from armarium.capabilities.gateway.live import LiveServers, Reloaded
from armarium.capabilities.gateway.masks import masked, still_masked, unmasked
from armarium.capabilities.gateway.refusals import InvalidSource
from armarium.capabilities.gateway.server_entries import ServerEntry
from armarium.capabilities.gateway.server_files import (
    SCHEMA_KEY,
    RegistryFile,
    ServerKind,
    checked_entry,
    override_file,
    read_registry,
    resolved,
)
from armarium.foundation.files.state_files import replace_file
from armarium.foundation.schema import Json

Entries = dict[str, ServerEntry]


class Administration:
    """Changes go to the overrides, so that what an installation ships stays as it is, and are in force at once."""

    def __init__(self, servers: LiveServers) -> None:
        self._servers = servers
        self._turn = anyio.Lock()

    def overview(self) -> Json:
        """All servers with how they are, which files count, and why newer ones do not."""
        servers, registry = self._servers, self._servers.registry
        health = {each.server: each for each in servers.upstreams.health()}
        problem = servers.last_problem
        return {
            "servers": [
                self._shown(kind, name, entry)
                | ({"health": _known(asdict(health[name]))} if name in health else {"health": None})
                for kind, entries in registry.entries.items()
                for name, entry in sorted(entries.items())
            ],
            "files": dict(registry.origins),
            "last_reload": servers.last_reload.isoformat(timespec="milliseconds") if servers.last_reload else None,
            "problems": list(problem.problems) if problem else [],
        }

    def server(self, name: str) -> Json:
        """One server as its file has it, without what may be secret."""
        kind, entry = _found(self._servers.registry, name)
        return self._shown(kind, name, entry)

    async def reload(self) -> Json:
        """Take over the files as they are now."""
        return _told(await self._servers.reload())

    async def put_server(self, name: str, kind: ServerKind, given: Mapping[str, Any]) -> Json:
        """Make a server, or replace what its file says."""

        def put(entries: Entries) -> None:
            known = entries.get(name)
            meant = unmasked(given, _written(known) if known is not None else {})
            if places := still_masked(meant):
                problems = tuple(f"`{name}.{place}` is masked, and stands for no value there is" for place in places)
                raise RegistryInvalid(
                    problems[0],
                    problems=problems,
                    hint="write the value itself, or ${NAME} for a variable of the environment",
                )
            entries[name] = checked_entry(name, meant)

        return await self._change(kind, put)

    async def delete_server(self, name: str) -> Json:
        """Take a server out."""
        kind, _ = _found(self._servers.registry, name)

        def delete(entries: Entries) -> None:
            if entries.pop(name, None) is None:
                raise _no_server()

        return await self._change(kind, delete)

    async def put_source(self, name: str, source_id: str, given: Mapping[str, Any]) -> Json:
        """Make a hint about a source of a server, or replace the one there is."""
        return await self._change_sources(name, source_id, {**given, "id": source_id})

    async def delete_source(self, name: str, source_id: str) -> Json:
        """Take a hint out; the server may offer the source all the same."""
        return await self._change_sources(name, source_id, None)

    async def _change_sources(self, name: str, source_id: str, given: Mapping[str, Any] | None) -> Json:
        kind, _ = _found(self._servers.registry, name)

        def change(entries: Entries) -> None:
            if name not in entries:
                raise _no_server()
            written = _written(entries[name])
            sources = [each for each in written.get("dataSources", ()) if each["id"] != source_id]
            if given is not None:
                sources.append(dict(given))
            elif len(sources) == len(written.get("dataSources", ())):
                raise InvalidSource("the server has no hint about this source", hint="GET /api/admin/mcp lists them")
            entries[name] = checked_entry(name, written | {"dataSources": sources})

        return await self._change(kind, change)

    async def _change(self, kind: ServerKind, change: Callable[[Entries], None]) -> Json:
        """Change the entries of one file, if the result is a registry that can be used as a whole."""
        async with self._turn:
            directory = self._servers.config_dir
            registry = await to_thread.run_sync(read_registry, directory)
            entries = dict(registry.entries[kind])
            change(entries)
            resolved({**registry.entries, kind: entries})
            schema = {SCHEMA_KEY: registry.schemas[kind]} if kind in registry.schemas else {}
            content = schema | {name: _written(entry) for name, entry in sorted(entries.items())}
            file = override_file(directory, kind)

            def write() -> None:
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

            try:
                await to_thread.run_sync(write)
            except OSError as error:
                raise RegistryInvalid(
                    f"overrides/{file.name} cannot be written: {error.strerror}", hint="let the server write there"
                ) from error
            return _told(await self._servers.reload())

    def _shown(self, kind: ServerKind, name: str, entry: ServerEntry) -> Json:
        return {"name": name, "kind": kind, "entry": masked(_written(entry))}


def _written(entry: ServerEntry) -> dict[str, Any]:
    return entry.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def _known(health: dict[str, Any]) -> Json:
    health.pop("pid")
    return {name: value for name, value in health.items() if value is not None}


def _found(registry: RegistryFile, name: str) -> tuple[ServerKind, ServerEntry]:
    for kind, entries in registry.entries.items():
        if name in entries:
            return kind, entries[name]
    raise _no_server()


def _no_server() -> InvalidSource:
    return InvalidSource("there is no such server", hint="GET /api/admin/mcp lists them")


def _told(reloaded: Reloaded) -> Json:
    changes = {kind: list(names) for kind, names in asdict(reloaded.changes).items()}
    return {"at": reloaded.at.isoformat(timespec="milliseconds"), **changes}
