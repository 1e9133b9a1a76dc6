"""Moves entries to another file system: a staged copy takes its place, then what was copied goes from the source."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from armarium.capabilities.sandbox.changes import trees
from armarium.capabilities.sandbox.changes.attributes import keep_attributes
from armarium.capabilities.sandbox.changes.copies import Remaining, Transferred
from armarium.capabilities.sandbox.changes.removal import Entry
from armarium.capabilities.sandbox.changes.targets import State, Version, is_unchanged, require_match, same_state
from armarium.capabilities.sandbox.error_context import errors_at
from armarium.capabilities.sandbox.errors import AlreadyExists, Conflict, DestinationFailed, os_error_reason
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.confine import open_child_directory
from armarium.foundation.files.directory_locks import DirectoryBusy, DirectoryLocks
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_entries import remove_if_stale, staged_directory, staged_file
from armarium.foundation.files.staged_names import is_staged
from armarium.foundation.files.traversal import EntryFailed, Visit, visits

_CHANGED = "changed while it was moved"
_APPEARED = "appeared while it was moved"
_UNFINISHED = "a change in it is not finished"
_LOCKED = "another process holds its directory"
_NOT_EMPTY = frozenset({errno.ENOTEMPTY, errno.EEXIST})


@dataclass(frozen=True, slots=True)
class Journey:
    """What moves where."""

    source: Root
    path: str
    entry: Entry
    target: Root
    destination: str
    landing: str
    """Where the destination really is, once links are followed."""
    if_match: str | None
    locks: DirectoryLocks
    cancellation: Cancellation

    @property
    def from_shown(self) -> str:
        """The source, for messages."""
        return escape_name(self.path)


def carry(journey: Journey, target_fd: int, new_name: str) -> Transferred:
    """Copy the entry, put the copy in place, and remove from the source what is still as it was copied."""
    entry = journey.entry
    with errors_at(journey.source, journey.from_shown):
        _require_removable(journey)
    if entry.is_directory:
        return _carry_directory(journey, target_fd, new_name)
    if stat.S_ISLNK(entry.status.st_mode):
        return _carry_link(journey, target_fd, new_name)
    return _carry_file(journey, target_fd, new_name)


def status_at(dir_fd: int, name: str) -> os.stat_result | None:
    """What is at the name, a link itself; None if it is free."""
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _require_removable(journey: Journey) -> None:
    """Raise before anything is copied if the source could not be removed afterwards."""
    entry = journey.entry
    if os.fstatvfs(entry.dir_fd).f_flag & os.ST_RDONLY:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    trees.require_writable(entry.dir_fd, ".")
    if not entry.is_directory:
        return
    trees.require_writable(entry.dir_fd, entry.name)
    with entry.opened() as fd:
        for visit in visits(fd, journey.path, journey.cancellation, only_directories=True):
            if visit.kind == "enter":
                with errors_at(journey.source, escape_name(visit.path)), suppress(FileNotFoundError):
                    trees.require_writable(visit.dir_fd, visit.name)


def _carry_file(journey: Journey, target_fd: int, new_name: str) -> Transferred:
    """Copied without a lock as long as nobody writes to the file; if others do, the third try keeps them out."""
    entry, source = journey.entry, journey.source
    for keep_out in (False, False, True):
        with ExitStack() as held:
            lock = journey.locks.holding(entry.dir_fd, target_fd, wait_long=True)
            if keep_out:
                held.enter_context(lock)
            with errors_at(source, journey.from_shown, what="source file"):
                fd = os.open(entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=entry.dir_fd)
                held.callback(os.close, fd)
                status = os.fstat(fd)
                require_match(Version(fd, status), journey.if_match, journey.from_shown, journey.cancellation)
            new = held.enter_context(staged_file(target_fd, 0o600))
            trees.fill_from(source, journey.path, fd, new.fd, journey.cancellation)
            keep_attributes(fd, status, new.fd)
            _sync(new.fd)
            if not keep_out:
                held.enter_context(lock)
            if not same_state(status_at(entry.dir_fd, entry.name), status):
                continue
            replaced = status_at(target_fd, new_name) is not None
            new.put(new_name)
            os.fsync(target_fd)
            return Transferred(
                journey.destination, False, status.st_size, replaced=replaced, remaining=_unlinked(entry, journey.path)
            )
    with errors_at(source, journey.from_shown):
        raise Conflict("the file changes all the time; it was not moved", hint="try again")


def _carry_link(journey: Journey, target_fd: int, new_name: str) -> Transferred:
    entry = journey.entry
    with (
        trees.staged_link(entry.dir_fd, entry.name, target_fd, entry.status) as staged,
        journey.locks.holding(entry.dir_fd, target_fd, wait_long=True),
    ):
        if not same_state(status_at(entry.dir_fd, entry.name), entry.status):
            with errors_at(journey.source, journey.from_shown):
                raise Conflict("the link has changed; it was not moved", hint="try again")
        replaced = status_at(target_fd, new_name) is not None
        os.rename(staged, new_name, src_dir_fd=target_fd, dst_dir_fd=target_fd)
        os.fsync(target_fd)
        remaining = _unlinked(entry, journey.path)
    return Transferred(journey.destination, False, replaced=replaced, remaining=remaining)


def _unlinked(entry: Entry, path: str) -> list[Remaining]:
    try:
        os.unlink(entry.name, dir_fd=entry.dir_fd)
    except OSError as error:
        return [Remaining(path, os_error_reason(error))]
    return []


def _carry_directory(journey: Journey, target_fd: int, new_name: str) -> Transferred:
    entry = journey.entry
    replaced = _takes_empty_place(target_fd, new_name)
    with entry.opened() as top_fd:
        job = trees.CopyJob(journey.source, top_fd, journey.path, journey.target, journey.landing, whole=True)
        with staged_directory(target_fd, 0o700) as staged:
            with errors_at(journey.source, journey.from_shown):
                done = trees.copy_tree(job, staged.fd, journey.cancellation)
            keep_attributes(top_fd, os.fstat(top_fd), staged.fd)
            _sync(staged.fd)
            with journey.locks.holding(entry.dir_fd, target_fd, wait_long=True):
                staged.put(new_name)
        os.fsync(target_fd)
        remaining = _remove_copied(journey, top_fd, done.states or {})
    return Transferred(
        journey.destination, True, done.bytes, done.files, done.skipped, replaced=replaced, remaining=remaining
    )


def _sync(fd: int) -> None:
    try:
        os.fsync(fd)
    except OSError as error:
        raise DestinationFailed(error) from error


def _takes_empty_place(dir_fd: int, name: str) -> bool:
    """As a rename would have it: a directory takes the place of nothing or of an empty directory."""
    try:
        fd = open_child_directory(dir_fd, name)
    except FileNotFoundError:
        return False
    try:
        if os.listdir(fd):
            raise AlreadyExists("a directory that is not empty is there")
    finally:
        os.close(fd)
    return True


def _remove_copied(journey: Journey, top_fd: int, states: dict[str, State]) -> list[Remaining]:
    """Remove what is still as it was copied. The copy is in place: from here on nothing is an error."""
    remaining: list[Remaining] = []
    left_before: list[int] = []
    try:
        for visit in visits(top_fd, journey.path, Cancellation()):
            if visit.kind == "enter":
                left_before.append(len(remaining))
            elif visit.kind == "leave":
                nothing_told = left_before.pop() == len(remaining)
                reason = _rmdir(visit.dir_fd, visit.name)
                if reason and nothing_told:
                    remaining.append(Remaining(visit.path, reason))
            elif reason := _remove_entry(journey.locks, visit, states.get(visit.path)):
                remaining.append(Remaining(visit.path, reason))
    except EntryFailed as failed:
        remaining.append(Remaining(failed.path, os_error_reason(failed.error)))
    entry = journey.entry
    now = status_at(entry.dir_fd, entry.name)
    if now is not None and os.path.samestat(now, os.fstat(top_fd)):
        reason = _rmdir(entry.dir_fd, entry.name)
        if reason and not remaining:
            remaining.append(Remaining(journey.path, reason))
    return remaining


def _remove_entry(locks: DirectoryLocks, visit: Visit, copied: State | None) -> str | None:
    """Remove one entry if it is the one that was copied; otherwise say why it stays."""
    if copied is None:
        return _APPEARED
    try:
        with locks.holding(visit.dir_fd, wait_long=True):
            now = status_at(visit.dir_fd, visit.name)
            if now is None:
                return None
            if not is_unchanged(now, copied):
                return _CHANGED
            os.unlink(visit.name, dir_fd=visit.dir_fd)
    except DirectoryBusy:
        return _LOCKED
    except OSError as error:
        return os_error_reason(error)
    return None


def _rmdir(dir_fd: int, name: str) -> str | None:
    """Remove a directory that holds nothing that callers see; otherwise say why it stays."""
    try:
        with suppress(FileNotFoundError):
            try:
                os.rmdir(name, dir_fd=dir_fd)
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise
                if left := _left_in(dir_fd, name):
                    return _UNFINISHED if all(map(is_staged, left)) else _APPEARED
                os.rmdir(name, dir_fd=dir_fd)
    except OSError as error:
        return _APPEARED if error.errno in _NOT_EMPTY else os_error_reason(error)
    return None


def _left_in(dir_fd: int, name: str) -> list[str]:
    """What is in the directory, without what a process that has ended left there: that is removed."""
    fd = open_child_directory(dir_fd, name)
    try:
        return [each for each in os.listdir(fd) if not (is_staged(each) and remove_if_stale(fd, each))]
    finally:
        os.close(fd)
