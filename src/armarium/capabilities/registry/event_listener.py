"""Hears what happens to the project's files in other capabilities, and writes it down behind those who tell it."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import groupby
from pathlib import Path

import anyio
from anyio import to_thread

from armarium.capabilities.registry.model import Reported, ScanReport
from armarium.capabilities.registry.service import Registry
from armarium.capabilities.registry.settings import STATE_DIRECTORY
from armarium.foundation.errors import ArmariumError
from armarium.foundation.events import Events, FileChanged, FileMoved, FileScanned

_log = logging.getLogger(__name__)

Note = FileChanged | FileMoved | FileScanned

_SCANNED_BY = "armarium"
_PAUSE_S = 1.0
"""Between two tries; a registry that another process writes has been waited for already."""
_MOST_IN_A_FOLDER = 10_000
_NOT_LOOKED_INTO = frozenset({STATE_DIRECTORY, ".git"})
_LAST_WORDS_S = 60.0
"""How long a server that ends waits for another process to let go of the registry."""


@asynccontextmanager
async def watched(registry: Registry, events: Events, project: Path) -> AsyncGenerator[Watch]:
    """Follow what happens below the project's directory. What was heard by the end is written."""
    watch = Watch(registry, project)
    # What can only be read takes nothing in, and would have it pile up.
    kinds = () if registry.read_only else (FileChanged, FileMoved, FileScanned)
    unsubscribe = [events.subscribe(kind, watch.hear) for kind in kinds]
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch.write_down)
            try:
                yield watch
            finally:
                for forget in unsubscribe:
                    forget()
                tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # What the block raises stays what it is, not a group of one.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise


class Watch:
    """Takes events as they come, which costs those who tell them nothing, and writes them down together."""

    def __init__(self, registry: Registry, project: Path) -> None:
        self._registry = registry
        # Others tell where a file really is.
        self._below = f"{os.path.realpath(project).rstrip('/')}/"
        self._heard: list[Note] = []
        self._news = anyio.Event()
        self._settled = anyio.Event()
        self._settled.set()

    async def hear(self, event: Note) -> None:
        """Take it on, if it is about files of the project. What lies in a folder comes, goes and moves with it."""
        if isinstance(event, FileChanged) and event.is_directory and event.change == "modified":
            return
        if self._inside(event.host_path) is None:
            return
        self._heard.append(event)
        if self._settled.is_set():
            self._settled = anyio.Event()
        self._news.set()

    async def settled(self) -> None:
        """Wait until everything that was heard is written."""
        await self._settled.wait()

    async def write_down(self) -> None:
        """Write what is heard, until cancelled, and then the rest."""
        try:
            while True:
                await self._news.wait()
                self._news = anyio.Event()
                await self._write_all()
        finally:
            with anyio.move_on_after(_LAST_WORDS_S, shield=True):
                await self._write_all()
            if self._heard:
                _log.error("what happened to files is not noted", extra={"how_many": len(self._heard)})

    async def _write_all(self) -> None:
        """Write everything, in order: what cannot be written now is tried again, and what came later waits for it."""
        waiting = False
        while self._heard:
            kind, together = next(groupby(self._heard, key=_kind))
            notes, done = list(together), 0
            with anyio.CancelScope(shield=True):
                done = await self._written(kind[0], notes)
            del self._heard[:done]
            if done == len(notes):
                waiting = False
                continue
            if not waiting:
                waiting = True
                _log.warning("what happened to files waits for the registry", extra={"how_many": len(self._heard)})
            await anyio.sleep(_PAUSE_S)
        self._settled.set()

    async def _written(self, what: str, notes: Sequence[Note]) -> int:
        """Write down notes of one kind; how many of them are done with."""
        try:
            await self._write(notes)
        except ArmariumError as error:
            if error.retryable:
                return 0
            if len(notes) == 1:
                _log.warning("what happened to a file is not noted", extra={"what": what, "code": error.code})
                return 1
        else:
            return len(notes)
        # One of them has a path that cannot be kept, and the others have not.
        done = 0
        for note in notes:
            if not await self._written(what, [note]):
                break
            done += 1
        return done

    async def _write(self, notes: Sequence[Note]) -> None:
        match notes[0]:
            case FileScanned(scanner):
                # Of a file that was looked at twice, only the last look counts.
                looks = {note.host_path: note for note in notes if isinstance(note, FileScanned)}
                findings = [finding for look in looks.values() for finding in self._findings(look)]
                await self._registry.scan(ScanReport(scanner, findings, tuple(self._paths(notes))), _SCANNED_BY)
            case FileMoved():
                for note in notes:
                    await self._move(note)
            case FileChanged(change="removed", by=by):
                for path in self._paths(notes):
                    await self._registry.note_removed(path, by.username)
            case FileChanged(by=by):
                folders = {note.host_path for note in notes if isinstance(note, FileChanged) and note.is_directory}
                files = [note for note in notes if note.host_path not in folders]
                found = [await to_thread.run_sync(_files_below, folder) for folder in folders if folder is not None]
                inside = [path for paths in found for each in paths if (path := self._inside(each)) is not None]
                await self._registry.note_changed([*self._paths(files), *inside], by.username)

    async def _move(self, event: Note) -> None:
        if not isinstance(event, FileMoved):
            return
        now, before = self._inside(event.host_path), self._inside(event.previous_host_path)
        # What comes in or goes out is told as created or removed as well, and is no more than that here.
        if now is not None and before is not None:
            await self._registry.note_moved(before, now, event.by.username)

    def _findings(self, event: FileScanned) -> Iterator[Reported]:
        path = self._inside(event.host_path) or ""
        for finding in event.findings:
            yield Reported(
                path,
                finding.rule,
                f"what looks like a credential ({finding.rule})",
                "high",
                finding.line,
                finding.line,
                "revoke it, and keep it where no file of the project has it",
                # By what it is, wherever it stands: who judges one credential has not judged the next in its place.
                fingerprint=f"{finding.rule}:{finding.digest}",
            )

    def _paths(self, notes: Iterable[Note]) -> list[str]:
        """Where they happened, each place once."""
        return list(dict.fromkeys(path for note in notes if (path := self._inside(note.host_path)) is not None))

    def _inside(self, host_path: str | None) -> str | None:
        """The path within the project; None for one that is elsewhere, and for the project itself."""
        if host_path is None or not host_path.startswith(self._below):
            return None
        return host_path[len(self._below) :] or None


def _files_below(folder: str) -> list[str]:
    """The files in a folder that was copied or moved here, as far as somebody would look through them."""
    files: list[str] = []
    for directory, names_of_folders, names in os.walk(folder):
        names_of_folders[:] = sorted(name for name in names_of_folders if name not in _NOT_LOOKED_INTO)
        files += [f"{directory}/{name}" for name in sorted(names)]
        if len(files) > _MOST_IN_A_FOLDER:
            _log.warning("a folder has too many files to note them all", extra={"noted": _MOST_IN_A_FOLDER})
            return files[:_MOST_IN_A_FOLDER]
    return files


def _kind(note: Note) -> tuple[str, str]:
    """What is written together: what of one kind follows each other, from one caller or scanner."""
    if isinstance(note, FileScanned):
        return "scanned", note.scanner
    if isinstance(note, FileMoved):
        return "moved", note.by.username
    return ("removed" if note.change == "removed" else "changed"), note.by.username
