"""The sandbox's routes, and the tools for bytes of files, which only `/api/raw` offers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

import anyio
from typing_extensions import TypedDict

from armarium.capabilities.sandbox import arguments, results
from armarium.capabilities.sandbox.changes.uploads import Upload, require_size
from armarium.capabilities.sandbox.reads.open_files import OpenFile
from armarium.capabilities.sandbox.service import Sandbox
from armarium.foundation.byte_transfers import ByteSource, transfer_of
from armarium.foundation.files.names import escape_name
from armarium.foundation.refs import FileRef
from armarium.foundation.routes import RawFiles, declare_route
from armarium.foundation.tools import Call, ToolSpec, declare_tool, unbounded


class UploadArgs(arguments.AtPath):
    create_only: bool = False
    """Fail with ALREADY_EXISTS if the file exists."""
    if_match: arguments.Sha256 | None = None
    """Replace only if the file still has this SHA-256; otherwise CONFLICT."""


class Sent(TypedDict):
    root: str
    path: str
    size: int
    sent: int


async def send_file(sandbox: Sandbox, call: Call, args: arguments.AtPath) -> Sent:
    """Send the bytes of a file, or a range of them. Requires read_file on the root."""
    transfer, sandbox = transfer_of(call), sandbox.for_caller(call.principal)

    async def open_file() -> OpenFile:
        root = sandbox.roots.enter(args.root, "read_file", args.path)
        return await sandbox.workers.run(call.caller, OpenFile, root, args.path)

    file = await sandbox.retried(open_file)
    read = partial(sandbox.workers.run, call.caller, file.read)
    sent = await transfer.send(ByteSource(file.path.rpartition("/")[2], file.size, file.tag, read))
    return Sent(root=args.root, path=escape_name(file.path), size=file.size, sent=sent)


async def receive_file(sandbox: Sandbox, call: Call, args: UploadArgs) -> results.Written:
    """Receive the bytes of a file, and replace or create it when all of them are there. Missing parent directories are
    created. An upload that fails changes nothing. Requires write_file on the root."""
    transfer, sandbox = transfer_of(call), sandbox.for_caller(call.principal)
    workers, most = sandbox.workers, sandbox.max_upload_bytes

    async def begin() -> Upload:
        root = sandbox.roots.enter(args.root, "write_file", args.path, writing=True)
        require_size(transfer.length or 0, most)
        new = partial(Upload, root, args.path, exclusive=args.create_only, max_bytes=most)
        return await workers.change(call.caller, new)

    upload = await sandbox.retried(begin)
    try:
        async for block in transfer.blocks():
            await workers.change(call.caller, upload.append, block)
        context = sandbox.context(call, args.if_match)
        path, result = await sandbox.retried(lambda: workers.change(call.caller, upload.place, context))
    finally:
        with anyio.CancelScope(shield=True):
            await workers.run(call.caller, upload.close)
    root = sandbox.roots.require_known(args.root)
    await sandbox.events.changed(call.principal, root, path, "created" if result["created"] else "modified")
    return result


ROUTE_TOOLS: Final = (
    declare_tool(
        "send_file", send_file, title="Download a file", read_only=True, idempotent=True, deadline_s=unbounded
    ),
    declare_tool("receive_file", receive_file, title="Upload a file", deadline_s=unbounded),
)

_AT_PATH = frozenset({"path"})
# PUT must be idempotent, and appending is not.
_WHOLE_FILE, _NEW_FILE = {"mode": "overwrite"}, {"mode": "create_only"}
_FILE = "/{root}/file"
ROUTES: Final = (
    declare_route("GET", "/roots", "list_roots", "List the roots"),
    declare_route("GET", "/{root}/folder", "list_folder", "List a folder"),
    declare_route("POST", "/{root}/folder", "create_folder", "Create a folder", query=_AT_PATH),
    declare_route("DELETE", "/{root}/folder", "remove_folder", "Delete a folder and everything in it"),
    declare_route("GET", _FILE, "read_file", "Read a text file or a part of it"),
    declare_route("PUT", _FILE, "write_file", "Write a whole file", query=_AT_PATH, presets=_WHOLE_FILE),
    declare_route("POST", _FILE, "write_file", "Create a file", success=201, query=_AT_PATH, presets=_NEW_FILE),
    declare_route("PATCH", _FILE, "patch_file", "Apply a unified diff to a file", query=_AT_PATH),
    declare_route("DELETE", _FILE, "remove_file", "Delete a file"),
    declare_route("POST", "/{root}/files", "read_files", "Read several files"),
    declare_route("GET", "/{root}/stat", "stat_file", "Get the metadata of a path"),
    declare_route("GET", "/{root}/hash", "hash_file", "Hash a file"),
    declare_route("GET", "/{root}/permissions", "permissions_file", "Get owner and mode of a path"),
    declare_route("GET", "/{root}/glob", "glob", "Find files by name"),
    declare_route("GET", "/{root}/grep", "grep", "Search the content of files"),
    declare_route("POST", "/copy", "copy", "Copy a file or a folder"),
    declare_route("POST", "/move", "move", "Move or rename a file or a folder"),
)
"""The JSON API, below the path of the sandbox."""


def raw_files(tools: Iterable[ToolSpec]) -> RawFiles:
    """The bytes of files in roots, by references such as `root://work/a.png`. The tools are `ROUTE_TOOLS`."""
    return RawFiles("root", _arguments, *tools)


def _arguments(ref: FileRef) -> Mapping[str, str]:
    return {"root": ref.space, "path": escape_name(ref.path)}
