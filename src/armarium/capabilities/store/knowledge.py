"""Describes a file of the store by its metadata."""

from __future__ import annotations

from typing import Any

from armarium.capabilities.store.arguments import AtPath
from armarium.capabilities.store.route_tools import StoreBrowser
from armarium.capabilities.store.service import Store
from armarium.capabilities.store.validation import checked_inner_path, checked_project
from armarium.foundation.known_files import LocatedFile
from armarium.foundation.refs import FileRef
from armarium.foundation.security.access import READ
from armarium.foundation.tools import Call


class StoreKnowledge:
    """Stored files. They are on no file system."""

    scheme = "store"

    def __init__(self, store: Store) -> None:
        self._access, self._browser = store.access, StoreBrowser(store)

    async def locate(self, call: Call, ref: FileRef) -> LocatedFile:
        self._access.require(call.principal, READ, checked_project(ref.space))
        checked_inner_path(f"/{ref.path}")
        return LocatedFile(ref)

    async def describe(self, call: Call, file: LocatedFile) -> dict[str, Any] | None:
        if file.ref.scheme != self.scheme:
            return None
        project, path = file.ref.space, f"/{file.ref.path}"
        stat = await self._browser.stat(call, AtPath(project=project, path=path))
        return {"project": project, "path": path, "ref": str(file.ref), **stat} if stat["exists"] else None
