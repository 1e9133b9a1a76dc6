"""Describes a file by its paths in the roots of the caller."""

from __future__ import annotations

from typing import Any

from armarium.capabilities.sandbox.error_context import checked_path
from armarium.capabilities.sandbox.reads.root_files import stat_file
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.service import Sandbox
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.errors import FileError
from armarium.foundation.files.names import escape_name
from armarium.foundation.known_files import LocatedFile
from armarium.foundation.refs import FileRef
from armarium.foundation.tools import Call

_TOOL = "stat_file"


class SandboxKnowledge:
    """Files of roots. Roots can be nested, so a file can have several paths."""

    scheme = "root"

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def locate(self, call: Call, ref: FileRef) -> LocatedFile:
        sandbox, path = self._sandbox.for_caller(call.principal), escape_name(ref.path)

        async def find() -> LocatedFile:
            root = sandbox.roots.enter(ref.space, _TOOL, path)
            return await sandbox.workers.run(call.caller, _located, root, path)

        return await sandbox.retried(find)

    async def describe(self, call: Call, file: LocatedFile) -> dict[str, Any] | None:
        roots = self._sandbox.roots.for_caller(call.principal)
        found: list[dict[str, Any]] = []
        for root in roots:
            path = file.path_below(root.confined.real_path)
            if path is not None and _TOOL in root.effective_tools(call.principal):
                found += await self._sandbox.workers.run(call.caller, _described, root, path, call.cancellation)
        return {"paths": found} if found else None


def _located(root: Root, path: str) -> LocatedFile:
    with checked_path(root, path) as normal:
        return LocatedFile(root.ref(normal), f"{root.confined.real_path}/{normal}")


def _described(root: Root, path: str, cancellation: Cancellation) -> list[dict[str, Any]]:
    try:
        found = stat_file(root, escape_name(path), include_sha256=False, cancellation=cancellation)
    except FileError:
        return []
    facts = {name: found[name] for name in ("root", "path", "type", "size", "modified_at")}
    return [facts | {"ref": str(root.ref(path))}]
