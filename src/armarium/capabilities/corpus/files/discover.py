"""Finds the files of a directory that may be indexed: in the order of their paths, each once, and none that is hidden.

Files and directories whose names cannot be part of a document's path are left out, and told to the caller by an
escaped name.
"""

from __future__ import annotations

import errno
import math
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from armarium.capabilities.corpus.files.exclusion import Exclusion
from armarium.capabilities.corpus.files.paths import ARCHIVE_MARK, is_storable, printable
from armarium.foundation.cancellation import Cancellation
from armarium.foundation.files.confine import ConfinedRoot
from armarium.foundation.files.errors import FileError
from armarium.foundation.files.ignore import GitIgnores
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.walk import Bounds, Entries, EntryKind, Selection, Walk, Watch

_Identity = tuple[int, int]


class FoundFile(NamedTuple):
    """A regular file, as it was when the walk came by."""

    rel_path: str
    """As `escape_name` writes it."""
    size_bytes: int
    mtime_ns: int
    inode: int

    @property
    def mtime_unix(self) -> int:
        return self.mtime_ns // 1_000_000_000


@dataclass(frozen=True, slots=True)
class Unnameable:
    """A file, or a directory with everything in it, that has no path a document can have."""

    shown_path: str
    """Printable; not the path itself."""
    reason: str


@dataclass(frozen=True, slots=True)
class DiscoveryRules:
    """What belongs to the corpus."""

    exclusion: Exclusion
    gitignore: bool = True
    """Leave out what .gitignore files of the tree leave out."""
    follow_symlinks: bool = False
    """Follow links that stay inside the root. What a link leads to is found under its own path if the walk comes there
    anyway, and under the link's if not: every document once, and a new link never renames one."""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """How large a document may be, by its type."""

    max_bytes: int
    by_doc_type: Mapping[str, int] = field(default_factory=dict[str, int])

    def allows(self, doc_type: str, size_bytes: int) -> bool:
        """Whether a document of that type and size is read at all."""
        return size_bytes <= self.by_doc_type.get(doc_type, self.max_bytes)


def discover(
    root: ConfinedRoot,
    rules: DiscoveryRules,
    cancellation: Cancellation,
    unnameable: Callable[[Unnameable], None] | None = None,
) -> Iterator[FoundFile]:
    """The files to index, in the order of their paths.

    What vanishes or is swapped meanwhile is left out. A root that is gone or cannot be read raises `OSError`, because
    an empty corpus would be taken for one whose files were all deleted.
    """
    if os.fstat(root.fd).st_nlink == 0:
        raise FileNotFoundError(errno.ENOENT, "the root directory was deleted")
    discovery = _Discovery(root, rules, cancellation, unnameable)
    return discovery.with_links() if rules.follow_symlinks else discovery.without_links()


def discover_below(
    root: ConfinedRoot, rules: DiscoveryRules, directory: str, cancellation: Cancellation
) -> Iterator[FoundFile]:
    """The files to index below one directory, which itself belongs to the corpus. Links are not followed."""
    with root.opened(directory, os.O_RDONLY | os.O_DIRECTORY) as fd:
        yield from _Discovery(root, rules, cancellation, None).files_below(fd, directory)


class _Discovery:
    """One pass over the root."""

    def __init__(
        self,
        root: ConfinedRoot,
        rules: DiscoveryRules,
        cancellation: Cancellation,
        unnameable: Callable[[Unnameable], None] | None,
    ) -> None:
        self.exclusion = rules.exclusion
        self.unnameable = unnameable
        self._root = root
        self._rules = rules
        self._watch = Watch(math.inf, cancellation)
        self._links: deque[str] = deque()
        self._files: set[_Identity] = set()
        self._directories: set[_Identity] = set()

    def without_links(self) -> Iterator[FoundFile]:
        """The files of the tree itself."""
        return self.files_below(self._root.fd, "")

    def files_below(self, fd: int, directory: str) -> Iterator[FoundFile]:
        """The files of one directory and of those in it."""
        for rel_path, status in self._statuses("file", fd, directory, directory):
            if stat.S_ISREG(status.st_mode):
                yield FoundFile(escape_name(rel_path), status.st_size, status.st_mtime_ns, status.st_ino)

    def with_links(self) -> Iterator[FoundFile]:
        """The files of the tree, and those that links inside it add. In memory, to be put in order."""
        self._directories.add(_identity(os.fstat(self._root.fd)))
        found = list(self._below(self._root.fd, "", ""))
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
                yield FoundFile(escape_name(rel_path), status.st_size, status.st_mtime_ns, status.st_ino)

    def _behind(self, link: str) -> list[FoundFile]:
        """The files that a link adds: none when it leads outside, nowhere, to what is hidden or to what is known."""
        try:
            with self._root.opened(link, os.O_PATH) as fd:
                located, status = self._root.locate(fd), os.fstat(fd)
                is_directory = stat.S_ISDIR(status.st_mode)
                known = self._directories if is_directory else self._files
                if _identity(status) in known or any(
                    self.exclusion.excludes_path(path, is_directory=is_directory) for path in (link, located)
                ):
                    return []
                if is_directory:
                    known.add(_identity(status))
                    return list(self._below(fd, link, located))
                if not stat.S_ISREG(status.st_mode):
                    return []
                known.add(_identity(status))
                return [FoundFile(escape_name(link), status.st_size, status.st_mtime_ns, status.st_ino)]
        except (OSError, FileError):
            return []

    def _statuses(self, kind: EntryKind, fd: int, shown: str, located: str) -> Iterator[tuple[str, os.stat_result]]:
        # What git leaves out at its own path may be wanted through a link, so git's rules are asked about the link's.
        gitignores = GitIgnores.above(self._root.fd, shown) if self._rules.gitignore else None
        bounds = Bounds(math.inf, gitignores=gitignores)
        selection = _Visible(self, shown and f"{shown}/", located and f"{located}/")
        with closing(Walk(fd, shown, selection, kind, bounds, self._watch).runs()) as runs:
            for directory_fd, directory, names in runs:
                for name in names:
                    try:
                        status = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
                    except OSError:
                        continue
                    yield directory + name, status


class _Visible:
    """Selects in one directory what is neither excluded nor without a usable name."""

    def __init__(self, discovery: _Discovery, shown: str, located: str) -> None:
        self._discovery = discovery
        self._shown = shown
        self._located = located
        self._left_out: set[str] = set()

    def choose(self, entries: Entries, directory: str, /) -> Entries:
        """The entries to look at; `enter` goes by the same choice."""
        may_hide = self._discovery.exclusion.may_hide_entry
        left_out = self._left_out
        for entry in entries:
            name = entry.name
            if may_hide(name) and self._excludes(entry):
                left_out.add(name)
            elif not name.isprintable() and not is_storable(escape_name(name)):
                self._reject(name, "the name holds control characters")
            elif name[-1] == ARCHIVE_MARK and _passes_for_archive(entry, entries):
                self._reject(name, "the path would be that of a member of the archive beside it")
        return [entry for entry in entries if entry.name not in left_out] if left_out else entries

    def enter(self, name: str, /) -> Selection | None:
        """What to select in a subdirectory; None when it was left out."""
        if name in self._left_out:
            return None
        return _Visible(self._discovery, f"{self._shown}{name}/", f"{self._located}{name}/")

    def _excludes(self, entry: os.DirEntry[str]) -> bool:
        excludes, is_directory = self._discovery.exclusion.excludes_entry, entry.is_dir(follow_symlinks=False)
        # Behind a link the same entry has two paths, and neither may be an excluded one.
        return excludes(self._located + entry.name, is_directory) or (
            self._shown != self._located and excludes(self._shown + entry.name, is_directory)
        )

    def _reject(self, name: str, reason: str) -> None:
        self._left_out.add(name)
        if self._discovery.unnameable is not None:
            self._discovery.unnameable(Unnameable(printable(self._shown + name), reason))


def _passes_for_archive(entry: os.DirEntry[str], entries: Entries) -> bool:
    return not entry.is_file(follow_symlinks=False) and any(other.name == entry.name[:-1] for other in entries)


def _identity(status: os.stat_result) -> _Identity:
    return status.st_dev, status.st_ino
