"""`armarium store purge`: deletes earlier versions and deleted files of a caller for good."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from armarium.capabilities.store.arguments import PurgeArgs
from armarium.capabilities.store.commands.operation import Operation
from armarium.capabilities.store.lifespan import build_store, open_resources
from armarium.capabilities.store.model import Purged
from armarium.command_line.output import count, say, show_json
from armarium.foundation.tools import Call, local_tool


def purge(operation: Operation, project: str, path: str, caller: Call) -> None:
    """Purge a path of a caller's project, and print how much it was."""

    async def store_purge(call: Call, args: PurgeArgs) -> Purged:
        """Delete earlier versions and deleted files for good."""
        async with open_resources(operation.section, operation.state_dir, CollectorRegistry()) as resources:
            return await build_store(resources).purge(call, args)

    tool = local_tool("store_purge", store_purge, subject=("project", "path"))
    done = operation.call(tool, {"project": project, "path": path}, caller)
    if operation.as_json:
        show_json(done)
        return
    versions, files = count(done["purged_versions"], "version"), count(done["purged_files"], "deleted file")
    say(f"purged {versions} and {files}, {count(done['purged_bytes'], 'byte')}")
