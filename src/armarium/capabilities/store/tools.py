"""The store's tools and their HTTP routes. The docstring of each function is the description that a model reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import orjson

from armarium.capabilities.store import answers, arguments
from armarium.capabilities.store.errors import InvalidOffset, InvalidPath, InvalidQuery, ResourceBusy, StoreError
from armarium.capabilities.store.service import Store
from armarium.foundation.errors import ArmariumError, DeadlineExceeded, InvalidArgument
from armarium.foundation.routes import Route
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, DeclaredTool, ErrorStyle, ToolSpec, declare_tool

_PATH_ARGUMENTS = frozenset({"project", "path", "from_path", "to_path", "path_prefix"})
_NUMBER_ARGUMENTS = frozenset({"offset", "length", "depth", "limit", "version", "if_version"})


async def file_stat(store: Store, call: Call, args: arguments.AtPath) -> answers.Stat:
    """Get the metadata of a path: a FILE with its size in bytes, times and `version`, a DIRECTORY, or `exists` false,
    which is not an error. A directory exists while files are below it: its size is 0, it has no creation time, and
    `updated_at` is that of the newest file below (in very large ones, among the first by path)."""
    return answers.stat_answer(await store.stat(call, args.project, args.path))


async def file_read(store: Store, call: Call, args: arguments.ReadArgs) -> answers.Content:
    """Read a text file, or the bytes [`offset`, `offset` + `length`) of it. Offsets count bytes, as in file_search. A
    slice contains only complete characters: partial ones at its ends are left out, and `offset` and `end` in the
    result are the bytes returned. Continue at `end` until it equals `size`; nothing is lost or repeated. A slice
    shorter than its first character returns that character. Beyond the end the content is "". Use file_search or
    file_list first if you do not know the path."""
    return answers.content_answer(await store.read(call, args.project, args.path, args.offset, args.length))


async def file_write(store: Store, call: Call, args: arguments.WriteArgs) -> answers.WriteDone:
    """Write text to a file of a project; the file and its directories are created as needed. `mode` APPEND (the
    default) adds to the end, TRUNCATE replaces the whole file, OVERWRITE replaces bytes from `offset` on and keeps
    the rest; it must begin and end between characters. To detect changes since you read the file, pass its
    `version` as `if_version`; to never replace a file, set `create_only`. file_restore undoes a write. The text is
    searchable a moment later."""
    done = await store.write(
        call,
        args.project,
        args.path,
        args.content,
        args.mode,
        args.offset,
        encoding=args.content_encoding,
        create_only=args.create_only,
        if_version=args.if_version,
        request_id=args.request_id,
    )
    return {"bytes_written": done.bytes_written, "version": done.version, "size": done.size}


async def file_delete(store: Store, call: Call, args: arguments.DeleteArgs) -> answers.Deleted:
    """Delete a file, or with `recursive` a directory and all files in it. file_restore restores a single file. The
    root of a project ("") can only be deleted if the operator allows it."""
    deleted = await store.delete(
        call,
        args.project,
        args.path,
        recursive=args.recursive,
        if_version=args.if_version,
        request_id=args.request_id,
    )
    return {"deleted_count": deleted}


async def file_rename(store: Store, call: Call, args: arguments.RenameArgs) -> answers.Renamed:
    """Rename or move a file, or a directory with everything in it, atomically. Only a file can replace another file,
    with `overwrite`; a directory needs an unused path. Earlier versions move too."""
    moved = await store.rename(
        call, args.project, args.from_path, args.to_path, overwrite=args.overwrite, request_id=args.request_id
    )
    return {"moved_count": moved}


async def file_list(store: Store, call: Call, args: arguments.ListArgs) -> answers.Entries:
    """List files and directories below a path, sorted bytewise by path. `depth` 1 lists the direct children, 2 one
    level more; 0 returns only the path itself. `has_more` means that `limit` truncated the list: list a
    subdirectory, or use a larger limit. A project without files has an empty root."""
    path = "" if args.path == "/" else args.path
    return answers.entries_answer(await store.list_entries(call, args.project, path, args.depth, args.limit))


async def file_search(store: Store, call: Call, args: arguments.SearchArgs) -> answers.Chunks:
    """Search the files of a project by meaning and by words. Returns the best chunks first, each with its file and
    its byte range, which file_read accepts as `offset` and `length` to read around it. A new file is found a moment
    after the write; a deleted file is never found."""
    return answers.chunks_answer(await store.search(call, args.project, args.query, args.path_prefix, args.limit))


async def file_history(store: Store, call: Call, args: arguments.AtPath) -> answers.Versions:
    """List the stored versions of a file, newest first, with size and times; `current` marks the present content. Works
    for deleted files too. Restore one with file_restore."""
    return answers.versions_answer(await store.versions(call, args.project, args.path))


async def file_restore(store: Store, call: Call, args: arguments.RestoreArgs) -> answers.WriteDone:
    """Write the content of an earlier `version` of a file again, as listed by file_history; works for deleted files
    too. This creates a new version, so nothing is lost. Restoring the current version has no effect."""
    done = await store.restore(call, args.project, args.path, args.version, request_id=args.request_id)
    return {"bytes_written": done.bytes_written, "version": done.version, "size": done.size}


def _content_then_metadata(answer: Json) -> list[str]:
    """The content as plain text, then its metadata as JSON."""
    metadata = {name: value for name, value in answer.items() if name != "content"}
    return [answer["content"], orjson.dumps(metadata).decode()]


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
    declare_tool("file_stat", file_stat, title="Metadata of a path", **_READS),
    declare_tool("file_read", file_read, title="Read a stored file", text=_content_then_metadata, **_READS),
    declare_tool(
        "file_write", file_write, title="Write a stored file", content_fields=frozenset({"content"}), **_CHANGES
    ),
    declare_tool("file_delete", file_delete, title="Delete stored files", **_CHANGES),
    declare_tool(
        "file_rename", file_rename, title="Rename stored files", **_CHANGES | {"subject": ("project", "from_path")}
    ),
    declare_tool("file_list", file_list, title="List stored files", **_READS),
    declare_tool(
        "file_search",
        file_search,
        title="Search stored files",
        is_search=True,
        content_fields=frozenset({"query"}),
        **_READS | {"subject": ("project", "path_prefix")},
    ),
    declare_tool("file_history", file_history, title="Versions of a stored file", **_READS),
    declare_tool("file_restore", file_restore, title="Restore a version", **_CHANGES),
)


def store_routes(tools: Iterable[ToolSpec]) -> list[Route]:
    """The HTTP routes of all nine tools, below the path of the store."""
    tool = {each.name: each for each in tools}
    at_path = frozenset({"path"})
    # PUT must be idempotent, and appending is not.
    whole_file = {"mode": "TRUNCATE", "offset": 0}
    return [
        Route("GET", "/{project}/files", tool["file_list"], "List files and directories"),
        Route("GET", "/{project}/stat", tool["file_stat"], "Get the metadata of a path"),
        Route("GET", "/{project}/file", tool["file_read"], "Read a file or a part of it"),
        Route("PUT", "/{project}/file", tool["file_write"], "Write a whole file", query=at_path, presets=whole_file),
        Route(
            "PATCH", "/{project}/file", tool["file_write"], "Append to a file, or replace bytes of it", query=at_path
        ),
        Route("DELETE", "/{project}/file", tool["file_delete"], "Delete a file or a directory"),
        Route("GET", "/{project}/history", tool["file_history"], "List the stored versions of a file"),
        Route("POST", "/{project}/restore", tool["file_restore"], "Restore an earlier version of a file"),
        Route("POST", "/{project}/rename", tool["file_rename"], "Rename or move a file or a directory"),
        Route("GET", "/{project}/search", tool["file_search"], "Search by meaning and by words"),
    ]
