"""Finds the files to index, in path order, each once.

Files and directories whose names cannot be part of a document's path are left out, and reported by an escaped name.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import unicodedata
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.foundation.concurrency.cancellation import Cancellation
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.errors import FileError
from armarium.foundation.files.ignore import GitIgnores
from armarium.foundation.files.names import escape_name, leads_through_staged
from armarium.foundation.files.walk import Bounds, Entries, EntryKind, Selection, Walk, Watch

ARCHIVE_MARK = "!"
"""Follows an archive's name in the path of a member: `outer.zip!/inner/name.md`."""
MEMBER_MARK = f"{ARCHIVE_MARK}/"
"""Separates the path of an archive from the path of a member."""

_LINE_ENDS = ("\u2028", "\u2029")


class FoundFile(NamedTuple):
    """A regular file, at the time of the walk."""

    rel_path: str
    """Escaped by `escape_name`."""
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class DiscoveryRules:
    """Which files belong to the corpus."""

    exclusion: Exclusion
    gitignore: bool = True
    """Exclude what .gitignore files exclude."""
    follow_symlinks: bool = False
    """Follow links that stay inside the root. A file that the walk also reaches directly is found under its own path,
    otherwise under the link's. So each document is found once, and a new link never renames one."""


def discover(
    root: ConfinedRoot,
    rules: DiscoveryRules,
    cancellation: Cancellation,
    unnameable: Callable[[str, str], None] | None = None,
) -> Iterator[FoundFile]:
    """The files to index, in path order, without those that vanish meanwhile. Raises `OSError` if the root is gone or
    unreadable: an empty result would mean that all files were deleted. `unnameable` receives the printable path of each
    file or directory whose name cannot be part of a document's path, and the reason."""
    if os.fstat(root.fd).st_nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "the root directory was deleted")
    discovery = _Discovery(root, rules, cancellation, unnameable)
    return discovery.with_links() if rules.follow_symlinks else discovery.files_below(root.fd, "")


def rediscover(
    root: ConfinedRoot, rules: DiscoveryRules, rel_path: str, cancellation: Cancellation
) -> Iterator[FoundFile]:
    """The files at a path that changed: a file, the files of a directory, or nothing that belongs to the corpus.
    `rel_path` is the name in the file system. Links are not followed: if the rules follow them, only a whole discovery
    can tell what a change adds or removes."""
    if not is_storable(escape_name(rel_path)) or leads_through_staged(rel_path):
        return
    try:
        with root.opened(rel_path, os.O_PATH | os.O_NOFOLLOW) as fd:
            status = os.fstat(fd)
            is_directory = stat.S_ISDIR(status.st_mode)
            if root.locate(fd) != rel_path or rules.exclusion.excludes_path(rel_path, is_directory=is_directory):
                return
            if rules.gitignore and git_hides(root, rel_path, is_directory=is_directory):
                return
            if stat.S_ISREG(status.st_mode):
                yield _found(rel_path, status)
            elif is_directory:
                with root.opened(rel_path, os.O_RDONLY | os.O_DIRECTORY) as directory:
                    yield from _Discovery(root, rules, cancellation).files_below(directory, rel_path)
    except (OSError, FileError):
        return


def git_hides(root: ConfinedRoot, rel_path: str, *, is_directory: bool = False) -> bool:
    """Whether a .gitignore excludes the path or a directory above it."""
    scopes = GitIgnores.above(root.fd, rel_path).scopes
    ends = [index for index, char in enumerate(rel_path) if char == "/"] + [len(rel_path)]
    return any(
        # Only .gitignore files above a step apply to it, not those further down the path.
        GitIgnores(tuple(scope for scope in scopes if step.startswith(scope[0]))).hides_entry(
            step, is_directory or step != rel_path
        )
        for step in (rel_path[:end] for end in ends)
    )


@dataclass(frozen=True, slots=True)
class _Discovery:
    """One walk over the root."""

    root: ConfinedRoot
    rules: DiscoveryRules
    cancellation: Cancellation
    unnameable: Callable[[str, str], None] | None = None
    _links: deque[str] = field(default_factory=deque[str])
    _files: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    _directories: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    def files_below(self, fd: int, directory: str) -> Iterator[FoundFile]:
        """The files of one directory and its subdirectories. Links are not followed."""
        for rel_path, status in self._statuses("file", fd, directory, directory):
            if stat.S_ISREG(status.st_mode):
                yield _found(rel_path, status)

    def with_links(self) -> Iterator[FoundFile]:
        """The files of the tree, and those that links inside it add. Collected in memory for sorting."""
        self._directories.add(_identity(os.fstat(self.root.fd)))
        found = list(self._below(self.root.fd, "", ""))
        while self._links:
            found += self._behind(self._links.popleft())
        found.sort()
        yield from found

    def _below(self, fd: int, shown: str, located: str) -> Iterator[FoundFile]:
        for rel_path, status in self._statuses("all", fd, shown, located):
            if stat.S_ISLNK(status.st_mode):
                self._links.append(rel_path)
            elif stat.S_ISDIR(status.st_mode):
                self._directories.add(_identity(status))
            elif stat.S_ISREG(status.st_mode) and not (located and _identity(status) in self._files):
                self._files.add(_identity(status))
                yield _found(rel_path, status)

    def _behind(self, link: str) -> list[FoundFile]:
        """The files that a link adds: none if it leads outside, is broken, or leads to excluded or known files."""
        try:
            with self.root.opened(link, os.O_PATH) as fd:
                located, status = self.root.locate(fd), os.fstat(fd)
                is_directory = stat.S_ISDIR(status.st_mode)
                known = self._directories if is_directory else self._files
                if _identity(status) in known or any(
                    self.rules.exclusion.excludes_path(path, is_directory=is_directory) for path in (link, located)
                ):
                    return []
                known.add(_identity(status))
                if is_directory:
                    return list(self._below(fd, link, located))
                return [_found(link, status)] if stat.S_ISREG(status.st_mode) else []
        except (OSError, FileError):
            return []

    def _statuses(self, kind: EntryKind, fd: int, shown: str, located: str) -> Iterator[tuple[str, os.stat_result]]:
        # A file that git excludes at its own path may be wanted through a link, so git's rules apply to the link's
        # path.
        gitignores = GitIgnores.above(self.root.fd, shown) if self.rules.gitignore else None
        bounds, watch = Bounds(math.inf, gitignores=gitignores), Watch(math.inf, self.cancellation)
        selection = _Visible(self, shown and f"{shown}/", located and f"{located}/")
        with closing(Walk(fd, shown, selection, kind, bounds, watch).runs()) as runs:
            for directory_fd, directory, names in runs:
                for name in names:
                    try:
                        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
                    except OSError:
                        continue
                    yield directory + name, status


@dataclass(frozen=True, slots=True)
class _Visible:
    """Selects the entries of one directory that are not excluded and have a valid name."""

    discovery: _Discovery
    shown: str
    located: str
    _left_out: set[str] = field(default_factory=set[str])

    def choose(self, entries: Entries, directory: str, /) -> Entries:
        """The entries to visit. `enter` uses the same choice."""
        may_hide = self.discovery.rules.exclusion.may_hide_entry
        left_out = self._left_out
        for entry in entries:
            name = entry.name
            if may_hide(name) and self._excludes(entry):
                left_out.add(name)
            elif not name.isprintable() and not is_storable(escape_name(name)):
                self._reject(name, "the name holds control characters")
            elif (
                name[-1] == ARCHIVE_MARK
                and not entry.is_file(follow_symlinks=False)
                and any(other.name == name[:-1] for other in entries)
            ):
                self._reject(name, "the path would be that of a member of the archive beside it")
        return [entry for entry in entries if entry.name not in left_out] if left_out else entries

    def enter(self, name: str, /) -> Selection | None:
        """The selection for a subdirectory, or None if it was left out."""
        if name in self._left_out:
            return None
        return _Visible(self.discovery, f"{self.shown}{name}/", f"{self.located}{name}/")

    def _excludes(self, entry: os.DirEntry[str]) -> bool:
        excludes, is_directory = self.discovery.rules.exclusion.excludes_entry, entry.is_dir(follow_symlinks=False)
        # Behind a link the same entry has two paths, and neither may be excluded.
        return excludes(self.located + entry.name, is_directory) or (
            self.shown != self.located and excludes(self.shown + entry.name, is_directory)
        )

    def _reject(self, name: str, reason: str) -> None:
        self._left_out.add(name)
        if self.discovery.unnameable is not None:
            self.discovery.unnameable(printable(self.shown + name), reason)


def _found(rel_path: str, status: os.stat_result) -> FoundFile:
    return FoundFile(escape_name(rel_path), status.st_size, status.st_mtime_ns)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def is_storable(name: str) -> bool:
    """Whether the name can be part of a path, which is stored, sent as JSON and written into citations."""
    if name.isprintable():
        return True
    return not any(unicodedata.category(char) in ("Cc", "Cs") or char in _LINE_ENDS for char in name)


def printable(path: str) -> str:
    """A path with all unprintable parts escaped. For display only, not for opening."""
    # Whether all unpaired surrogates stand for bytes that are not UTF-8.
    is_from_bytes = all(char < "\ud800" or char > "\udfff" or "\udc80" <= char <= "\udcff" for char in path)
    text = path.encode("utf-8", "surrogateescape" if is_from_bytes else "backslashreplace")
    readable = text.decode("utf-8", "backslashreplace")
    return "".join(char if is_storable(char) else char.encode("unicode_escape").decode() for char in readable)
