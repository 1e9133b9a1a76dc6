"""Publishes events about changes that callers made."""

from __future__ import annotations

from typing import Literal

import anyio

from armarium.capabilities.sandbox.changes.copies import Transferred
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.events import Events, FileChanged, FileMoved
from armarium.foundation.identity import Principal
from armarium.foundation.refs import FileRef


class ChangeEvents:
    """Publishes events about files of roots. Cancelling a call does not stop the events about its changes."""

    def __init__(self, events: Events) -> None:
        self._events = events

    async def changed(
        self,
        by: Principal,
        root: Root,
        path: str,
        change: Literal["created", "modified", "removed"],
        *,
        is_directory: bool = False,
    ) -> None:
        with anyio.CancelScope(shield=True):
            ref = root.ref(path)
            await self._events.publish(FileChanged(ref, change, is_directory, by, _host_path(root, ref)))

    async def copied(self, by: Principal, target: Root, done: Transferred) -> None:
        """An entry was created, or a file replaced, at the destination of a copy or move."""
        change = "modified" if done.replaced else "created"
        await self.changed(by, target, done.destination, change, is_directory=done.is_directory)

    async def moved(self, by: Principal, source: Root, path: str, target: Root, done: Transferred) -> None:
        """An entry was moved, completely unless something remains at the source."""
        with anyio.CancelScope(shield=True):  # subscribers must not see a removal alone
            if not done.remaining:
                ref, previous = target.ref(done.destination), source.ref(path)
                host_paths = _host_path(target, ref), _host_path(source, previous)
                await self._events.publish(FileMoved(ref, previous, *host_paths, done.is_directory, by))
            change = "modified" if done.remaining else "removed"
            await self.changed(by, source, path, change, is_directory=done.is_directory)
            await self.copied(by, target, done)


def _host_path(root: Root, ref: FileRef) -> str:
    return f"{root.confined.real_path}/{ref.path.lstrip('/')}"
