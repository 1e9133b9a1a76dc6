"""The store's routes, and the tools that only they offer: what people need to browse the store, and agents do not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from armarium.capabilities.store import arguments
from armarium.capabilities.store.errors import Conflict
from armarium.capabilities.store.files import browse, listings, reads
from armarium.capabilities.store.model import Content, DeletedFiles, EntriesPage, IndexedStat, Projects, Scope, Sent
from armarium.capabilities.store.service import Store
from armarium.capabilities.store.tools import READS
from armarium.capabilities.store.validation import checked_inner_path, checked_number, checked_path, name_of
from armarium.foundation.byte_transfers import ByteSource, transfer_of
from armarium.foundation.refs import FileRef
from armarium.foundation.routes import RawFiles, Route, bind_routes, declare_route
from armarium.foundation.security.access import Access
from armarium.foundation.tools import Call, DeclaredTool, ToolSpec, declare_tool, unbounded

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


_EXTENDING: Final[tuple[tuple[str, DeclaredTool[StoreBrowser]], ...]] = (
    ("file_stat", declare_tool("file_stat_indexed", StoreBrowser.stat, title="Metadata and index state", **READS)),
    ("file_read", declare_tool("file_read_version", StoreBrowser.read, title="Read a version", **READS)),
    ("file_list", declare_tool("file_list_page", StoreBrowser.list_entries, title="List by pages", **READS)),
    ("file_list", declare_tool("file_projects", StoreBrowser.list_projects, title="List projects", **READS)),
    ("file_history", declare_tool("file_deleted", StoreBrowser.list_deleted, title="List deleted files", **READS)),
    (
        "file_read",
        declare_tool("file_send", StoreBrowser.send, title="Download a file", deadline_s=unbounded, **READS),
    ),
)
"""The contract fixes the schemas of the others. Each of these is offered if the tool that it extends is."""
ROUTE_TOOLS: Final = tuple(tool for _, tool in _EXTENDING)

_AT_PATH = frozenset({"path"})
# PUT must be idempotent, and appending is not.
_WHOLE_FILE = {"mode": "TRUNCATE", "offset": 0}
ROUTES: Final = (
    declare_route("GET", "/store", "file_projects", "List projects", at_root=True),
    declare_route("GET", "/{project}/files", "file_list_page", "List files and directories"),
    declare_route("GET", "/{project}/deleted", "file_deleted", "List deleted files"),
    declare_route("GET", "/{project}/stat", "file_stat_indexed", "Get the metadata of a path"),
    declare_route("GET", "/{project}/file", "file_read_version", "Read a file, a part or a version of it"),
    declare_route("PUT", "/{project}/file", "file_write", "Write a whole file", query=_AT_PATH, presets=_WHOLE_FILE),
    declare_route("PATCH", "/{project}/file", "file_write", "Append to a file, or replace bytes of it", query=_AT_PATH),
    declare_route("DELETE", "/{project}/file", "file_delete", "Delete a file or a directory"),
    declare_route("GET", "/{project}/history", "file_history", "List the stored versions of a file"),
    declare_route("POST", "/{project}/restore", "file_restore", "Restore an earlier version of a file"),
    declare_route("POST", "/{project}/purge", "file_purge", "Delete earlier versions and deleted files for good"),
    declare_route("POST", "/{project}/rename", "file_rename", "Rename or move a file or a directory"),
    declare_route("GET", "/{project}/search", "file_search", "Search by meaning and by words"),
)
"""The JSON API. Paths are below that of the store."""


def tools_for_routes(store: Store, access: Access, offered: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The tools that only routes offer, for a store that offers these tools."""
    names, browser = {tool.name for tool in offered}, StoreBrowser(store)
    return [tool.bind(browser, access) for extended, tool in _EXTENDING if extended in names]


def routes_to(tools: Iterable[ToolSpec]) -> list[Route]:
    """The routes to these tools, which need not be all."""
    offered = {tool.name: tool for tool in tools}
    return bind_routes([route for route in ROUTES if route.tool in offered], offered.values())


def raw_files(tools: Iterable[ToolSpec]) -> RawFiles | None:
    """The bytes of files, by references such as `store://notes/a.md`; None if files cannot be read."""
    send = next((tool for tool in tools if tool.name == "file_send"), None)
    return None if send is None else RawFiles("store", _named_by, send)


def _named_by(ref: FileRef) -> Mapping[str, str]:
    return {"project": ref.space, "path": f"/{ref.path}"}
