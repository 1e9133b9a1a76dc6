"""The store's tools: each is a method of the service."""

from __future__ import annotations

from typing import Any, Final

import orjson

from armarium.capabilities.store.errors import InvalidOffset, InvalidPath, InvalidQuery, ResourceBusy, StoreError
from armarium.capabilities.store.service import Store
from armarium.foundation.errors import ArmariumError, DeadlineExceeded, InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import DeclaredTool, ErrorStyle, declare_tool

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
READS = _EVERY | {"read_only": True, "idempotent": True}
_CHANGES = _EVERY | {"destructive": True}

TOOLS: Final[tuple[DeclaredTool[Store], ...]] = (
    declare_tool("file_stat", Store.stat, title="Metadata of a path", **READS),
    declare_tool("file_read", Store.read, title="Read a stored file", **READS),
    declare_tool(
        "file_write", Store.write, title="Write a stored file", content_fields=frozenset({"content"}), **_CHANGES
    ),
    declare_tool("file_delete", Store.delete, title="Delete stored files", **_CHANGES),
    declare_tool(
        "file_rename", Store.rename, title="Rename stored files", **_CHANGES | {"subject": ("project", "from_path")}
    ),
    declare_tool("file_list", Store.list_entries, title="List stored files", **READS),
    declare_tool(
        "file_search",
        Store.search,
        title="Search stored files",
        is_search=True,
        content_fields=frozenset({"query"}),
        **READS | {"subject": ("project", "path_prefix")},
    ),
    declare_tool("file_history", Store.list_versions, title="Versions of a stored file", **READS),
    declare_tool("file_restore", Store.restore, title="Restore a version", **_CHANGES),
    declare_tool("file_purge", Store.purge, title="Delete earlier versions for good", idempotent=True, **_CHANGES),
)
