"""Opens the sandbox: roots, worker threads and service."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from armarium.capabilities.sandbox.deny_list import DENY_WRITE
from armarium.capabilities.sandbox.reads.file_content import ReadLimits
from armarium.capabilities.sandbox.roots import Root, Roots
from armarium.capabilities.sandbox.service import ChangeEvents, Sandbox
from armarium.capabilities.sandbox.settings import RootSettings, SandboxSettings
from armarium.capabilities.sandbox.threads.workers import Workers
from armarium.capability import Facilities
from armarium.foundation.concurrency.cancellation import Cancellation, Stopped
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.files.confine import READ_DIRECTORY
from armarium.foundation.files.own_files import as_line, lines_in_every_spelling, places_in, private_places
from armarium.foundation.files.path_rules import patterns_of
from armarium.foundation.files.staged_entries import sweep

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_sandbox(settings: SandboxSettings, facilities: Facilities) -> AsyncGenerator[Sandbox]:
    """Open the roots and start the worker threads for the duration of the block."""
    settings.require_separate_rules()
    roots = Roots(_root(root, facilities) for root in settings.roots)
    workers = Workers(*roots.granted(), confine=settings.landlock)
    cancellation = Cancellation()
    limits = ReadLimits(settings.max_full_read_size, settings.max_partial_read_size)
    sandbox = Sandbox(
        roots,
        workers,
        ChangeEvents(facilities.events),
        limits,
        settings.max_search_seconds,
        settings.max_lock_seconds,
        settings.max_upload_size,
    )
    try:
        async with background(lambda: _sweep(roots, workers, cancellation)):
            try:
                yield sandbox
            finally:
                cancellation.cancel()
    finally:
        # A thread may still use a descriptor. Closed, its number could come to mean another file.
        if workers.close():
            roots.close()


def _root(settings: RootSettings, facilities: Facilities) -> Root:
    private = private_places(facilities.private_paths, settings.path)
    configuration = lines_in_every_spelling(places_in(os.path.expanduser(settings.path), facilities.settings_files))
    deny_write, credentials = patterns_of(settings.deny_write, DENY_WRITE), facilities.credential_patterns
    return Root(
        settings.name,
        settings.path,
        allowed_tools=settings.allowed_tools,
        read_only=settings.read_only,
        ignore=[*settings.ignore, *map(as_line, private)],
        private=lines_in_every_spelling(private),
        deny_write=[*deny_write, *configuration] if deny_write else (),
        credentials=[*credentials, *configuration] if credentials else (),
        rule=settings.rule,
    )


async def _sweep(roots: Roots, workers: Workers, cancellation: Cancellation) -> None:
    """Remove staged entries that a killed process left behind."""
    for root in roots:
        if not root.read_only:
            with suppress(OSError, Stopped):
                await workers.long("", _sweep_root, root, cancellation)


def _sweep_root(root: Root, cancellation: Cancellation) -> None:
    confined, ignore = root.confined, root.ignore
    with confined.opened("", READ_DIRECTORY) as fd:
        removed = sweep(fd, cancellation, lambda path: ignore is not None and ignore.hides(path, True))
    if removed:
        _log.info("removed staged entries of unfinished changes", extra={"root": root.name, "entries": removed})
