"""Moves entries to another file system: copies them, then removes the copied entries from the source."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from armarium.capabilities.sandbox.changes import targets, trees
from armarium.capabilities.sandbox.changes.content import keep_attributes
from armarium.capabilities.sandbox.changes.copies import Transferred
from armarium.capabilities.sandbox.changes.removal import Entry
from armarium.capabilities.sandbox.error_context import errors_at
from armarium.capabilities.sandbox.errors import AlreadyExists, Conflict, destination_errors, os_error_reason
from armarium.capabilities.sandbox.results import Remaining
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.directory_locks import DirectoryBusy, DirectoryLocks
from armarium.foundation.files.names import escape_name, is_staged
from armarium.foundation.files.staged_entries import remove_if_stale, staged_directory, staged_file
from armarium.foundation.files.traversal import EntryFailed, Visit, visits

_APPEARED = "appeared while it was moved"
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})


@dataclass(frozen=True, slots=True)
class Move:
    source: Root
    path: str
    entry: Entry
    target: Root
    destination: str
    landing: str
    """The destination with links resolved."""
    context: targets.ChangeContext

    @property
    def from_shown(self) -> str:
        return escape_name(self.path)


def copy_and_remove(move: Move, target_fd: int, new_name: str) -> Transferred:
    """Copy the entry, rename the copy to its final name, and remove unchanged entries from the source."""
    entry = move.entry
    with errors_at(move.source, move.from_shown):
        _require_removable(move)
    if entry.is_directory:
        return _move_directory(move, target_fd, new_name)
    if stat.S_ISLNK(entry.status.st_mode):
        return _move_link(move, target_fd, new_name)
    return _move_file(move, target_fd, new_name)


def _require_removable(move: Move) -> None:
    entry = move.entry
    if os.fstatvfs(entry.dir_fd).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    trees.require_writable(entry.dir_fd, ".")
    if not entry.is_directory:
        return
    trees.require_writable(entry.dir_fd, entry.name)
    with targets.opened_directory(entry.dir_fd, entry.name) as fd:
        for visit in visits(fd, move.path, move.context.cancellation, only_directories=True):
            if visit.kind == "enter":
                with errors_at(move.source, escape_name(visit.path)), suppress(FileNotFoundError):
                    trees.require_writable(visit.dir_fd, visit.name)


def _move_file(move: Move, target_fd: int, new_name: str) -> Transferred:
    """Copy without a lock; if the file changes meanwhile, the third attempt holds the lock while copying."""
    entry, source = move.entry, move.source
    for locked in (False, False, True):
        with ExitStack() as held:
            lock = move.context.locks.holding(entry.dir_fd, target_fd, wait_long=True)
            if locked:
                held.enter_context(lock)
            with errors_at(source, move.from_shown, what="source file"):
                fd = held.enter_context(closed_after(os.open(entry.name, targets.READ, dir_fd=entry.dir_fd)))
                status = os.fstat(fd)
                targets.require_match(targets.Version(fd, status), move.from_shown, move.context)
            new = held.enter_context(staged_file(target_fd, 0o600))
            trees.fill_from(source, move.path, fd, new.fd, move.context.cancellation)
            keep_attributes(fd, status, new.fd)
            with destination_errors():
                os.fsync(new.fd)
            if not locked:
                held.enter_context(lock)
            if not targets.same_state(targets.status_at(entry.dir_fd, entry.name), status):
                continue
            replaced = targets.status_at(target_fd, new_name) is not None
            new.put(new_name)
            os.fsync(target_fd)
            remaining = _unlinked(entry, move.path)
            return Transferred(move.destination, False, status.st_size, replaced=replaced, remaining=remaining)
    with errors_at(source, move.from_shown):
        raise Conflict("the file changes all the time; it was not moved", hint="try again")


def _move_link(move: Move, target_fd: int, new_name: str) -> Transferred:
    entry = move.entry
    with (
        trees.staged_link(entry.dir_fd, entry.name, target_fd, entry.status) as staged,
        move.context.locks.holding(entry.dir_fd, target_fd, wait_long=True),
    ):
        if not targets.same_state(targets.status_at(entry.dir_fd, entry.name), entry.status):
            with errors_at(move.source, move.from_shown):
                raise Conflict("the link has changed; it was not moved", hint="try again")
        replaced = targets.status_at(target_fd, new_name) is not None
        os.rename(staged, new_name, src_dir_fd=target_fd, dst_dir_fd=target_fd)
        os.fsync(target_fd)
        remaining = _unlinked(entry, move.path)
    return Transferred(move.destination, False, replaced=replaced, remaining=remaining)


def _unlinked(entry: Entry, path: str) -> list[Remaining]:
    try:
        os.unlink(entry.name, dir_fd=entry.dir_fd)
    except OSError as error:
        return [_left(path, os_error_reason(error))]
    return []


def _left(path: str, reason: str) -> Remaining:
    return Remaining(path=escape_name(path), reason=reason)


def _move_directory(move: Move, target_fd: int, new_name: str) -> Transferred:
    entry = move.entry
    replaced = _replaces_empty_directory(target_fd, new_name)
    with targets.opened_directory(entry.dir_fd, entry.name) as top_fd:
        job = trees.CopyJob(move.source, top_fd, move.path, move.target, move.landing, whole=True)
        with staged_directory(target_fd, 0o700) as staged:
            with errors_at(move.source, move.from_shown):
                done = trees.copy_tree(job, staged.fd, move.context.cancellation)
            keep_attributes(top_fd, os.fstat(top_fd), staged.fd)
            with destination_errors():
                os.fsync(staged.fd)
            with move.context.locks.holding(entry.dir_fd, target_fd, wait_long=True):
                staged.put(new_name)
        os.fsync(target_fd)
        remaining = _remove_copied(move, top_fd, done.states)
    return Transferred(move.destination, True, done.bytes, done.files, done.skipped, replaced, remaining)


def _replaces_empty_directory(dir_fd: int, name: str) -> bool:
    """Whether an empty directory is at the name. Raise if it is not empty, as a rename would."""
    with suppress(FileNotFoundError), targets.opened_directory(dir_fd, name) as fd:
        if os.listdir(fd):
            raise AlreadyExists("a directory that is not empty exists there")
        return True
    return False


def _remove_copied(move: Move, top_fd: int, states: dict[str, targets.State]) -> list[Remaining]:
    """Remove entries that have not changed since they were copied. The copy is complete, so failures are only
    reported."""
    remaining: list[Remaining] = []
    left_before: list[int] = []
    try:
        for visit in visits(top_fd, move.path, Cancellation()):
            if visit.kind == "enter":
                left_before.append(len(remaining))
            elif visit.kind == "leave":
                nothing_reported = left_before.pop() == len(remaining)
                reason = _rmdir(visit.dir_fd, visit.name)
                if reason and nothing_reported:
                    remaining.append(_left(visit.path, reason))
            elif reason := _remove_entry(move.context.locks, visit, states.get(visit.path)):
                remaining.append(_left(visit.path, reason))
    except EntryFailed as failed:
        remaining.append(_left(failed.path, os_error_reason(failed.error)))
    entry = move.entry
    now = targets.status_at(entry.dir_fd, entry.name)
    if now is not None and os.path.samestat(now, os.fstat(top_fd)):
        reason = _rmdir(entry.dir_fd, entry.name)
        if reason and not remaining:
            remaining.append(_left(move.path, reason))
    return remaining


def _remove_entry(locks: DirectoryLocks, visit: Visit, copied: targets.State | None) -> str | None:
    """Remove an entry if it has not changed since it was copied. Otherwise return the reason."""
    if copied is None:
        return _APPEARED
    try:
        with locks.holding(visit.dir_fd, wait_long=True):
            now = targets.status_at(visit.dir_fd, visit.name)
            if now is None:
                return None
            if not targets.is_unchanged(now, copied):
                return "changed while it was moved"
            os.unlink(visit.name, dir_fd=visit.dir_fd)
    except DirectoryBusy:
        return "another process holds its directory"
    except OSError as error:
        return os_error_reason(error)
    return None


def _rmdir(dir_fd: int, name: str) -> str | None:
    """Remove a directory without visible entries. Otherwise return the reason."""
    try:
        with suppress(FileNotFoundError):
            try:
                os.rmdir(name, dir_fd=dir_fd)
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise
                with targets.opened_directory(dir_fd, name) as fd:
                    left = [each for each in os.listdir(fd) if not (is_staged(each) and remove_if_stale(fd, each))]
                if left:
                    return "a change in it is not finished" if all(map(is_staged, left)) else _APPEARED
                os.rmdir(name, dir_fd=dir_fd)
    except OSError as error:
        return _APPEARED if error.errno in _NOT_EMPTY else os_error_reason(error)
    return None
