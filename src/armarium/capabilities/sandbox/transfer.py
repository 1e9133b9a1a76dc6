"""Copies, moves and removes: what an agent asks for, in terms of roots and paths."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from armarium.capabilities.sandbox import trees
from armarium.capabilities.sandbox.describe import shown
from armarium.capabilities.sandbox.errors import AlreadyExists, CannotRemoveRoot
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.writes import FileLocks, copy_content, place_for_writing, replace_file, require_match
from armarium.foundation.errors import InvalidArgument
from armarium.foundation.files.confine import open_child_directory
from armarium.foundation.files.errors import IsADirectory, NotADirectory, NotARegularFile, PathEscapesRoot
from armarium.foundation.limits import Pulse


@dataclass(slots=True)
class Transferred:
    """What a copy or move did."""

    destination: str
    is_directory: bool
    size: int = 0
    files: int = 1
    skipped: list[str] = field(default_factory=list[str])
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """A name in a directory and what stands there; a link is the link."""

    dir_fd: int
    name: str
    mode: int


@contextmanager
def _entry(root: Root, path: str) -> Generator[_Entry]:
    with root.confined.opened_parent(path) as (dir_fd, name):
        mode = os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
        if root.ignore:
            directory = root.confined.locate(dir_fd)
            root.require_visible(f"{directory}/{name}" if directory else name, is_directory=stat.S_ISDIR(mode))
        yield _Entry(dir_fd, name, mode)


@contextmanager
def _inside(entry: _Entry) -> Generator[int]:
    fd = open_child_directory(entry.dir_fd, entry.name)
    try:
        yield fd
    finally:
        os.close(fd)


def remove_file(root: Root, path: str, if_match: str | None, locks: FileLocks, pulse: Pulse) -> None:
    """Remove a file or a link, never what the link leads to."""
    with _entry(root, path) as entry, locks.holding((entry.dir_fd, entry.name)):
        if stat.S_ISDIR(entry.mode):
            raise IsADirectory(f"is a directory: {path}", hint="use remove_folder")
        require_match(entry.dir_fd, entry.name, if_match, path, pulse)
        os.unlink(entry.name, dir_fd=entry.dir_fd)
        os.fsync(entry.dir_fd)


def remove_folder(root: Root, path: str, pulse: Pulse) -> int:
    """Remove a directory and everything in it; returns how many entries went."""
    if not path:
        raise CannotRemoveRoot("cannot remove root directory")
    with _entry(root, path) as entry:
        if not stat.S_ISDIR(entry.mode):
            what = "a link" if stat.S_ISLNK(entry.mode) else "a file"
            raise NotADirectory(f"is {what}, not a directory: {path}", hint="use remove_file")
        with _inside(entry) as fd:
            trees.require_nothing_hidden(root, fd, path, pulse)
            removed = trees.remove_contents(fd, pulse)
        os.rmdir(entry.name, dir_fd=entry.dir_fd)
        os.fsync(entry.dir_fd)
        return removed + 1


@dataclass(frozen=True, slots=True)
class Source:
    """What is to be copied, found: a link given as the source has been followed."""

    root: Root
    path: str
    name: str
    is_directory: bool


def copy_source(root: Root, path: str) -> Source:
    """Find what is to be copied."""
    with root.confined.opened(path, os.O_PATH) as fd:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        real = root.confined.locate(fd, last_known=True)
    root.require_visible(real, is_directory=is_directory)
    return Source(root, real, path.rpartition("/")[2] or root.name, is_directory)


def copy(found: Source, target: Root, wanted: str, if_match: str | None, locks: FileLocks, pulse: Pulse) -> Transferred:
    """Copy a file, or a directory with all it holds."""
    source, real = found.root, found.path
    destination = _destination(target, wanted, found.name)
    if not found.is_directory:
        return _copy_file(source, real, target, destination, if_match, locks, pulse)
    if if_match is not None:
        raise InvalidArgument("`if_match` is the hash of a file; the source is a directory")
    landing = target.whereabouts(destination)
    _refuse_into_itself(source, real, target, landing)
    target.require_visible(landing, is_directory=True)
    top_fd = source.confined.open_directory(real)
    try:
        target_fd = target.confined.make_directories(destination)
        try:
            done = trees.copy_tree(source, top_fd, real, target, target_fd, landing, pulse)
        finally:
            os.close(target_fd)
    finally:
        os.close(top_fd)
    return Transferred(destination, True, done.bytes, done.files, done.skipped)


def _copy_file(
    source: Root, path: str, target: Root, destination: str, if_match: str | None, locks: FileLocks, pulse: Pulse
) -> Transferred:
    with source.confined.opened_regular(path) as (fd, status):
        if source.ignore:
            source.require_visible(source.confined.locate(fd, last_known=True))
        if if_match is not None:
            with source.confined.opened_parent(path) as (dir_fd, name):
                require_match(dir_fd, name, if_match, path, pulse)
        with place_for_writing(target, destination, locks, make_parents=True) as place:
            if place.current is not None and os.path.samestat(place.current, status):
                raise InvalidArgument("source and destination are the same file")
            size = 0

            def fill(new: int) -> None:
                nonlocal size
                size = copy_content(fd, new, pulse)

            mode = stat.S_IMODE(status.st_mode) & 0o777
            replace_file(place.dir_fd, place.name, fill, like=place.current, new_mode=mode, shown=destination)
            return Transferred(destination, False, size, replaced=place.current is not None)


def require_movable_source(root: Root, path: str) -> None:
    """Raise if there is nothing at the path, or it is the root itself."""
    if not path:
        raise CannotRemoveRoot("cannot move root directory")
    with _entry(root, path):
        pass


def move(
    source: Root, path: str, target: Root, wanted: str, if_match: str | None, locks: FileLocks, pulse: Pulse
) -> Transferred:
    """Rename within a root; between roots, copy and then remove. A link is moved itself."""
    destination = _destination(target, wanted, path.rpartition("/")[2])
    parent, _, new_name = destination.rpartition("/")
    landing = target.whereabouts(parent)
    landing = f"{landing}/{new_name}" if landing else new_name
    target.require_visible(landing)
    if source is target and landing == path:
        raise InvalidArgument("source and destination are the same")
    with _entry(source, path) as entry:
        is_directory = stat.S_ISDIR(entry.mode)
        if is_directory:
            if if_match is not None:
                raise InvalidArgument("`if_match` is the hash of a file; the source is a directory")
            with _inside(entry) as fd:
                _refuse_into_itself(source, source.confined.locate(fd), target, landing)
                trees.require_nothing_hidden(source, fd, path, pulse)
        # Whatever speaks against the move is found before a directory is made for it.
        require_match(entry.dir_fd, entry.name, if_match, path, pulse)
        if source is not target:
            _require_all_movable(source, path, entry, target, landing, pulse)
        target_fd = target.confined.make_directories(parent)
        try:
            with locks.holding((entry.dir_fd, entry.name), (target_fd, new_name)):
                require_match(entry.dir_fd, entry.name, if_match, path, pulse)
                replaced = _something_at(target_fd, new_name)
                if source is not target:
                    _carry(source, path, entry, target, target_fd, new_name, landing, pulse)
                elif not _renamed(entry, target_fd, new_name):
                    _require_all_movable(source, path, entry, target, landing, pulse)
                    _carry(source, path, entry, target, target_fd, new_name, landing, pulse)
            os.fsync(target_fd)
        finally:
            os.close(target_fd)
        os.fsync(entry.dir_fd)
    return Transferred(destination, is_directory, replaced=replaced)


def _renamed(entry: _Entry, target_fd: int, new_name: str) -> bool:
    """Rename in one step; False when the two places are on different file systems."""
    try:
        os.rename(entry.name, new_name, src_dir_fd=entry.dir_fd, dst_dir_fd=target_fd)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _require_all_movable(source: Root, path: str, entry: _Entry, target: Root, landing: str, pulse: Pulse) -> None:
    """Raise if carrying the entry to another file system or root would lose something."""
    if not stat.S_ISDIR(entry.mode):
        _require_movable(source, entry.dir_fd, entry.name, path, entry.mode)
        return
    with _inside(entry) as fd:
        for visit in trees.visits(fd, path, pulse):
            target.require_visible(visit.landing(path, landing), is_directory=visit.kind != "entry")
            if visit.kind == "entry":
                _require_movable(source, visit.dir_fd, visit.name, visit.path, visit.mode)


def _carry(
    source: Root, path: str, entry: _Entry, target: Root, target_fd: int, new_name: str, landing: str, pulse: Pulse
) -> None:
    """Copy the entry, of which all is known to be movable, and then remove it."""
    if stat.S_ISDIR(entry.mode):
        _require_room_for_directory(target_fd, new_name, landing)
        with _inside(entry) as fd:
            new_fd = trees.made_directory(target_fd, new_name, stat.S_IMODE(entry.mode))
            try:
                trees.copy_tree(source, fd, path, target, new_fd, landing, pulse)
            finally:
                os.close(new_fd)
            trees.remove_contents(fd, pulse)
        os.rmdir(entry.name, dir_fd=entry.dir_fd)
        return
    if stat.S_ISLNK(entry.mode):
        trees.copy_link(entry.dir_fd, entry.name, target_fd, new_name)
    else:
        trees.copy_file(entry.dir_fd, entry.name, target_fd, new_name, pulse)
    os.unlink(entry.name, dir_fd=entry.dir_fd)


def _require_room_for_directory(dir_fd: int, name: str, path: str) -> None:
    """As a rename would: a directory takes the place of nothing or of an empty directory."""
    try:
        fd = open_child_directory(dir_fd, name)
    except FileNotFoundError:
        return
    try:
        if os.listdir(fd):
            raise AlreadyExists(f"a directory that is not empty is there: {shown(path)}")
    finally:
        os.close(fd)


def _require_movable(root: Root, dir_fd: int, name: str, path: str, mode: int) -> None:
    if stat.S_ISLNK(mode):
        if root.confined.link_target(dir_fd, name, path) == "external":
            raise PathEscapesRoot(f"a link that leads outside cannot be moved to another root: {shown(path)}")
    elif not stat.S_ISREG(mode):
        raise NotARegularFile(f"not a regular file, cannot be moved to another root: {shown(path)}")


def _destination(root: Root, wanted: str, name: str) -> str:
    """Where the entry goes: into the wanted path if that is a directory, else there."""
    try:
        with root.confined.opened(wanted, os.O_PATH) as fd:
            if not stat.S_ISDIR(os.fstat(fd).st_mode):
                return wanted
            directory = root.confined.locate(fd)
    except FileNotFoundError:
        return wanted
    return f"{directory}/{name}" if directory else name


def _something_at(dir_fd: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _refuse_into_itself(source: Root, path: str, target: Root, destination: str) -> None:
    # By host path, because one root may lie inside another.
    old = os.path.join(source.confined.real_path, path).rstrip("/")
    new = os.path.join(target.confined.real_path, destination)
    if f"{new}/".startswith(f"{old}/"):
        raise InvalidArgument("a directory cannot be copied or moved into itself")
