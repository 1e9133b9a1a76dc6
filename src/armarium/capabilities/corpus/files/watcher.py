"""Watches the directory for changes: with inotify, and by periodic scans where inotify fails."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

import anyio
from anyio.abc import TaskStatus
from anyio.to_thread import run_sync

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.files.inotify import Changes, TreeWatch
from armarium.capabilities.corpus.health import Health
from armarium.foundation.files.names import escape_name

SUBJECT: Final = "watching"
"""The subject of its warnings."""

_DEBOUNCE_S: Final = 0.12
_STEP_S: Final = 0.04
_LONGEST_PAUSE_S: Final = 60.0
_NO_MORE_WATCHES: Final = frozenset({errno.ENOSPC, errno.ENOMEM, errno.EMFILE, errno.ENFILE})


@dataclass(frozen=True, slots=True)
class Watcher:
    """Reports changed paths until cancelled. If inotify fails, changes are noticed later."""

    root: Path
    exclusion: Exclusion
    changed: Callable[[Collection[str]], None]
    """Receives paths relative to the root."""
    rescan: Callable[[], None]
    """Called when any path may have changed."""
    health: Health
    first_pause_s: ClassVar[float] = 5.0
    """The time before the first of the periodic scans. Each further one waits twice as long."""

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled. Reports started when a scan may begin: once changes are watched, or cannot be."""
        started, pause_s = False, self.first_pause_s

        def ready() -> None:
            nonlocal started, pause_s
            if not started:
                started = True
                task_status.started()
            pause_s = self.first_pause_s

        while True:
            try:
                await self._follow(ready)
            except Exception as error:  # noqa: BLE001 whatever fails here, looking again from time to time still works
                self._report(error)
            if not started:
                ready()
            await anyio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            self.rescan()

    async def _follow(self, ready: Callable[[], None]) -> None:
        """Read events until inotify fails. Directories without a watch are scanned periodically."""
        with TreeWatch(os.fspath(self.root), partial(self.exclusion.excludes_path, is_directory=True)) as tree:
            await run_sync(tree.watch_all)
            ready()
            pause_s, look_at = self.first_pause_s, None
            while True:
                if not self._report_unwatched(tree):
                    look_at = None
                elif look_at is None:
                    pause_s = self.first_pause_s
                    look_at = anyio.current_time() + pause_s
                # A deadline, not a pause between events: frequent events must not postpone the scan forever.
                with anyio.CancelScope(deadline=math.inf if look_at is None else look_at):
                    await anyio.wait_readable(tree.fd)
                if look_at is not None and anyio.current_time() >= look_at:
                    pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                    look_at = anyio.current_time() + pause_s
                    self.rescan()
                    if any(number in _NO_MORE_WATCHES for number in tree.unwatched.values()):
                        # Other programs may have released watches.
                        tree.unwatched.clear()
                        await run_sync(tree.watch_all)
                    continue
                changes = await self._batch(tree)
                if changes.overflowed:
                    self.rescan()
                elif wanted := {path for path in changes.paths if not self.exclusion.excludes_path(path)}:
                    self.changed(wanted)

    async def _batch(self, tree: TreeWatch) -> Changes:
        """The changes of a short time: a file that is being written changes many times."""
        changes = await run_sync(tree.read)
        with anyio.move_on_after(_DEBOUNCE_S), suppress(TimeoutError):
            while True:
                with anyio.fail_after(_STEP_S):
                    await anyio.wait_readable(tree.fd)
                more = await run_sync(tree.read)
                changes.paths |= more.paths
                changes.overflowed |= more.overflowed
        return changes

    def _report(self, error: Exception) -> None:
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        self.health.warn(
            SUBJECT, f"the system gives no notice of changes ({reason}); the directory is scanned from time to time"
        )

    def _report_unwatched(self, tree: TreeWatch) -> bool:
        """Warn about unwatched directories. Returns whether periodic scans are needed."""
        # An unreadable directory contains nothing to index. The directory above reports when it becomes readable.
        unwatched = sorted(path for path, number in tree.unwatched.items() if number != errno.EACCES)
        if not unwatched:
            self.health.clear(SUBJECT)
            return False
        others = f" and {len(unwatched) - 1} more" if len(unwatched) > 1 else ""
        self.health.warn(
            SUBJECT,
            f"the system gives no notice of changes below {escape_name(unwatched[0])}{others}"
            f" ({os.strerror(tree.unwatched[unwatched[0]])}); the directory is scanned from time to time",
        )
        return True
