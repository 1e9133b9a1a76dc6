"""Copies files and directories within a root or between roots."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from armarium.capabilities.sandbox.changes import trees
from armarium.capabilities.sandbox.changes.targets import (
    Target,
    Version,
    in_directory,
    require_match,
    same_state,
    with_target,
)
from armarium.capabilities.sandbox.changes.writes import Fill, replace_file
from armarium.capabilities.sandbox.error_context import errors_at
from armarium.capabilities.sandbox.errors import AlreadyExists
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes, expect_much
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.confine import open_child_directory
from armarium.foundation.files.directory_locks import DirectoryLocks
from armarium.foundation.files.errors import NotADirectory
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_entries import staged_directory


@dataclass(frozen=True, slots=True)
class UnmovedEntry:
    """An entry that a move left at its source."""

    path: str
    reason: str


@dataclass(slots=True)
class Transferred:
    """Outcome of a copy or move."""

    destination: str
    is_directory: bool
    size: int = 0
    files: int = 1
    skipped: list[str] = field(default_factory=list[str])
    replaced: bool = False
    remaining: list[UnmovedEntry] = field(default_factory=list[UnmovedEntry])


@dataclass(frozen=True, slots=True)
class Source:
    """The entry to copy, with links resolved."""

    root: Root
    path: str
    name: str
    is_directory: bool
    size: int


def copy_source(root: Root, path: str) -> Source:
    """Resolve the path of the entry to copy."""
    with root.confined.opened(path, os.O_PATH) as fd:
        status = os.fstat(fd)
        is_directory = stat.S_ISDIR(status.st_mode)
        real = root.confined.locate(fd, last_known=True)
    root.require_visible(real, is_directory=is_directory)
    return Source(root, real, path.rpartition("/")[2] or root.name, is_directory, status.st_size)


def copy(
    found: Source, target: Root, wanted: str, if_match: str | None, locks: DirectoryLocks, cancellation: Cancellation
) -> Transferred:
    """Copy a file, or a directory with everything in it."""
    destination = destination_in(target, wanted, found.name, is_directory=found.is_directory)
    if not found.is_directory:
        expect_bytes(found.size)
        return _copy_file(found, target, destination, if_match, locks, cancellation)
    if if_match is not None:
        raise InvalidArgument("`if_match` is the hash of a file; the source is a directory")
    expect_much()
    return _copy_directory(found, target, destination, locks, cancellation)


def _copy_file(
    found: Source,
    target: Root,
    destination: str,
    if_match: str | None,
    locks: DirectoryLocks,
    cancellation: Cancellation,
) -> Transferred:
    source, shown = found.root, escape_name(found.path)
    with errors_at(source, shown, what="source file"):
        fd, status = source.confined.open_regular(found.path)
    try:
        with errors_at(source, shown):
            if source.ignore:
                source.require_visible(source.confined.locate(fd, last_known=True))
            require_match(Version(fd, status), if_match, shown, cancellation)
        size = 0

        def fill_for(before: Version) -> Fill:
            if before.status is not None and os.path.samestat(before.status, status):
                raise InvalidArgument("source and destination are the same file")

            def fill(new: int) -> None:
                nonlocal size
                size = trees.fill_from(source, found.path, fd, new, cancellation)
                if if_match is not None and not same_state(os.fstat(fd), status):
                    with errors_at(source, shown):
                        require_match(Version(fd, status), if_match, shown, cancellation)

            return fill

        def put(at: Target) -> bool:
            mode = stat.S_IMODE(status.st_mode) & 0o777
            return replace_file(at, fill_for, locks, depends=False, new_mode=mode, wait_long=True)

        with errors_at(target, escape_name(destination)):
            created = with_target(target, destination, escape_name(destination), put, make_parents=True)
    finally:
        os.close(fd)
    return Transferred(destination, False, size, replaced=not created)


def _copy_directory(
    found: Source, target: Root, destination: str, locks: DirectoryLocks, cancellation: Cancellation
) -> Transferred:
    landing = target.resolved(destination)
    refuse_into_itself(found.root, found.path, target, landing)
    target.require_visible(landing, is_directory=True)
    if not landing:
        raise AlreadyExists("the destination is the root itself")
    parent, _, name = landing.rpartition("/")
    with errors_at(found.root, escape_name(found.path)):
        top_fd = found.root.confined.open_directory(found.path)
    try:
        job = trees.CopyJob(found.root, top_fd, found.path, target, landing, whole=False)
        with errors_at(target, escape_name(destination)):
            done = in_directory(
                target, parent, lambda fd: _stage_and_put(job, fd, name, locks, cancellation), make=True
            )
    finally:
        os.close(top_fd)
    return Transferred(destination, True, done.bytes, done.files, done.skipped)


def _stage_and_put(
    job: trees.CopyJob, dir_fd: int, name: str, locks: DirectoryLocks, cancellation: Cancellation
) -> trees.TreeCopy:
    """Copy to a staged directory, then rename it to its final name or merge it into the existing directory."""
    existing = _existing_directory(dir_fd, name)
    try:
        with staged_directory(dir_fd, stat.S_IMODE(os.fstat(job.top_fd).st_mode) & 0o777) as staged:
            with errors_at(job.source, escape_name(job.top_path)):
                done = trees.copy_tree(job, staged.fd, cancellation)
            if existing is not None:
                trees.merge(staged.fd, job.target, existing, job.target_path, locks, cancellation)
            else:
                with locks.holding(dir_fd, wait_long=True):
                    staged.put(name, exclusive=True)
        os.fsync(dir_fd)
    finally:
        if existing is not None:
            os.close(existing)
    return done


def _existing_directory(dir_fd: int, name: str) -> int | None:
    try:
        return open_child_directory(dir_fd, name)
    except FileNotFoundError:
        return None


def destination_in(root: Root, wanted: str, name: str, *, is_directory: bool) -> str:
    """The destination: inside the wanted path if that is a directory, otherwise the path itself. Raise if a directory
    would replace a file."""
    try:
        with root.confined.opened(wanted, os.O_PATH) as fd:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                if is_directory:
                    raise NotADirectory("a file exists there; a directory cannot replace it")
                return wanted
            directory = root.confined.locate(fd)
    except FileNotFoundError:
        return wanted
    return f"{directory}/{name}" if directory else name


def refuse_into_itself(source: Root, path: str, target: Root, destination: str) -> None:
    """Raise if a directory would be copied or moved into itself."""
    # By host path, because roots may be nested.
    old = os.path.join(source.confined.real_path, path).rstrip("/")
    new = os.path.join(target.confined.real_path, destination)
    if f"{new}/".startswith(f"{old}/"):
        raise InvalidArgument("a directory cannot be copied or moved into itself")
