"""The tools for bytes of files. Only `/api/raw` offers them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import anyio
from typing_extensions import TypedDict

from armarium.capabilities.sandbox import arguments, results
from armarium.capabilities.sandbox.changes.uploads import Upload, require_size
from armarium.capabilities.sandbox.reads.open_files import OpenFile
from armarium.capabilities.sandbox.service import Sandbox
from armarium.foundation.byte_transfers import ByteSource, transfer_of
from armarium.foundation.files.names import escape_name
from armarium.foundation.refs import FileRef
from armarium.foundation.routes import RawFiles
from armarium.foundation.security.access import Access
from armarium.foundation.tools import Call, declare_tool


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


def _unbounded(given: Mapping[str, object]) -> float:
    """A transfer takes as long as its client; a client that stops is noticed by the surface."""
    return math.inf


SEND = declare_tool(
    "send_file", send_file, title="Download a file", read_only=True, idempotent=True, deadline_s=_unbounded
)
RECEIVE = declare_tool("receive_file", receive_file, title="Upload a file", deadline_s=_unbounded)


def raw_files(sandbox: Sandbox, access: Access) -> RawFiles:
    """The bytes of files in roots, by references such as `root://work/a.png`."""
    return RawFiles("root", _arguments, SEND.bind(sandbox, access), RECEIVE.bind(sandbox, access))


def declared_raw_files() -> RawFiles:
    """The same without a service behind it."""
    return RawFiles("root", _arguments, SEND.spec, RECEIVE.spec)


def _arguments(ref: FileRef) -> Mapping[str, str]:
    return {"root": ref.space, "path": escape_name(ref.path)}
