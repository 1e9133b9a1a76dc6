"""Removes files and directory trees."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

from armarium.capabilities.sandbox.changes import trees
from armarium.capabilities.sandbox.changes.targets import ChangeContext, matching, opened_directory
from armarium.capabilities.sandbox.error_context import checked_path, errors_at
from armarium.capabilities.sandbox.errors import CannotRemoveRoot, Conflict
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.errors import IsADirectory, NotADirectory
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_entries import Staged, set_aside
from armarium.foundation.files.traversal import EntryFailed, remove_contents, visits

_MAX_TRIES = 5
_CHANGED_MEANWHILE = frozenset({errno.ENOTEMPTY, errno.EEXIST})


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of an open directory: its name and status. A link is not followed."""

    dir_fd: int
    name: str
    status: os.stat_result

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def may_lead_to_directory(self) -> bool | None:
        """`is_directory`, and None for a link, which rules about directories concern as well."""
        return None if stat.S_ISLNK(self.status.st_mode) else self.is_directory


@contextmanager
def entry_at(root: Root, path: str) -> Generator[Entry]:
    """The entry at a path, to remove or move it. Raise if that is denied."""
    with root.confined.opened_parent(path) as (dir_fd, name):
        entry = Entry(dir_fd, name, os.stat(name, dir_fd=dir_fd, follow_symlinks=False))
        root.require_writable(path, is_directory=entry.may_lead_to_directory)
        if root.restricts_writing:
            directory = root.confined.locate(dir_fd)
            located = f"{directory}/{name}" if directory else name
            root.require_writable(located, is_directory=entry.may_lead_to_directory)
        yield entry


def remove_file(root: Root, path: str, context: ChangeContext) -> str:
    """Remove a file, or a link itself. Returns the normalised path."""
    with checked_path(root, path) as normal, entry_at(root, normal) as entry:
        shown = escape_name(normal)
        if entry.is_directory:
            raise IsADirectory(f"is a directory: {shown}", hint="use remove_folder")
        with matching(entry.dir_fd, entry.name, shown, context) as confirm, context.locks.holding(entry.dir_fd):
            confirm()
            os.unlink(entry.name, dir_fd=entry.dir_fd)
        os.fsync(entry.dir_fd)
    return normal


def remove_folder(root: Root, path: str, context: ChangeContext) -> tuple[str, int]:
    """Remove a directory and everything in it. Returns the normalised path and the number of entries."""
    with checked_path(root, path, what="directory") as normal:
        if not normal:
            raise CannotRemoveRoot("cannot remove root directory")
        with entry_at(root, normal) as entry:
            if not entry.is_directory:
                what = "a link" if stat.S_ISLNK(entry.status.st_mode) else "a file"
                raise NotADirectory(f"is {what}, not a directory: {escape_name(normal)}", hint="use remove_file")
            with opened_directory(entry.dir_fd, entry.name) as fd:
                trees.require_nothing_hidden(root, fd, normal, context.cancellation)
                trees.require_nothing_denied(root, fd, context.cancellation)
                _require_emptiable(root, fd, ".", normal)
                for visit in visits(fd, normal, context.cancellation, with_staged=True, only_directories=True):
                    if visit.kind == "enter":
                        _require_emptiable(root, visit.dir_fd, visit.name, visit.path)
            return normal, _remove_directory(entry, normal, context)


def _remove_directory(entry: Entry, path: str, context: ChangeContext) -> int:
    # It gets a staged name first: callers never see a part of it, and the next start completes a killed removal.
    with context.locks.holding(entry.dir_fd):
        aside = set_aside(entry.dir_fd, entry.name)
    with closing(aside):
        try:
            removed = _remove_tree(aside, path, context.cancellation)
        except BaseException:
            with suppress(OSError):
                aside.put(entry.name, exclusive=True)
            raise
    os.fsync(entry.dir_fd)
    return removed


def _require_emptiable(root: Root, dir_fd: int, name: str, path: str) -> None:
    """Raise if this user may not empty the directory, before anything is removed."""
    with errors_at(root, escape_name(path)), suppress(FileNotFoundError):
        try:
            trees.require_writable(dir_fd, name)
        except PermissionError:
            with opened_directory(dir_fd, name) as fd:
                if os.listdir(fd):
                    raise


def _remove_tree(aside: Staged, path: str, cancellation: Cancellation) -> int:
    removed = 0
    for _ in range(_MAX_TRIES):
        try:
            removed += remove_contents(aside.fd, path, cancellation)
            aside.remove_empty()
        except (OSError, EntryFailed) as error:
            # A caller that had already opened a directory of the tree may add an entry to it.
            if (error.error if isinstance(error, EntryFailed) else error).errno not in _CHANGED_MEANWHILE:
                raise
        else:
            return removed + 1
    raise Conflict(
        f"another process writes to the directory while it is removed: {escape_name(path)}", hint="try again"
    )
