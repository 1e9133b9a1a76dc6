"""Copies files and directories within a root or between roots."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from armarium.capabilities.sandbox.changes import targets, trees
from armarium.capabilities.sandbox.changes.edits import require_directory_if_slash
from armarium.capabilities.sandbox.changes.writes import Fill, replace_file
from armarium.capabilities.sandbox.error_context import checked_path, errors_at
from armarium.capabilities.sandbox.errors import AlreadyExists
from armarium.capabilities.sandbox.results import Remaining
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes, expect_much
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.errors import NotADirectory
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_entries import staged_directory


@dataclass(slots=True)
class Transferred:
    destination: str
    is_directory: bool
    size: int = 0
    files: int = 1
    skipped: list[str] = field(default_factory=list[str])
    replaced: bool = False
    remaining: list[Remaining] = field(default_factory=list[Remaining])
    """What a move left at its source."""


def copy(
    source: Root, source_path: str, target: Root, dest_path: str, context: targets.ChangeContext
) -> tuple[str, Transferred]:
    """Copy a file, or a directory with everything in it. Returns the normalised path of the source as well."""
    with checked_path(source, source_path, what="source file") as path:
        with source.confined.opened(path, os.O_PATH) as fd:
            status = os.fstat(fd)
            real = source.confined.locate(fd, last_known=True)
        is_directory = stat.S_ISDIR(status.st_mode)
        for each in (path, real):
            source.require_readable(each, is_directory=is_directory)
    with checked_path(target, dest_path) as wanted:
        if not is_directory:
            require_directory_if_slash(target, dest_path, wanted)
        name = path.rpartition("/")[2] or source.name
        destination = destination_in(target, wanted, name, is_directory=is_directory)
        if not is_directory:
            expect_bytes(status.st_size)
            return path, _copy_file(source, real, target, destination, context)
        if context.if_match is not None:
            raise InvalidArgument("`if_match` is the hash of a file; the source is a directory")
        expect_much()
        return path, _copy_directory(source, real, target, destination, context)


def _copy_file(source: Root, path: str, target: Root, destination: str, context: targets.ChangeContext) -> Transferred:
    shown = escape_name(path)
    size = 0
    with ExitStack() as opened:
        with errors_at(source, shown, what="source file"):
            fd, status = opened.enter_context(source.confined.opened_regular(path))
        version = targets.Version(fd, status)
        with errors_at(source, shown):
            if source.restricts_reading:
                source.require_readable(source.confined.locate(fd, last_known=True))
            targets.require_match(version, shown, context)

        def fill_for(before: targets.Version) -> Fill:
            if before.status is not None and os.path.samestat(before.status, status):
                raise InvalidArgument("source and destination are the same file")

            def fill(new: int) -> None:
                nonlocal size
                size = trees.fill_from(source, path, fd, new, context.cancellation)
                if context.if_match is not None and not targets.same_state(os.fstat(fd), status):
                    with errors_at(source, shown):
                        targets.require_match(version, shown, context)

            return fill

        def put(at: targets.Target) -> bool:
            mode = stat.S_IMODE(status.st_mode) & 0o777
            return replace_file(at, fill_for, context.locks, depends=False, new_mode=mode, wait_long=True)

        with errors_at(target, escape_name(destination)):
            created = targets.with_target(target, destination, escape_name(destination), put, make_parents=True)
    return Transferred(destination, False, size, replaced=not created)


def _copy_directory(
    source: Root, path: str, target: Root, destination: str, context: targets.ChangeContext
) -> Transferred:
    landing = target.resolved(destination)
    refuse_into_itself(source, path, target, landing)
    for each in (destination, landing):
        target.require_writable(each, is_directory=True)
    if not landing:
        raise AlreadyExists("the destination is the root itself")
    parent, _, name = landing.rpartition("/")
    with errors_at(source, escape_name(path)):
        top_fd = source.confined.open_directory(path)
    with closed_after(top_fd), errors_at(target, escape_name(destination)):
        job = trees.CopyJob(source, top_fd, path, target, landing, whole=False)
        done = targets.in_directory(target, parent, lambda fd: _stage_and_put(job, fd, name, context), make=True)
    return Transferred(destination, True, done.bytes, done.files, done.skipped)


def _stage_and_put(job: trees.CopyJob, dir_fd: int, name: str, context: targets.ChangeContext) -> trees.TreeCopy:
    """Copy to a staged directory, then rename it to its final name or merge it into the existing directory."""
    targets.require_place(job.target, dir_fd, job.target_path)
    existing = None
    with ExitStack() as opened:
        with suppress(FileNotFoundError):
            existing = opened.enter_context(targets.opened_directory(dir_fd, name))
        staged = opened.enter_context(staged_directory(dir_fd, stat.S_IMODE(os.fstat(job.top_fd).st_mode) & 0o777))
        with errors_at(job.source, escape_name(job.top_path)):
            done = trees.copy_tree(job, staged.fd, context.cancellation)
        if existing is not None:
            trees.merge(staged.fd, job.target, existing, job.target_path, context)
        else:
            with context.locks.holding(dir_fd, wait_long=True):
                staged.put(name, exclusive=True)
    os.fsync(dir_fd)
    return done


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
    # By host path, because roots may be nested.
    old = os.path.join(source.confined.real_path, path).rstrip("/")
    new = os.path.join(target.confined.real_path, destination)
    if f"{new}/".startswith(f"{old}/"):
        raise InvalidArgument("a directory cannot be copied or moved into itself")
