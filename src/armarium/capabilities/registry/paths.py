"""Paths of the project as the registry keeps them: relative, without detours, where the file really is."""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from urllib.parse import unquote, urlsplit

from armarium.capabilities.registry.errors import InvalidPath, ValidationError
from armarium.capabilities.registry.settings import STATE_DIRECTORY
from armarium.foundation.files.confine import ConfinedRoot, normalise
from armarium.foundation.files.errors import FileError

_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z]:([/\\]|$)|~[\w.-]*([/\\]|$)")
"""From the root, from a drive, from a share, or from somebody's home."""
_FILE_SCHEME = "file:"
_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR})
_LINE_ENDS = ("\u2028", "\u2029")
_HINT = "give the path relative to the project's directory, like src/app.py"


class ProjectPaths:
    """Brings paths into the one form the registry knows, and refuses those that lead out of the project."""

    def __init__(self, root: ConfinedRoot, named: str) -> None:
        """`named` is the project as the settings name it, perhaps through a link."""
        self._root = root
        self._bases = tuple(base.rstrip("/") + "/" for base in dict.fromkeys((root.real_path, named)))

    def canonical(self, path: str) -> str:
        """Where the file is, or would be, relative to the project; links are followed as far as they exist."""
        found = self._resolved(_cleaned(path))
        if found is None:
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
        cleaned = _cleaned(relative.rstrip("/") or relative, may_be_root=True)
        return self._resolved(cleaned, directories=True) or ""

    def _resolved(self, path: str, *, directories: bool = False) -> str | None:
        """The real path of what exists and the given one of what does not; None for a directory."""
        existing, missing = path, ""
        while existing:
            try:
                fd = self._root.open(existing, os.O_PATH)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise _unreachable(error) from None
                existing, _, name = existing.rpartition("/")
                missing = f"/{name}{missing}"
                continue
            except FileError as error:
                raise _escapes(error) from None
            try:
                is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
                if not directories and is_directory and not missing:
                    return None
                if not directories and missing and not is_directory:
                    raise ValidationError("the path leads through a file as if it were a directory", hint=_HINT)
                real = self._root.locate(fd, last_known=True)
            except FileError as error:
                raise _escapes(error) from None
            finally:
                os.close(fd)
            if not _is_storable(real):
                raise InvalidPath("the path leads to a name that is not text", hint="rename the file")
            return f"{real}{missing}".lstrip("/")
        return missing[1:]


def is_absolute(path: str) -> bool:
    """Whether a path, or the address of a file, begins somewhere else than where it is written."""
    return _ABSOLUTE.match(path) is not None or path[:5].lower() == _FILE_SCHEME


def _cleaned(path: str, *, may_be_root: bool = False) -> str:
    """The path without detours, by its characters alone."""
    if not path:
        raise ValidationError("the path is empty", hint=_HINT)
    if not _is_storable(path):
        raise InvalidPath("the path has characters that no path of a project may have", hint=_HINT)
    if _ABSOLUTE.match(path):
        raise InvalidPath("the path is absolute", hint=_HINT, private={"attempted": path[:255]})
    try:
        if "\\" in path:
            # Elsewhere a backslash divides names; a way out written like that is one all the same.
            normalise(path.replace("\\", "/"))
        cleaned = normalise(path)
    except FileError as error:
        raise _escapes(error) from None
    if path.endswith("/") or (not cleaned and not may_be_root):
        raise ValidationError("the path is a directory; files are registered", hint=_HINT)
    return cleaned


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
