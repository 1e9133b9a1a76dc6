"""Records the file events of other capabilities in the registry, without delaying their publishers."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import anyio
from anyio import to_thread

from armarium.capabilities.registry.model import ReportEntry, ScanReport
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import STATE_DIRECTORY
from armarium.foundation.concurrency.tasks import background
from armarium.foundation.errors import ArmariumError
from armarium.foundation.events import Events, FileChanged, FileMoved, FileScanned

_log = logging.getLogger(__name__)

FileEvent = FileChanged | FileMoved | FileScanned

_ACTOR = "armarium"
_MAX_FILES_IN_FOLDER = 10_000
_IGNORED_FOLDERS = frozenset({STATE_DIRECTORY, ".git"})


@asynccontextmanager
async def listen_to_events(
    registry: Registry,
    events: Events,
    project: Path,
    *,
    retry_interval_s: float = 1.0,
    shutdown_timeout_s: float = 60.0,
) -> AsyncGenerator[EventListener]:
    """Record the events of files below the project's directory. Pending events are written at the end of the block.

    Each write already waits for other processes. If it still fails, it is retried after `retry_interval_s`; at the end
    of the block for at most `shutdown_timeout_s`.
    """
    listener = EventListener(registry, project, retry_interval_s, shutdown_timeout_s)
    # A read-only registry could not write the events, so they would accumulate.
    kinds = () if registry.read_only else (FileChanged, FileMoved, FileScanned)
    async with background(listener.write_events):
        unsubscribe = [events.subscribe(kind, listener.receive) for kind in kinds]
        try:
            yield listener
        finally:
            for cancel in unsubscribe:
                cancel()


class EventListener:
    """Queues events as they are published, and writes them in batches."""

    def __init__(self, registry: Registry, project: Path, retry_interval_s: float, shutdown_timeout_s: float) -> None:
        self._registry = registry
        # Events have real paths.
        self._prefix = f"{os.path.realpath(project).rstrip('/')}/"
        self._retry_interval_s, self._shutdown_timeout_s = retry_interval_s, shutdown_timeout_s
        self._pending: list[FileEvent] = []
        self._wake_up = anyio.Event()
        self._written = anyio.Event()
        self._written.set()

    async def receive(self, event: FileEvent) -> None:
        """Queue an event about a file of the project. A folder's event stands for all files in it."""
        if isinstance(event, FileChanged) and event.is_directory and event.change == "modified":
            return
        if self._relative(event.host_path) is None:
            return
        self._pending.append(event)
        if self._written.is_set():
            self._written = anyio.Event()
        self._wake_up.set()

    async def wait_until_written(self) -> None:
        await self._written.wait()

    async def write_events(self) -> None:
        """Write events until cancelled, then the pending ones."""
        try:
            while True:
                await self._wake_up.wait()
                self._wake_up = anyio.Event()
                await self._write_pending()
        finally:
            with anyio.move_on_after(self._shutdown_timeout_s, shield=True):
                await self._write_pending()
            if self._pending:
                _log.error("file events were not recorded", extra={"how_many": len(self._pending)})

    async def _write_pending(self) -> None:
        """Write all events in order. If one cannot be written now, it is retried and later ones wait."""
        waiting = False
        while self._pending:
            (kind, _), group = next(groupby(self._pending, key=_batch_key))
            batch, done = list(group), 0
            with anyio.CancelScope(shield=True):
                done = await self._try_write(kind, batch)
            del self._pending[:done]
            if done == len(batch):
                waiting = False
                continue
            if not waiting:
                waiting = True
                _log.warning("file events wait for the registry", extra={"how_many": len(self._pending)})
            await anyio.sleep(self._retry_interval_s)
        self._written.set()

    async def _try_write(self, kind: str, batch: Sequence[FileEvent]) -> int:
        """Write events of one kind. Returns how many of them need no retry."""
        try:
            await self._write(batch)
            return len(batch)
        except ArmariumError as error:
            if error.retryable:
                return 0
            if len(batch) == 1:
                _log.warning("a file event was not recorded", extra={"what": kind, "code": error.code})
                return 1
        # One event has a path that cannot be stored. Write the others one by one.
        done = 0
        for event in batch:
            if not await self._try_write(kind, [event]):
                break
            done += 1
        return done

    async def _write(self, batch: Sequence[FileEvent]) -> None:
        match batch[0]:
            case FileScanned(scanner):
                # Of several scans of a file, only the last counts.
                scans = {event.host_path: event for event in batch if isinstance(event, FileScanned)}
                findings = [finding for scan in scans.values() for finding in self._findings(scan)]
                await self._registry.scan(ScanReport(scanner, findings, tuple(self._paths(batch))), _ACTOR)
            case FileMoved():
                for event in (each for each in batch if isinstance(each, FileMoved)):
                    now, before = self._relative(event.host_path), self._relative(event.previous_host_path)
                    # A move into or out of the project is also published as a creation or removal, which is enough.
                    if now is not None and before is not None:
                        await self._registry.record_moved(before, now, event.by.username)
            case FileChanged(change="removed", by=by):
                for path in self._paths(batch):
                    await self._registry.record_removed(path, by.username)
            case FileChanged(by=by):
                folders = {event.host_path for event in batch if isinstance(event, FileChanged) and event.is_directory}
                files = [event for event in batch if event.host_path not in folders]
                found = [await to_thread.run_sync(_files_below, folder) for folder in folders if folder is not None]
                inside = [path for paths in found for each in paths if (path := self._relative(each)) is not None]
                await self._registry.record_changed([*self._paths(files), *inside], by.username)

    def _findings(self, event: FileScanned) -> Iterator[ReportEntry]:
        path = self._relative(event.host_path) or ""
        # A credential is one finding, however often the file has it.
        for finding in {(each.rule, each.digest): each for each in reversed(event.findings)}.values():
            yield ReportEntry(
                path,
                finding.rule,
                f"what looks like a credential ({finding.rule})",
                "high",
                finding.line,
                finding.line,
                "revoke it, and keep it where no file of the project has it",
                # By content, not by line: a decision about one credential does not apply to the next in its place.
                fingerprint=f"{finding.rule}:{finding.digest}",
            )

    def _paths(self, batch: Iterable[FileEvent]) -> list[str]:
        return list(dict.fromkeys(path for event in batch if (path := self._relative(event.host_path)) is not None))

    def _relative(self, host_path: str | None) -> str | None:
        """The path relative to the project; None for a path elsewhere and for the project itself."""
        if host_path is None or not host_path.startswith(self._prefix):
            return None
        return host_path[len(self._prefix) :] or None


def _files_below(folder: str) -> list[str]:
    """The files in a folder that was copied or moved here, up to a limit."""
    files: list[str] = []
    for directory, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _IGNORED_FOLDERS)
        files += [f"{directory}/{name}" for name in sorted(names)]
        if len(files) > _MAX_FILES_IN_FOLDER:
            _log.warning("a folder has too many files to record them all", extra={"recorded": _MAX_FILES_IN_FOLDER})
            return files[:_MAX_FILES_IN_FOLDER]
    return files


def _batch_key(event: FileEvent) -> tuple[str, str]:
    """The kind, and the caller or scanner. Consecutive events with the same key are written together."""
    if isinstance(event, FileScanned):
        return "scanned", event.scanner
    if isinstance(event, FileMoved):
        return "moved", event.by.username
    return ("removed" if event.change == "removed" else "changed"), event.by.username
