"""Opens the sandbox: roots, worker threads, service, tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from armarium.capabilities.sandbox.examine import examine
from armarium.capabilities.sandbox.reading import ReadLimits
from armarium.capabilities.sandbox.roots import Root, Roots
from armarium.capabilities.sandbox.service import Sandbox
from armarium.capabilities.sandbox.settings import SandboxSettings
from armarium.capabilities.sandbox.tools import sandbox_tools
from armarium.capabilities.sandbox.workers import Workers
from armarium.capability import Capability, Door, Facilities
from armarium.foundation.files.ignore import lines_hiding

_INSTRUCTIONS = (
    "The sandbox lets you work on real files in named roots. Call list_roots first; every tool takes a `root` and a "
    "path relative to it. Find with glob and grep, read with read_file, change with patch_file (small edits) or "
    "write_file. Errors carry a stable `code` and a `hint`."
)


@asynccontextmanager
async def open_sandbox(settings: SandboxSettings, facilities: Facilities) -> AsyncGenerator[Capability]:
    """The capability, for as long as the block runs."""
    roots = Roots(
        Root(
            root.name,
            root.path,
            allowed_tools=root.allowed_tools,
            read_only=root.read_only,
            ignore=[*root.ignore, *lines_hiding(facilities.private_paths, root.path)],
        )
        for root in settings.roots
    )
    workers = Workers(
        writable=[root.confined.real_path for root in roots if not root.read_only],
        readable=[root.confined.real_path for root in roots if root.read_only],
        confine=settings.landlock,
    )
    limits = ReadLimits(settings.max_full_read_size, settings.max_partial_read_size)
    sandbox = Sandbox(roots, workers, facilities.events, limits, settings.max_search_seconds)
    try:
        yield Capability("sandbox", sandbox_tools(sandbox), _INSTRUCTIONS)
    finally:
        # A descriptor that a thread still uses stays open; its number must not come to mean another file.
        if workers.close():
            roots.close()


DOOR = Door("sandbox", SandboxSettings, open_sandbox, examine)
