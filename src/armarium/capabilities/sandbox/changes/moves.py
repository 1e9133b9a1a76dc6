"""Moves entries within a root or between roots, by a rename where the kernel supports it."""

from __future__ import annotations

import errno
import os
import stat

from armarium.capabilities.sandbox.changes import trees
from armarium.capabilities.sandbox.changes.copies import Transferred, destination_in, refuse_into_itself
from armarium.capabilities.sandbox.changes.cross_device_copy import Move, copy_and_remove
from armarium.capabilities.sandbox.changes.edits import require_directory_if_slash
from armarium.capabilities.sandbox.changes.removal import Entry, entry_at
from armarium.capabilities.sandbox.changes.targets import (
    ChangeContext,
    in_directory,
    matching,
    opened_directory,
    require_place,
    status_at,
)
from armarium.capabilities.sandbox.error_context import checked_path, errors_at
from armarium.capabilities.sandbox.errors import CannotRemoveRoot, Conflict, CredentialsHidden
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.threads.pool import expect_bytes, expect_much
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.errors import NotARegularFile, PathEscapesRoot
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.path_rules import PathRules
from armarium.foundation.files.traversal import Visit, visits

_ABOUT_THE_TARGET = frozenset(
    {errno.ENOTEMPTY, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOSPC, errno.EDQUOT, errno.EMLINK,
     errno.ENAMETOOLONG, errno.EINVAL}
)  # fmt: skip
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def move(
    source: Root, source_path: str, target: Root, dest_path: str, context: ChangeContext
) -> tuple[str, Transferred]:
    """Move an entry, or a link itself. Returns the normalised path of the source as well."""
    with checked_path(source, source_path, what="source file") as path:
        if not path:
            raise CannotRemoveRoot("cannot move root directory")
        with entry_at(source, path) as entry:
            is_directory = entry.is_directory
    with checked_path(target, dest_path) as wanted:
        if not is_directory:
            require_directory_if_slash(target, dest_path, wanted)
        return path, _move(source, path, target, wanted, context)


def _move(source: Root, path: str, target: Root, wanted: str, context: ChangeContext) -> Transferred:
    shown = escape_name(path)
    with errors_at(source, shown, what="source file"), entry_at(source, path) as entry:
        name = path.rpartition("/")[2]
        with errors_at(target, escape_name(wanted)):
            destination = destination_in(target, wanted, name, is_directory=entry.is_directory)
            parent, _, new_name = destination.rpartition("/")
            landing = "/".join(filter(None, [target.resolved(parent), new_name]))
            for each in (destination, landing):
                target.require_writable(each, is_directory=entry.may_lead_to_directory)
        real = "/".join(filter(None, [source.confined.locate(entry.dir_fd), name]))
        planned = Move(source, real, entry, target, destination, landing, context)
        # Check everything before a directory is created for the destination.
        _check(planned)
        with matching(entry.dir_fd, entry.name, shown, context):
            pass
        with errors_at(target, escape_name(destination)):
            done = in_directory(target, parent, lambda fd: _move_into(planned, fd, new_name), make=True)
        os.fsync(entry.dir_fd)
    return done


def _check(planned: Move) -> None:
    entry, source = planned.entry, planned.source
    if entry.is_directory:
        if planned.context.if_match is not None:
            raise InvalidArgument("`if_match` is the hash of a file; the source is a directory")
        if source.restricts_writing or source is not planned.target:
            expect_much()  # every entry of the directory is checked
        with opened_directory(entry.dir_fd, entry.name) as fd:
            refuse_into_itself(source, source.confined.locate(fd), planned.target, planned.landing)
            trees.require_nothing_hidden(source, fd, planned.path, planned.context.cancellation)
            trees.require_nothing_denied(source, fd, planned.context.cancellation)
    if source is not planned.target or not _keeps_rules(planned):
        _require_copyable(planned)


def _keeps_rules(planned: Move) -> bool:
    """Whether a rename leaves everything in a directory as it is: what may be written may be written there, and what is
    hidden is hidden there. Otherwise its entries are checked while they are copied: until a rename, another call may
    add some."""
    source, target = planned.source, planned.target
    return planned.entry.may_lead_to_directory is False or (
        not target.may_hide_below(planned.landing)
        and _covers(source.denied, planned.path, target.denied, planned.landing)
        and _covers(target.credentials, planned.landing, source.credentials, planned.path)
    )


def _covers(rules: PathRules | None, path: str, others: PathRules | None, other_path: str) -> bool:
    """Whether everything below a directory that `others` match at the other path is matched by `rules` here."""
    if others is None:
        return True
    return rules is not None and rules.patterns == others.patterns and others.judge_alike(path, other_path)


def _require_permitted(planned: Move, visit: Visit, landing: str) -> None:
    """Raise if an entry of a directory may not be at its place in the target."""
    source, target, is_directory = planned.source, planned.target, visit.kind != "entry"
    target.require_visible(landing, is_directory=is_directory)
    if trees.is_denied(source, visit, target, landing):
        raise target.write_denied(landing)
    hidden = source.credentials is not None and source.credentials.match_entry(visit.path, is_directory)
    if hidden and not (target.credentials is not None and target.credentials.match(landing, is_directory)):
        raise CredentialsHidden("the move would show the content of a file with credentials")


def _require_copyable(planned: Move) -> None:
    """Raise if the entry, or one in it, cannot be in another root or on another file system."""
    entry = planned.entry
    if not entry.is_directory:
        _require_movable(planned.source, entry.dir_fd, entry.name, planned.path, entry.status.st_mode)
        return
    with errors_at(planned.source, planned.from_shown), opened_directory(entry.dir_fd, entry.name) as fd:
        for visit in visits(fd, planned.path, planned.context.cancellation):
            landing = visit.landing(planned.path, planned.landing)
            with errors_at(planned.target, escape_name(landing)):
                _require_permitted(planned, visit, landing)
            if visit.kind == "entry":
                _require_movable(planned.source, visit.dir_fd, visit.name, visit.path, visit.status.st_mode)


def _require_movable(root: Root, dir_fd: int, name: str, path: str, mode: int) -> None:
    with errors_at(root, escape_name(path)):
        if stat.S_ISLNK(mode):
            if root.confined.link_target(dir_fd, name, path) == "external":
                raise PathEscapesRoot("a link that leads outside cannot be moved to another root")
        elif not stat.S_ISREG(mode):
            raise NotARegularFile("not a regular file, cannot be moved to another root")


def _move_into(planned: Move, target_fd: int, new_name: str) -> Transferred:
    entry = planned.entry
    # By inode, because roots may be nested, and a directory may be mounted twice.
    if entry.name == new_name and os.path.sameopenfile(entry.dir_fd, target_fd):
        raise InvalidArgument("source and destination are the same")
    require_place(planned.target, target_fd, planned.landing)
    done = Transferred(planned.destination, entry.is_directory)
    try:
        if not _keeps_rules(planned):
            if stat.S_ISLNK(entry.status.st_mode):
                # Nobody knows what is below it.
                raise planned.target.write_denied(planned.landing)
            raise OSError(errno.EXDEV, "other rules apply there")
        with (
            matching(entry.dir_fd, entry.name, planned.from_shown, planned.context) as confirm,
            planned.context.locks.holding(entry.dir_fd, target_fd),
        ):
            confirm()
            there = status_at(target_fd, new_name)
            done.replaced = there is not None
            os.rename(entry.name, new_name, src_dir_fd=entry.dir_fd, dst_dir_fd=target_fd)
            if there is not None and there.st_nlink > 1:
                # A rename onto another hard link of the same file leaves both names.
                left = status_at(entry.dir_fd, entry.name)
                if left is not None and os.path.samestat(left, there):
                    os.unlink(entry.name, dir_fd=entry.dir_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            if error.errno == errno.EINVAL and entry.is_directory:
                # It was checked a moment ago: another move happened in between.
                raise Conflict("a parent directory was moved meanwhile; nothing was moved", hint="try again") from None
            if _is_about_target(error, entry, target_fd, new_name):
                raise
            with errors_at(planned.source, planned.from_shown, what="source file"):
                raise
        if entry.is_directory:
            expect_much()
        expect_bytes(entry.status.st_size)
        if planned.source is planned.target:
            _require_copyable(planned)
        done = copy_and_remove(planned, target_fd, new_name)
    os.fsync(target_fd)
    return done


def _is_about_target(error: OSError, entry: Entry, target_fd: int, new_name: str) -> bool:
    """Whether a rename failed because of its target, which the kernel does not report."""
    if error.errno in _ABOUT_THE_TARGET:
        return True
    if error.errno == errno.ENOENT:
        return status_at(entry.dir_fd, entry.name) is not None
    if error.errno not in _REFUSED:
        return False
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=entry.dir_fd, effective_ids=True):
        return False
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=target_fd, effective_ids=True):
        return True
    # In a directory with the sticky bit only the owner can replace an entry.
    return bool(os.fstat(target_fd).st_mode & stat.S_ISVTX) and status_at(target_fd, new_name) is not None
