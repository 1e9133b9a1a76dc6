"""Canonical paths of a project's files: relative, with links resolved, and never outside the project."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from functools import cache
from urllib.parse import unquote, urlsplit

from armarium.capabilities.registry.errors import InvalidPath, ValidationError
from armarium.capabilities.registry.settings import STATE_DIRECTORY
from armarium.capabilities.registry.storage.columns import has_unprintable
from armarium.foundation.files.beneath import MAX_LINKS, closed_after
from armarium.foundation.files.confine import MAX_PATH_BYTES, ConfinedRoot, normalise
from armarium.foundation.files.errors import FileError, PathEscapesRoot
from armarium.foundation.files.path_rules import PathRules

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:([/\\]|$)|~[\w.-]*([/\\]|$)")
"""Paths from the root, a drive, a share, or a home directory."""
FILE_SCHEME = "file:"
_NOTHING = PathRules(())
_NOT_THERE = (FileNotFoundError, NotADirectoryError)
_HINT = "give the path relative to the project's directory, like src/app.py"


class ProjectPaths:
    """Converts paths to their canonical form, and refuses those that lead out of the project."""

    def __init__(self, root: ConfinedRoot, named: str, *, cached: bool = False, hidden: PathRules = _NOTHING) -> None:
        """`named` is the project's path in the settings, which may contain links. `cached` keeps the locations of
        directories. `hidden` are files whose content is not read."""
        self._root, self._named, self._hidden = root, named, hidden
        self._bases = tuple(base.rstrip("/") + "/" for base in dict.fromkeys((root.real_path, named)))
        self._location = cache(self._locate) if cached else self._locate
        self._absent: set[str] = set()
        """Paths that were resolved, and did not exist then."""
        self._cached = cached

    def with_cache(self) -> ProjectPaths:
        """The same with a cache of directories, for many paths at one time."""
        return ProjectPaths(self._root, self._named, cached=True, hidden=self._hidden)

    def canonical(self, path: str) -> str:
        """The path of a file relative to the project, whether it exists or not. Links are resolved as the file system
        does, also links to files that do not exist."""
        found = self._resolved(_names(path))
        if found is None or path.endswith("/"):
            raise ValidationError("the path is a directory; files are registered", hint=_HINT)
        if found.partition("/")[0] == STATE_DIRECTORY:
            raise ValidationError(f"the registry's own files in {STATE_DIRECTORY} are not registered", hint=_HINT)
        return found

    def exists(self, canonical: str) -> bool:
        with suppress(OSError, FileError), closed_after(self._root.open(canonical, os.O_PATH)):
            return True
        return False

    def hides(self, canonical: str) -> bool:
        """Whether the content of the file is hidden from callers."""
        return self._hidden.match(canonical)

    def read(self, canonical: str, max_bytes: int) -> str | None:
        """The text of a file; None if there is no such file, if it is hidden, not text, or larger."""
        if self.hides(canonical) or (self._cached and canonical in self._absent):
            return None
        with suppress(OSError, FileError), self._root.opened_regular(canonical) as (fd, status):
            if status.st_size <= max_bytes:
                with open(fd, "rb", closefd=False) as file:
                    data = file.read(max_bytes)
                return None if b"\0" in data else data.decode("utf-8", "replace")
        return None

    def relative(self, path: str) -> str:
        """Make a path from a report relative: a `file:` URI, or an absolute path inside the project."""
        if path[:5].lower() == FILE_SCHEME:
            try:
                path = unquote(urlsplit(path).path, errors="surrogateescape")
            except ValueError:
                raise InvalidPath("the URI of the file is invalid", hint=_HINT) from None
        for base in self._bases:
            if path.startswith(base):
                return path[len(base) :]
            if path + "/" == base:
                return ""
        return path

    def covered(self, path: str) -> str:
        """The canonical path of a scanned file or directory; "" is the project."""
        relative = self.relative(path)
        if relative in ("", ".", "./"):
            return ""
        return self._resolved(_names(relative), directories=True) or ""

    def _resolved(self, names: list[str], *, directories: bool = False) -> str | None:
        """The canonical path, or None for a directory unless `directories` allows it."""
        try:
            found, is_directory = self._resolve_names(names, through_files=directories)
        except OSError as error:
            reason = "its links form a loop" if error.errno == errno.ELOOP else "access is denied"
            raise InvalidPath(f"the path cannot be followed: {reason}", hint=_HINT) from None
        except FileError as error:
            raise _escapes(error) from None
        if has_unprintable(found) or len(os.fsencode(found)) > MAX_PATH_BYTES:
            raise InvalidPath("the path leads to a name that is not text, or is too long", hint="rename the file")
        return None if is_directory and not directories else found

    def _resolve_names(self, names: list[str], *, through_files: bool) -> tuple[str, bool]:
        """Resolve names one by one: the path, and whether it is a directory. `..` is relative to the target of a link.
        Names that do not exist are taken literally."""
        # The kernel resolves an existing parent directory in one call.
        parent = self._location("/".join(names[:-1])) if names and names[-1] != ".." else None
        real, pending = ([], names[::-1]) if parent is None else (_split(parent), names[-1:])
        missing: list[str] = []
        links, mode = 0, 1
        while pending:
            name = pending.pop()
            if name == "..":
                if not (missing or real):
                    raise PathEscapesRoot("path resolves outside root boundary")
                (missing or real).pop()
                continue
            mode, link = (0, "") if missing else self._entry("/".join([*real, name]))
            if stat.S_ISDIR(mode):
                real.append(name)
            elif stat.S_ISLNK(mode):
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if link.startswith("/"):
                    real.clear()
                pending += self._target(link)[::-1]
            elif mode and pending and not through_files:
                raise ValidationError("the path leads through a file as if it were a directory", hint=_HINT)
            elif mode and not stat.S_ISREG(mode) and not through_files:
                raise ValidationError("the path is not a regular file, but a pipe, a socket or a device", hint=_HINT)
            else:
                missing.append(name)
        found = "/".join(real + missing)
        if self._cached and not mode:
            self._absent.add(found)
        return found, not missing

    def _locate(self, path: str) -> str | None:
        """The location of a directory; None if there is none at the path."""
        with suppress(*_NOT_THERE), closed_after(self._root.open(path, os.O_PATH | os.O_DIRECTORY)) as fd:
            return self._root.locate(fd, last_known=True)
        return None

    def _entry(self, path: str) -> tuple[int, str]:
        """The mode of the entry at a path without links in its directories, 0 if it is missing, and a link's target."""
        with suppress(*_NOT_THERE), closed_after(self._root.open(path, os.O_PATH | os.O_NOFOLLOW)) as fd:
            mode = os.fstat(fd).st_mode
            return mode, os.readlink("", dir_fd=fd) if stat.S_ISLNK(mode) else ""
        return 0, ""

    def _target(self, link: str) -> list[str]:
        """The names in a link's target; of an absolute target those below the project."""
        names = _split(link)
        if not link.startswith("/"):
            return names
        for base in (_split(self._root.real_path), _split(os.path.abspath(self._named))):
            if names[: len(base)] == base:
                return names[len(base) :]
        raise PathEscapesRoot("path resolves outside root boundary", private={"resolved": ascii(link)[:255]})


def is_absolute(path: str) -> bool:
    return _ABSOLUTE.match(path) is not None or path[:5].lower() == FILE_SCHEME


def _names(path: str) -> list[str]:
    """The names in a path, which must be relative and storable."""
    if not path.strip():
        raise ValidationError("the path is empty", hint=_HINT)
    if has_unprintable(path):
        raise InvalidPath("the path has characters that no path of a project may have", hint=_HINT)
    if _ABSOLUTE.match(path):
        raise InvalidPath("the path is absolute", hint=_HINT, private={"attempted": path[:255]})
    names = _split(path)
    try:
        if "\\" in path:
            # Other systems separate names with a backslash: refuse a path that escapes with those too.
            normalise(path.replace("\\", "/"))
        # Checks the lengths only; `..` is resolved by the file system.
        normalise(path.replace("..", "xx"))
    except FileError as error:
        raise _escapes(error) from None
    return names


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _escapes(error: FileError) -> InvalidPath:
    message = "the path leads out of the project, or no file can have it"
    return InvalidPath(message, hint=_HINT, private=dict(error.private))
