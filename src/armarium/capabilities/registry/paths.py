"""Paths of the project as the registry keeps them: relative, without detours, where the file really is."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from enum import Enum
from urllib.parse import unquote, urlsplit

from armarium.capabilities.registry.errors import InvalidPath, ValidationError
from armarium.capabilities.registry.settings import STATE_DIRECTORY
from armarium.foundation.files.beneath import MAX_LINKS
from armarium.foundation.files.confine import MAX_PATH_BYTES, ConfinedRoot, normalise
from armarium.foundation.files.errors import FileError, PathEscapesRoot

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:([/\\]|$)|~[\w.-]*([/\\]|$)")
"""From the root, from a drive, from a share, or from somebody's home."""
_FILE_SCHEME = "file:"
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})
_LINE_ENDS = ("\u2028", "\u2029")
_HINT = "give the path relative to the project's directory, like src/app.py"


class _Kind(Enum):
    DIRECTORY = "directory"
    FILE = "file"


_DIRECTORY, _FILE = _Kind.DIRECTORY, _Kind.FILE


class ProjectPaths:
    """Brings paths into the one form the registry knows, and refuses those that lead out of the project."""

    def __init__(self, root: ConfinedRoot, named: str) -> None:
        """`named` is the project as the settings name it, perhaps through a link."""
        self._root, self._named = root, named
        self._bases = tuple(base.rstrip("/") + "/" for base in dict.fromkeys((root.real_path, named)))
        self._known: dict[str, tuple[str, bool] | None] | None = None
        """Where directories are, while that is remembered."""

    def with_cache(self) -> ProjectPaths:
        """The same for many paths at one moment: what stands in one directory asks for it once."""
        paths = ProjectPaths(self._root, self._named)
        paths._known = {}
        return paths

    def canonical(self, path: str) -> str:
        """Where the file is, or would be, relative to the project; links are followed as the file system does it, those
        to what is not there yet as well."""
        found = self._resolved(_names(path))
        if found is None or path.endswith("/"):
            raise ValidationError("the path is a directory; files are registered", hint=_HINT)
        if found.partition("/")[0] == STATE_DIRECTORY:
            raise ValidationError(f"the registry's own files in {STATE_DIRECTORY} are not registered", hint=_HINT)
        return found

    def exists(self, canonical: str) -> bool:
        """Whether anything is there now."""
        try:
            os.close(self._root.open(canonical, os.O_PATH))
        except (OSError, FileError):
            return False
        return True

    def relative(self, path: str) -> str:
        """A path as reports have it: a `file:` address, or absolute and inside the project, made relative."""
        if path[:5].lower() == _FILE_SCHEME:
            try:
                path = unquote(urlsplit(path).path, errors="surrogateescape")
            except ValueError:
                raise InvalidPath("the address of the file is not one", hint=_HINT) from None
        for base in self._bases:
            if path.startswith(base):
                return path[len(base) :]
            if path + "/" == base:
                return ""
        return path

    def covered(self, path: str) -> str:
        """A file or a directory that was looked at; "" is the project."""
        relative = self.relative(path)
        if relative in ("", ".", "./"):
            return ""
        return self._resolved(_names(relative), directories=True) or ""

    def _resolved(self, names: list[str], *, directories: bool = False) -> str | None:
        """The real path of what exists and the given one of what does not; None for a directory."""
        try:
            found, is_directory = self._walked(names, through_files=directories)
        except OSError as error:
            raise _unreachable(error) from None
        except FileError as error:
            raise _escapes(error) from None
        if not _is_storable(found) or len(os.fsencode(found)) > MAX_PATH_BYTES:
            raise InvalidPath("the path leads to a name that is not text, or is too long", hint="rename the file")
        return None if is_directory and not directories else found

    def _walked(self, names: list[str], *, through_files: bool) -> tuple[str, bool]:
        """Where the names lead, one by one, and whether to a directory: `..` leads back from where links led to, and
        what is not there is taken by its name."""
        real, pending = self._begun(names)
        missing: list[str] = []
        links = 0
        while pending:
            name = pending.pop()
            if name == "..":
                if not (missing or real):
                    raise PathEscapesRoot("path resolves outside root boundary")
                (missing or real).pop()
                continue
            entry = None if missing else self._looked_at("/".join([*real, name]))
            if entry is _DIRECTORY:
                real.append(name)
            elif isinstance(entry, str):
                links += 1
                if links > MAX_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if entry.startswith("/"):
                    real.clear()
                pending += self._target(entry)[::-1]
            elif entry is _FILE and pending and not through_files:
                raise ValidationError("the path leads through a file as if it were a directory", hint=_HINT)
            else:
                missing.append(name)
        return "/".join(real + missing), not missing

    def _begun(self, names: list[str]) -> tuple[list[str], list[str]]:
        """Where to begin, and the names to follow from there, the next one last. Most directories are there, and the
        kernel finds them at once."""
        if names and names[-1] != "..":
            parent = self._directory("/".join(names[:-1]))
            if parent is not None and parent[1]:
                return _split(parent[0]), names[-1:]
        return [], names[::-1]

    def _directory(self, path: str) -> tuple[str, bool] | None:
        if self._known is None:
            return self._located(path)
        if path not in self._known:
            self._known[path] = self._located(path)
        return self._known[path]

    def _located(self, path: str) -> tuple[str, bool] | None:
        """Where something is, and whether it is a directory; None for what is not there."""
        try:
            fd = self._root.open(path, os.O_PATH)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        try:
            return self._root.locate(fd, last_known=True), stat.S_ISDIR(os.fstat(fd).st_mode)
        finally:
            os.close(fd)

    def _looked_at(self, path: str) -> str | _Kind | None:
        """What stands at a path whose directories are no links: of a link its text, None for nothing."""
        try:
            fd = self._root.open(path, os.O_PATH | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISLNK(mode):
                return os.readlink("", dir_fd=fd)
            return _DIRECTORY if stat.S_ISDIR(mode) else _FILE
        finally:
            os.close(fd)

    def _target(self, link: str) -> list[str]:
        """The names that a link leads through; of an absolute one those below the project."""
        names = _split(link)
        if not link.startswith("/"):
            return names
        for base in (_split(self._root.real_path), _split(os.path.abspath(self._named))):
            if names[: len(base)] == base:
                return names[len(base) :]
        raise PathEscapesRoot("path resolves outside root boundary", private={"resolved": ascii(link)[:255]})


def is_absolute(path: str) -> bool:
    """Whether a path, or the address of a file, begins somewhere else than where it is written."""
    return _ABSOLUTE.match(path) is not None or path[:5].lower() == _FILE_SCHEME


def _names(path: str) -> list[str]:
    """The names that a path leads through, if its characters are those of a path inside the project."""
    if not path:
        raise ValidationError("the path is empty", hint=_HINT)
    if not _is_storable(path):
        raise InvalidPath("the path has characters that no path of a project may have", hint=_HINT)
    if _ABSOLUTE.match(path):
        raise InvalidPath("the path is absolute", hint=_HINT, private={"attempted": path[:255]})
    names = _split(path)
    try:
        if "\\" in path:
            # Elsewhere a backslash divides names; a way out written like that is one all the same.
            normalise(path.replace("\\", "/"))
        # Whether names and path are short enough; where `..` leads is for the file system to say.
        normalise(path.replace("..", "xx"))
    except FileError as error:
        raise _escapes(error) from None
    return names


def _split(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _is_storable(path: str) -> bool:
    """Whether it can be stored and shown: no control characters, no halves of characters."""
    if path.isprintable():
        return True
    return not any(unicodedata.category(char) in ("Cc", "Cs") or char in _LINE_ENDS for char in path)


def _escapes(error: FileError) -> InvalidPath:
    return InvalidPath(
        "the path leads out of the project, or no file can have it", hint=_HINT, private=dict(error.private)
    )


def _unreachable(error: OSError) -> InvalidPath:
    reason = "its links lead in a circle" if error.errno == errno.ELOOP else "it may not be looked at"
    return InvalidPath(f"the path cannot be followed: {reason}", hint=_HINT)
