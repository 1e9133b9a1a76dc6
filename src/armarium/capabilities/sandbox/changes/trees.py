"""Copies directory trees to a staged directory, and merges staged trees into existing directories."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field

from armarium.capabilities.sandbox.changes.content import copy_content, copy_owner_and_mode, keep_attributes
from armarium.capabilities.sandbox.changes.targets import READ, ChangeContext, State, state_of, status_at
from armarium.capabilities.sandbox.error_context import errors_at
from armarium.capabilities.sandbox.errors import DestinationFailed, PathIgnored
from armarium.capabilities.sandbox.roots import Root
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.beneath import closed_after
from armarium.foundation.files.errors import IsADirectory, NotADirectory
from armarium.foundation.files.names import escape_name, new_staged_name
from armarium.foundation.files.traversal import Descent, Visit, listings, visits

_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SYNCED_ONE_BY_ONE = 64
_libc = ctypes.CDLL(None, use_errno=True)


def require_nothing_hidden(root: Root, top_fd: int, top_path: str, cancellation: Cancellation) -> None:
    """Raise if the directory contains hidden files: agents may not remove or rename it."""
    if root.ignore is None:
        return
    for visit in visits(top_fd, top_path, cancellation):
        if root.hides(visit.path, visit.kind != "entry"):
            raise PathIgnored(f"directory holds files hidden by the ignore list: {escape_name(top_path)}")


def require_nothing_denied(root: Root, top_fd: int, cancellation: Cancellation) -> None:
    """Raise if the directory contains something that agents may not write: they may not remove or rename it."""
    if root.denied is None:
        return
    top_path = root.confined.locate(top_fd)
    for directory, entries in listings(top_fd, top_path, cancellation):
        if root.denied.may_match_any(entry.name for entry in entries):
            for entry in entries:
                path = f"{directory}/{entry.name}"
                kind = None if entry.is_symlink() else entry.is_dir(follow_symlinks=False)
                if root.denied.match_entry(path, kind):
                    raise root.write_denied(path, holder=top_path)


def require_writable(dir_fd: int, name: str) -> None:
    """Raise the kernel's error if this user may not change the entries of the directory, or if it does not exist."""
    if not os.access(name, os.W_OK | os.X_OK, dir_fd=dir_fd, effective_ids=True):
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@dataclass(slots=True)
class TreeCopy:
    files: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list[str])
    """Paths that were skipped: links that lead outside, FIFOs, sockets, devices, credentials, and what is hidden or
    denied at the target."""
    states: dict[str, State] = field(default_factory=dict[str, State])
    """For a move: the state of each entry when it was copied, by path."""


@dataclass(frozen=True, slots=True)
class CopyJob:
    source: Root
    top_fd: int
    top_path: str
    target: Root
    target_path: str
    """The final path of the tree, for ignore lists and messages."""
    whole: bool
    """Preserve all attributes and record the state of every entry, for a move."""


def copy_tree(job: CopyJob, staged_fd: int, cancellation: Cancellation) -> TreeCopy:
    """Copy everything below an open directory into an empty one. Links inside the root are copied as links."""
    done = TreeCopy()
    hidden_depth = 0
    source, target = job.source, job.target
    with closing(Descent(staged_fd)) as staged:
        for visit in visits(job.top_fd, job.top_path, cancellation):
            is_directory = visit.kind != "entry"
            landing = visit.landing(job.top_path, job.target_path)
            if hidden_depth or source.hides(visit.path, is_directory):
                hidden_depth += {"enter": 1, "leave": -1, "entry": 0}[visit.kind]
            elif _is_skipped(job, visit, landing, is_directory):
                hidden_depth += visit.kind == "enter"
                done.skipped.append(visit.path)
            else:
                with errors_at(target, escape_name(landing)):
                    if is_directory:
                        _copy_directory(visit, staged, whole=job.whole)
                    else:
                        _copy_entry(job, visit, staged.fd, done, cancellation)
    with errors_at(target, escape_name(job.target_path)):
        sync_tree(staged_fd, done.files)
    return done


def is_denied(source: Root, visit: Visit, target: Root, landing: str) -> bool:
    """Whether an entry of a directory may not be at its place in the target. A link may lead to anything."""
    if stat.S_ISLNK(visit.status.st_mode) and target.may_hide_below(landing):
        return True
    if target.denied is None:
        return False
    if stat.S_ISLNK(visit.status.st_mode):
        same = source.denied is not None and source.denied.patterns == target.denied.patterns
        return target.denied.match_entry(landing, None) or not target.denied.judge_alike(
            visit.path if same else "", landing
        )
    return target.denied.match_entry(landing, visit.kind != "entry")


def _is_skipped(job: CopyJob, visit: Visit, landing: str, is_directory: bool) -> bool:
    """Whether an entry may not be at its place in the target, or shows content that the source hides."""
    source, target = job.source, job.target
    if target.hides(landing, is_directory):
        return True
    if is_denied(source, visit, target, landing):
        return True
    hidden = source.credentials is not None and source.credentials.match_entry(visit.path, is_directory)
    hidden_there = target.credentials is not None and target.credentials.match_entry(landing, is_directory)
    # A move does not show what stays hidden.
    return hidden and not hidden_there if job.whole else hidden or hidden_there


def _copy_directory(visit: Visit, staged: Descent, *, whole: bool) -> None:
    if visit.kind == "enter":
        os.mkdir(visit.name, stat.S_IMODE(visit.status.st_mode) & 0o777 | stat.S_IRWXU, dir_fd=staged.fd)
        staged.enter(visit.name)
        return
    if whole:
        with suppress(OSError), closed_after(os.open(visit.name, READ | os.O_DIRECTORY, dir_fd=visit.dir_fd)) as fd:
            keep_attributes(fd, visit.status, staged.fd)
    os.fsync(staged.fd)
    staged.leave()


def _copy_entry(job: CopyJob, visit: Visit, staged_fd: int, done: TreeCopy, cancellation: Cancellation) -> None:
    state = state_of(visit.status)
    if stat.S_ISREG(visit.status.st_mode):
        try:
            sync = done.files < _SYNCED_ONE_BY_ONE
            size, state = _copy_file(job, visit, staged_fd, cancellation, sync=sync)
        except FileNotFoundError:
            return
        done.bytes += size
    elif stat.S_ISLNK(visit.status.st_mode) and _stays_inside(job.source, visit):
        copy_link(visit.dir_fd, visit.name, staged_fd, visit.name, visit.status if job.whole else None)
    else:
        done.skipped.append(visit.path)
        return
    done.files += 1
    if job.whole:
        done.states[visit.path] = state


def _stays_inside(root: Root, visit: Visit) -> bool:
    with errors_at(root, escape_name(visit.path)):
        return root.confined.link_target(visit.dir_fd, visit.name, visit.path) != "external"


def _copy_file(
    job: CopyJob, visit: Visit, staged_fd: int, cancellation: Cancellation, *, sync: bool
) -> tuple[int, State]:
    """Copy a regular file into an open directory. Returns its size, and its state before it was read."""
    # A plain FileNotFoundError is one of a file that was removed meanwhile.
    with errors_at(job.source, escape_name(visit.path), passing=FileNotFoundError):
        fd = os.open(visit.name, READ, dir_fd=visit.dir_fd)
    with closed_after(fd):
        status = os.fstat(fd)
        mode = 0o600 if job.whole else stat.S_IMODE(status.st_mode) & 0o777
        with closed_after(os.open(visit.name, _NEW_FILE, mode, dir_fd=staged_fd)) as new:
            size = fill_from(job.source, visit.path, fd, new, cancellation)
            if job.whole:
                keep_attributes(fd, status, new)
            if sync:
                os.fsync(new)
    return size, state_of(status)


def fill_from(root: Root, path: str, source_fd: int, target_fd: int, cancellation: Cancellation) -> int:
    """Copy the content. An error of the source names it; one of the destination is `DestinationFailed`."""
    with errors_at(root, escape_name(path), passing=DestinationFailed):
        return copy_content(source_fd, target_fd, cancellation)


def copy_link(source_fd: int, source: str, target_fd: int, target: str, like: os.stat_result | None) -> None:
    """Create a copy of a link, with the owner and times of `like` if it is given."""
    os.symlink(os.readlink(source, dir_fd=source_fd), target, dir_fd=target_fd)
    if like is not None:
        with suppress(OSError):
            os.chown(target, like.st_uid, like.st_gid, dir_fd=target_fd, follow_symlinks=False)
        with suppress(OSError):
            os.utime(target, ns=(like.st_atime_ns, like.st_mtime_ns), dir_fd=target_fd, follow_symlinks=False)


@contextmanager
def staged_link(source_fd: int, source: str, target_fd: int, like: os.stat_result) -> Generator[str]:
    """A copy of the link under a staged name, removed at the end of the block unless it was renamed."""
    name = new_staged_name()
    copy_link(source_fd, source, target_fd, name, like)
    try:
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=target_fd)


def sync_tree(staged_fd: int, files: int) -> None:
    """Sync a staged tree to disk. The first files are already synced; many are faster with one `syncfs`."""
    if files > _SYNCED_ONE_BY_ONE and _libc.syncfs(staged_fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.fsync(staged_fd)


def merge(staged_fd: int, target: Root, target_fd: int, path: str, context: ChangeContext) -> None:
    """Move everything in a staged tree into an existing directory. Each file is replaced atomically."""
    _require_mergeable(staged_fd, target, target_fd, path, context.cancellation)
    with closing(Descent(target_fd)) as there:
        for visit in visits(staged_fd, path, context.cancellation):
            with errors_at(target, escape_name(visit.path)):
                if visit.kind == "enter":
                    with suppress(FileExistsError):
                        os.mkdir(visit.name, stat.S_IMODE(visit.status.st_mode), dir_fd=there.fd)
                    there.enter(visit.name)
                elif visit.kind == "leave":
                    os.fsync(there.fd)
                    there.leave()
                else:
                    with context.locks.holding(there.fd, wait_long=True):
                        _merge_entry(visit, there.fd)
    os.fsync(target_fd)


def _merge_entry(visit: Visit, target_fd: int) -> None:
    current = status_at(target_fd, visit.name)
    if current is not None and stat.S_ISREG(current.st_mode) and stat.S_ISREG(visit.status.st_mode):
        with closed_after(os.open(visit.name, READ, dir_fd=visit.dir_fd)) as fd:
            copy_owner_and_mode(fd, current)
    os.rename(visit.name, visit.name, src_dir_fd=visit.dir_fd, dst_dir_fd=target_fd)


def _require_mergeable(staged_fd: int, target: Root, target_fd: int, path: str, cancellation: Cancellation) -> None:
    """Raise, before anything is changed, if a file would replace a directory or a directory a file, or if this user may
    not change a directory of the target."""
    missing_depth = 0
    is_writable = [False]
    with closing(Descent(target_fd)) as there:
        for visit in visits(staged_fd, path, cancellation):
            if visit.kind == "leave":
                if missing_depth:
                    missing_depth -= 1
                else:
                    there.leave()
                    is_writable.pop()
                continue
            if missing_depth:
                missing_depth += visit.kind == "enter"
                continue
            with errors_at(target, escape_name(visit.path)):
                if _is_existing_directory(visit, there.fd):
                    there.enter(visit.name)
                    is_writable.append(False)
                    continue
                missing_depth = int(visit.kind == "enter")
                if not is_writable[-1]:
                    require_writable(there.fd, ".")
                    is_writable[-1] = True


def _is_existing_directory(visit: Visit, dir_fd: int) -> bool:
    """Whether the target already has the directory. Raise if the entry cannot be merged."""
    current = status_at(dir_fd, visit.name)
    is_directory = current is not None and stat.S_ISDIR(current.st_mode)
    if is_directory and visit.kind == "entry":
        raise IsADirectory("a directory exists where a file would be copied")
    if current is not None and not is_directory and visit.kind == "enter":
        raise NotADirectory("a file exists where a directory would be copied")
    return is_directory
