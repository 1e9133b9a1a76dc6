"""Describes a file by its id in the registry and the number of its findings."""

from __future__ import annotations

from typing import Any

from armarium.capabilities.registry.errors import NotFound
from armarium.capabilities.registry.service import Registry
from armarium.foundation.files.names import escape_name
from armarium.foundation.known_files import LocatedFile
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call


class RegistryKnowledge:
    """Files of the project. The registry has no references of its own."""

    scheme = None

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def locate(self, call: Call, ref: FileRef) -> LocatedFile:
        raise AssertionError("no reference has this scheme")

    async def describe(self, call: Call, file: LocatedFile) -> dict[str, Any] | None:
        # Names that are not text are not registered.
        if file.host_path is None or escape_name(file.host_path) != file.host_path:
            return None
        try:
            record = await self._registry.find_file(file.host_path)
            summary = (await self._registry.get_file(record["id"]))["summary"]
        except NotFound:
            return None
        return {"id": record["id"], "path": record["path"], "findings": summary}
