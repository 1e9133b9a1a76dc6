"""What people need to browse the store, and agents do not: only routes offer it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from armarium.capabilities.store import arguments
from armarium.capabilities.store.errors import Conflict
from armarium.capabilities.store.files import browse, listings, reads
from armarium.capabilities.store.model import Content, DeletedFiles, EntriesPage, IndexedStat, Projects, Scope, Sent
from armarium.capabilities.store.service import Store
from armarium.capabilities.store.validation import checked_inner_path, checked_number, checked_path, name_of
from armarium.foundation.byte_transfers import ByteSource, transfer_of
from armarium.foundation.tools import Call

_LARGEST_FILE = 2**30


class StoreBrowser:
    """Pages of listings, projects, earlier content and bytes. The methods are tools; their docstrings describe them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def stat(self, call: Call, args: arguments.AtPath) -> IndexedStat:
        """Get the metadata of a path as file_stat does and, for a file, whether it can be found by a search."""
        database, scope = self._store.database, self._store.admitted(call, args.project)
        stat: IndexedStat = {**await reads.stat_path(database, scope, args.path)}
        if stat["type"] == "FILE" and self._store.settings.search.enabled:
            stat = {**stat, **await browse.index_state(database, scope, args.path)}
        return stat

    async def read(self, call: Call, args: arguments.ReadVersionArgs) -> Content:
        """Read a text file, or bytes of it, as file_read does; also a stored earlier version."""
        database, scope = self._store.database, self._store.admitted(call, args.project)
        if args.version is None:
            return await reads.read_slice(database, scope, args.path, args.offset, args.length)
        checked_inner_path(args.path)
        version = checked_number("version", args.version, 1)
        offset = min(checked_number("offset", args.offset, 0), _LARGEST_FILE)
        length = checked_number("length", args.length, -1)
        wanted = _LARGEST_FILE if length < 0 else min(length, _LARGEST_FILE)
        text, size = await browse.version_slice(
            database, scope, args.path, version, offset, reads.with_whole_characters(wanted)
        )
        return reads.content_of(text, wanted, offset, size, version)

    async def list_entries(self, call: Call, args: arguments.ListPageArgs) -> EntriesPage:
        """List files and directories below a path as file_list does, page by page."""
        settings, scope = self._store.settings, self._store.admitted(call, args.project)
        path = "" if args.path == "/" else args.path
        limit = settings.list_limit_default if args.limit is None else args.limit
        behind, most = checked_path(args.cursor), settings.list_limit_max
        found = await listings.list_entries(
            self._store.database, scope, path, args.depth, limit, limit_max=most, behind=behind
        )
        page: EntriesPage = {**found}
        if found["has_more"]:
            page["next_cursor"] = found["entries"][-1]["path"]
        return page

    async def list_projects(self, call: Call, args: arguments.ProjectsArgs) -> Projects:
        """List your projects by name: files, bytes, quota, changes that wait for the index, and the time of the last
        change. Up to 10,000 files are counted for each."""
        tenant, settings = self._store.admitted_tenant(call), self._store.settings
        hidden = self._store.access.hidden_from(call.principal)
        return await browse.list_projects(
            self._store.database, tenant, hidden, args.cursor, args.limit, settings.max_project_bytes
        )

    async def list_deleted(self, call: Call, args: arguments.DeletedArgs) -> DeletedFiles:
        """List the deleted files below a path that file_restore can restore, with the version to restore. A page can
        have fewer files than `limit`; continue until there is no `next_cursor`."""
        scope = self._store.admitted(call, args.project)
        path, behind = checked_path(args.path), checked_path(args.cursor)
        return await browse.list_deleted(self._store.database, scope, path, behind, args.limit)

    async def send(self, call: Call, args: arguments.SendArgs) -> Sent:
        """Send the bytes of a file, or a range of them; also of a stored earlier version."""
        transfer, scope = transfer_of(call), self._store.admitted(call, args.project)
        checked_inner_path(args.path)
        if args.version is None:
            facts = await reads.read_slice(self._store.database, scope, args.path, 0, 0)
            version, size = facts["version"], facts["size"]
        else:
            version = checked_number("version", args.version, 1)
            _, size = await browse.version_slice(self._store.database, scope, args.path, version, 0, 0)
        sent = await transfer.send(self._source(scope, args.path, version, size))
        return {"project": scope.project, "path": args.path, "version": version, "size": size, "sent": sent}

    def _source(self, scope: Scope, path: str, version: int, size: int) -> ByteSource:
        async def read(offset: int, length: int) -> bytes:
            block, _ = await browse.version_slice(self._store.database, scope, path, version, offset, length)
            if len(block) < length:
                raise Conflict("the file changed while it was sent", hint="ask for it again", path=path)
            return block

        # A path never has two versions with the same number.
        return ByteSource(name_of(path), size, f"v{version}", read)


def unbounded(given: Mapping[str, object]) -> float:
    """The deadline of a transfer, which takes as long as its client."""
    return math.inf
