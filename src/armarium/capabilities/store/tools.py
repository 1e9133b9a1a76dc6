"""The store's tools and their HTTP routes: each tool is a method of the service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from armarium.capabilities.store.browser import StoreBrowser, unbounded
from armarium.capabilities.store.errors import InvalidOffset, InvalidPath, InvalidQuery, ResourceBusy, StoreError
from armarium.capabilities.store.service import Store
from armarium.foundation.errors import ArmariumError, DeadlineExceeded, InvalidArgument
from armarium.foundation.refs import FileRef
from armarium.foundation.routes import RawFiles, Route
from armarium.foundation.schema import Json
from armarium.foundation.security.access import Access
from armarium.foundation.tools import DeclaredTool, ErrorStyle, ToolSpec, declare_tool

_PATH_ARGUMENTS = frozenset({"project", "path", "from_path", "to_path", "path_prefix"})
_NUMBER_ARGUMENTS = frozenset({"offset", "length", "depth", "limit", "version", "if_version"})


def _contract_error(error: ArmariumError) -> ArmariumError:
    """Translate an error of the server into one with a code of the contract.

    The argument decides: a path or project is INVALID_PATH, a number INVALID_OFFSET; the query and everything without a
    code in the contract (content, encoding, mode, flags, unknown arguments) is INVALID_QUERY.
    """
    if isinstance(error, DeadlineExceeded):
        hint = "try again in a moment; before you repeat a change, check whether it was made"
        return ResourceBusy(error.message, hint=hint)
    if not isinstance(error, InvalidArgument):
        return error
    argument = str(error.details.get("field") or error.details.get("argument") or "").partition(".")[0]
    kind: type[StoreError] = InvalidQuery
    if argument in _PATH_ARGUMENTS:
        kind = InvalidPath
    elif argument in _NUMBER_ARGUMENTS:
        kind = InvalidOffset
    return kind(error.message, hint=error.hint)


def _render(error: ArmariumError) -> Json:
    body: Json = {"code": error.code, "message": error.message, "retryable": error.retryable}
    wait_ms = error.details.get("retry_after_ms")
    return body if wait_ms is None else body | {"retry_after_ms": wait_ms}


def _as_text(error: ArmariumError) -> str:
    """The error and its hint, for clients that read only text."""
    body = _render(error)
    return orjson.dumps(body | {"hint": error.hint} if error.hint else body).decode()


STORE_ERRORS = ErrorStyle(
    _render,
    {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "Stable; branch on this, not on the message."},
            "message": {"type": "string"},
            "retryable": {"type": "boolean", "description": "Whether the same call can succeed later."},
            "retry_after_ms": {"type": "integer", "description": "How long to wait before trying again."},
        },
        "required": ["code", "message", "retryable"],
    },
    text=_as_text,
    translate=_contract_error,
)

_EVERY: dict[str, Any] = {"errors": STORE_ERRORS, "subject": ("project", "path")}
_READS = _EVERY | {"read_only": True, "idempotent": True}
_CHANGES = _EVERY | {"destructive": True}

TOOLS: Final[tuple[DeclaredTool[Store], ...]] = (
    declare_tool("file_stat", Store.stat, title="Metadata of a path", **_READS),
    declare_tool("file_read", Store.read, title="Read a stored file", **_READS),
    declare_tool(
        "file_write", Store.write, title="Write a stored file", content_fields=frozenset({"content"}), **_CHANGES
    ),
    declare_tool("file_delete", Store.delete, title="Delete stored files", **_CHANGES),
    declare_tool(
        "file_rename", Store.rename, title="Rename stored files", **_CHANGES | {"subject": ("project", "from_path")}
    ),
    declare_tool("file_list", Store.list_entries, title="List stored files", **_READS),
    declare_tool(
        "file_search",
        Store.search,
        title="Search stored files",
        is_search=True,
        content_fields=frozenset({"query"}),
        **_READS | {"subject": ("project", "path_prefix")},
    ),
    declare_tool("file_history", Store.list_versions, title="Versions of a stored file", **_READS),
    declare_tool("file_restore", Store.restore, title="Restore a version", **_CHANGES),
    declare_tool("file_purge", Store.purge, title="Delete earlier versions for good", idempotent=True, **_CHANGES),
)


_FOR_ROUTES: Final[tuple[tuple[str, DeclaredTool[StoreBrowser]], ...]] = (
    ("file_stat", declare_tool("file_stat_indexed", StoreBrowser.stat, title="Metadata and index state", **_READS)),
    ("file_read", declare_tool("file_read_version", StoreBrowser.read, title="Read a version", **_READS)),
    ("file_list", declare_tool("file_list_page", StoreBrowser.list_entries, title="List by pages", **_READS)),
    ("file_list", declare_tool("file_projects", StoreBrowser.list_projects, title="List projects", **_READS)),
    ("file_history", declare_tool("file_deleted", StoreBrowser.list_deleted, title="List deleted files", **_READS)),
    (
        "file_read",
        declare_tool("file_send", StoreBrowser.send, title="Download a file", deadline_s=unbounded, **_READS),
    ),
)
"""Tools that only routes offer, because the contract fixes the schemas of the others. Each is offered if the tool that
it extends is."""


def tools_for_routes(store: Store, access: Access, offered: Iterable[ToolSpec]) -> list[ToolSpec]:
    """The tools that only routes offer, for a store that offers these tools."""
    names, browser = {tool.name for tool in offered}, StoreBrowser(store)
    return [tool.bind(browser, access) for extended, tool in _FOR_ROUTES if extended in names]


def store_routes(tools: Iterable[ToolSpec]) -> list[Route]:
    """The HTTP routes of these tools, below the path of the store."""
    offered = {each.name: each for each in tools}
    tool = {each.spec.name: each.spec for each in (*TOOLS, *(each for _, each in _FOR_ROUTES))} | offered
    at_path = frozenset({"path"})
    # PUT must be idempotent, and appending is not.
    whole_file = {"mode": "TRUNCATE", "offset": 0}
    routes = [
        Route("GET", "/store", tool["file_projects"], "List projects", at_root=True),
        Route("GET", "/{project}/files", tool["file_list_page"], "List files and directories"),
        Route("GET", "/{project}/deleted", tool["file_deleted"], "List deleted files"),
        Route("GET", "/{project}/stat", tool["file_stat_indexed"], "Get the metadata of a path"),
        Route("GET", "/{project}/file", tool["file_read_version"], "Read a file, a part or a version of it"),
        Route("PUT", "/{project}/file", tool["file_write"], "Write a whole file", query=at_path, presets=whole_file),
        Route(
            "PATCH", "/{project}/file", tool["file_write"], "Append to a file, or replace bytes of it", query=at_path
        ),
        Route("DELETE", "/{project}/file", tool["file_delete"], "Delete a file or a directory"),
        Route("GET", "/{project}/history", tool["file_history"], "List the stored versions of a file"),
        Route("POST", "/{project}/restore", tool["file_restore"], "Restore an earlier version of a file"),
        Route("POST", "/{project}/purge", tool["file_purge"], "Delete earlier versions and deleted files for good"),
        Route("POST", "/{project}/rename", tool["file_rename"], "Rename or move a file or a directory"),
        Route("GET", "/{project}/search", tool["file_search"], "Search by meaning and by words"),
    ]
    return [route for route in routes if route.tool.name in offered]


def declared_routes() -> list[Route]:
    """All routes, without a service behind them."""
    return store_routes(tool.spec for tool in (*TOOLS, *(each for _, each in _FOR_ROUTES)))


def declared_raw_files() -> RawFiles | None:
    """What `raw_files` gives, without a service behind it."""
    return raw_files(each.spec for _, each in _FOR_ROUTES)


def raw_files(tools: Iterable[ToolSpec]) -> RawFiles | None:
    """The bytes of files, by references such as `store://notes/a.md`; None if files cannot be read."""
    send = next((tool for tool in tools if tool.name == "file_send"), None)
    return None if send is None else RawFiles("store", _named_by, send)


def _named_by(ref: FileRef) -> Mapping[str, str]:
    return {"project": ref.space, "path": f"/{ref.path}"}
