"""Goes through directories by descriptor, one name at a time and never through a link, to remove or copy them."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from armarium.capabilities.sandbox.describe import shown
from armarium.capabilities.sandbox.errors import PathIgnored
from armarium.capabilities.sandbox.roots import Root
from armarium.capabilities.sandbox.writes import copy_content, replace_file
from armarium.foundation.files.confine import open_child_directory
from armarium.foundation.files.errors import IsADirectory
from armarium.foundation.limits import Pulse

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Visit:
    """One step through a tree: an entry that is no directory, or the way into or out of one."""

    kind: Literal["entry", "enter", "leave"]
    dir_fd: int
    """The directory that holds the name."""
    name: str
    path: str
    """Relative to the root."""
    mode: int

    def landing(self, top_path: str, target_path: str) -> str:
        """Where the entry comes to stand when the tree at `top_path` is put at `target_path`."""
        below = self.path[len(top_path) :].lstrip("/")
        return f"{target_path}/{below}" if target_path else below


def visits(top_fd: int, top_path: str, pulse: Pulse) -> Generator[Visit]:
    """Everything below an open directory, parents around their children. What vanishes meanwhile is passed over."""
    levels: list[tuple[int, Visit | None, list[str]]] = [(top_fd, None, sorted(os.listdir(top_fd)))]
    seen = 0
    try:
        while levels:
            fd, way_in, names = levels[-1]
            if not names:
                levels.pop()
                if way_in is not None:
                    os.close(fd)
                    yield Visit("leave", way_in.dir_fd, way_in.name, way_in.path, way_in.mode)
                continue
            name = names.pop(0)
            seen += 1
            pulse.beat(seen)
            directory = way_in.path if way_in is not None else top_path
            path = f"{directory}/{name}" if directory else name
            with suppress(FileNotFoundError):
                mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                if not stat.S_ISDIR(mode):
                    yield Visit("entry", fd, name, path, mode)
                    continue
                child_fd = open_child_directory(fd, name)
                way = Visit("enter", fd, name, path, mode)
                levels.append((child_fd, way, sorted(os.listdir(child_fd))))
                yield way
    finally:
        for fd, way_in, _ in levels:
            if way_in is not None:
                os.close(fd)


def remove_contents(top_fd: int, pulse: Pulse) -> int:
    """Remove everything below an open directory; returns how many entries went."""
    removed = 0
    for visit in visits(top_fd, "", pulse):
        with suppress(FileNotFoundError):
            if visit.kind == "entry":
                os.unlink(visit.name, dir_fd=visit.dir_fd)
            elif visit.kind == "leave":
                os.rmdir(visit.name, dir_fd=visit.dir_fd)
        removed += visit.kind != "enter"
    return removed


def require_nothing_hidden(root: Root, top_fd: int, top_path: str, pulse: Pulse) -> None:
    """A directory that holds files hidden from agents is not theirs to remove or rename."""
    if root.ignore is None:
        return
    for visit in visits(top_fd, top_path, pulse):
        if root.ignore.hides(visit.path, visit.kind != "entry"):
            raise PathIgnored(f"directory holds files hidden by the ignore list: {top_path}")


@dataclass(slots=True)
class TreeCopy:
    """What copying a directory did."""

    files: int = 0
    bytes: int = 0
    skipped: list[str] = field(default_factory=list[str])
    """Paths that were left out: links that lead outside, FIFOs, sockets and devices, names hidden at the target."""


def copy_tree(
    source: Root, top_fd: int, top_path: str, target: Root, target_fd: int, target_path: str, pulse: Pulse
) -> TreeCopy:
    """Copy everything below one open directory into another. Links that stay inside the root are kept as links."""
    done = TreeCopy()
    targets = [target_fd]
    hidden_depth = 0
    try:
        for visit in visits(top_fd, top_path, pulse):
            is_directory = visit.kind != "entry"
            if hidden_depth or (source.ignore and source.ignore.hides(visit.path, is_directory)):
                hidden_depth += {"enter": 1, "leave": -1, "entry": 0}[visit.kind]
            elif target.ignore and target.ignore.hides(visit.landing(top_path, target_path), is_directory):
                hidden_depth += visit.kind == "enter"
                done.skipped.append(visit.path)
            elif visit.kind == "enter":
                targets.append(made_directory(targets[-1], visit.name, stat.S_IMODE(visit.mode)))
            elif visit.kind == "leave":
                os.close(targets.pop())
            else:
                _copy_entry(source, visit, targets[-1], done, pulse)
    finally:
        for fd in targets[1:]:
            os.close(fd)
    return done


def made_directory(dir_fd: int, name: str, mode: int) -> int:
    """Create a directory unless it is there, and open it."""
    with suppress(FileExistsError):
        os.mkdir(name, mode | stat.S_IRWXU, dir_fd=dir_fd)
    return open_child_directory(dir_fd, name)


def _copy_entry(source: Root, visit: Visit, target_fd: int, done: TreeCopy, pulse: Pulse) -> None:
    if stat.S_ISREG(visit.mode):
        with suppress(FileNotFoundError):
            done.bytes += copy_file(visit.dir_fd, visit.name, target_fd, visit.name, pulse)
            done.files += 1
    elif stat.S_ISLNK(visit.mode) and source.confined.link_target(visit.dir_fd, visit.name, visit.path) != "external":
        copy_link(visit.dir_fd, visit.name, target_fd, visit.name)
        done.files += 1
    else:
        done.skipped.append(visit.path)


def copy_file(source_fd: int, source: str, target_fd: int, target: str, pulse: Pulse) -> int:
    """Copy a regular file by name from one open directory to another; returns its size."""
    fd = os.open(source, _READ, dir_fd=source_fd)
    try:
        status = os.fstat(fd)
        copied = 0

        def fill(new: int) -> None:
            nonlocal copied
            copied = copy_content(fd, new, pulse)

        replace_file(
            target_fd,
            target,
            fill,
            like=_regular_at(target_fd, target),
            new_mode=stat.S_IMODE(status.st_mode) & 0o777,
            shown=target,
        )
    finally:
        os.close(fd)
    return copied


def copy_link(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """Make the same link elsewhere, in the place of a file or link that may stand there."""
    with suppress(FileNotFoundError):
        os.unlink(target, dir_fd=target_fd)
    os.symlink(os.readlink(source, dir_fd=source_fd), target, dir_fd=target_fd)


def _regular_at(dir_fd: int, name: str) -> os.stat_result | None:
    try:
        status = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectory(f"a directory stands where a file would be copied: {shown(name)}")
    return status if stat.S_ISREG(status.st_mode) else None
