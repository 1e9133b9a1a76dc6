"""The store's tools: arguments in, one service call, answer out. The docstrings are what a model reads."""

from __future__ import annotations

import orjson

from armarium.capabilities.store import answers, arguments
from armarium.capabilities.store.errors import InvalidOffset, InvalidPath, InvalidQuery, ResourceBusy, StoreError
from armarium.capabilities.store.service import Store
from armarium.foundation.errors import ArmariumError, DeadlineExceeded, InvalidArgument
from armarium.foundation.schema import Json
from armarium.foundation.tools import Call, ErrorStyle, ToolSpec, local_tool

_PATH_ARGUMENTS = frozenset({"project", "path", "from_path", "to_path", "path_prefix"})
_NUMBER_ARGUMENTS = frozenset({"offset", "length", "depth", "limit", "version", "if_version"})


def store_tools(store: Store) -> list[ToolSpec]:
    """All nine tools over one store."""

    async def file_stat(call: Call, args: arguments.AtPath) -> answers.Stat:
        """Tell what is at a path of a project: a FILE with its size in bytes, times and `version`, a DIRECTORY, or
        nothing (`exists` false, which is no error). Directories exist because files lie below them: they have size 0,
        no creation time, and are as new as the newest file below (in very large ones, among the first by path)."""
        return answers.stat_answer(await store.stat(call, args.project, args.path))

    async def file_read(call: Call, args: arguments.ReadArgs) -> answers.Content:
        """Read a text file, or the bytes [`offset`, `offset` + `length`) of it. Offsets count bytes, as file_search
        gives them. A slice never holds half a character: what is cut at its ends is left out, and `offset` and `end`
        in the answer say which bytes came. Read on from `end` until it equals `size`; nothing is lost or doubled. A
        slice too short for the character it begins with brings that character whole. Behind the end there is "".
        Use file_search or file_list first when you do not know the path."""
        return answers.content_answer(await store.read(call, args.project, args.path, args.offset, args.length))

    async def file_write(call: Call, args: arguments.WriteArgs) -> answers.WriteDone:
        """Write text to a file of a project; file and directories are made as needed. `mode` APPEND (the default) adds
        to the end, TRUNCATE replaces the whole file, OVERWRITE replaces bytes from `offset` on and keeps what is
        behind; it must begin and end between characters. To be sure that nobody changed the file since you read it,
        give its `version` as `if_version`; to never replace one, set `create_only`. What a write replaces can be
        brought back with file_restore. It is searchable a moment later."""
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

    async def file_delete(call: Call, args: arguments.DeleteArgs) -> answers.Deleted:
        """Delete a file, or with `recursive` a directory and all files in it. A single file can be brought back with
        file_restore. The root of a project ("") can be deleted only where the operator allows it."""
        deleted = await store.delete(
            call,
            args.project,
            args.path,
            recursive=args.recursive,
            if_version=args.if_version,
            request_id=args.request_id,
        )
        return {"deleted_count": deleted}

    async def file_rename(call: Call, args: arguments.RenameArgs) -> answers.Renamed:
        """Rename or move a file, or a directory with everything in it, at once or not at all. Only a file can replace
        another file, with `overwrite`; a directory needs a path where nothing is. Earlier versions move along."""
        moved = await store.rename(
            call, args.project, args.from_path, args.to_path, overwrite=args.overwrite, request_id=args.request_id
        )
        return {"moved_count": moved}

    async def file_list(call: Call, args: arguments.ListArgs) -> answers.Entries:
        """List files and directories below a path, sorted by path, byte by byte. `depth` 1 lists what is directly in
        it, 2 one level more; 0 tells about the path alone. `has_more` means that `limit` cut the list: list a
        directory further down, or with a larger limit. A project without files has an empty root."""
        path = "" if args.path == "/" else args.path
        return answers.entries_answer(await store.list_entries(call, args.project, path, args.depth, args.limit))

    async def file_search(call: Call, args: arguments.SearchArgs) -> answers.Chunks:
        """Find chunks in the files of a project by meaning and by words, best first, each with its file and the
        bytes it stands at, which file_read takes as `offset` and `length` to read around it. A file just written is
        found a moment later; one that was deleted is never found."""
        return answers.chunks_answer(await store.search(call, args.project, args.query, args.path_prefix, args.limit))

    async def file_history(call: Call, args: arguments.AtPath) -> answers.Versions:
        """List the versions of a file that are kept, newest first, with size and times; `current` is the file as it is
        now. Also for a file that was deleted. Bring one back with file_restore."""
        return answers.versions_answer(await store.versions(call, args.project, args.path))

    async def file_restore(call: Call, args: arguments.RestoreArgs) -> answers.WriteDone:
        """Write the content of an earlier `version` of a file again, as file_history lists them; also when the file was
        deleted. That is a new version: nothing gets lost. Restoring the current version changes nothing."""
        done = await store.restore(call, args.project, args.path, args.version, request_id=args.request_id)
        return {"bytes_written": done.bytes_written, "version": done.version, "size": done.size}

    every = {"errors": STORE_ERRORS, "subject": ("project", "path")}
    reads = every | {"read_only": True, "idempotent": True}
    content = frozenset({"content"})
    return [
        local_tool("file_stat", file_stat, title="What is at a path", **reads),
        local_tool("file_read", file_read, title="Read a stored file", text=_content_then_facts, **reads),
        local_tool(
            "file_write", file_write, title="Write a stored file", content_fields=content, destructive=True, **every
        ),
        local_tool("file_delete", file_delete, title="Delete stored files", destructive=True, **every),
        local_tool(
            "file_rename",
            file_rename,
            title="Rename stored files",
            destructive=True,
            **every | {"subject": ("project", "from_path")},
        ),
        local_tool("file_list", file_list, title="List stored files", **reads),
        local_tool(
            "file_search",
            file_search,
            title="Search stored files",
            is_search=True,
            content_fields=frozenset({"query"}),
            **reads | {"subject": ("project", "path_prefix")},
        ),
        local_tool("file_history", file_history, title="Versions of a stored file", **reads),
        local_tool("file_restore", file_restore, title="Bring a version back", destructive=True, **every),
    ]


def _content_then_facts(answer: Json) -> list[str]:
    """A file reads best as it is; what is known about it follows as JSON."""
    facts = {name: value for name, value in answer.items() if name != "content"}
    return [answer["content"], orjson.dumps(facts).decode()]


def _contract_error(error: ArmariumError) -> ArmariumError:
    """What the server found wrong with a call, under one of the contract's codes.

    The argument decides: a path or project is INVALID_PATH, a number INVALID_OFFSET; the query and everything the
    contract has no code for (content, encoding, mode, switches, arguments nobody knows) is INVALID_QUERY.
    """
    if isinstance(error, DeadlineExceeded):
        hint = "try again in a moment; if this was a change, look first whether it was made"
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
    """The same for whoever reads only text, and what to do next."""
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
