"""Named roots: what may be done in each, which paths exist for agents, and which directory a root is right now."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import NoReturn

from armarium.capabilities.sandbox.content import NotWritten
from armarium.capabilities.sandbox.errors import (
    AlreadyExists,
    NotFound,
    PathIgnored,
    PermissionDenied,
    ReadOnlyRoot,
    RootUnavailable,
    StorageFailure,
    ToolNotAllowed,
    UnknownRoot,
)
from armarium.foundation.errors import ConfigError, InvalidArgument
from armarium.foundation.files.confine import ConfinedRoot, normalise
from armarium.foundation.files.errors import (
    FileError,
    InvalidPath,
    InvalidPattern,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
)
from armarium.foundation.files.ignore import IgnoreRules
from armarium.foundation.files.names import escape_name
from armarium.foundation.files.staged_names import leads_through_staged
from armarium.foundation.files.traversal import EntryFailed
from armarium.foundation.refs import FileRef

_log = logging.getLogger(__name__)

WRITING_TOOLS = ("write_file", "remove_file", "patch_file", "create_folder", "remove_folder", "copy", "move")
TOOL_NAMES = (
    "list_folder", "read_file", "write_file", "remove_file", "patch_file", "create_folder", "remove_folder",
    "stat_file", "hash_file", "permissions_file", "copy", "move", "grep", "glob",
)  # fmt: skip
"""What an allow-list may name; `list_roots` is always served, and `read_files` goes with `read_file`."""

# Copying out of a read-only root leaves it as it is.
_CHANGES_ITS_ROOT = frozenset(WRITING_TOOLS) - {"copy"}
_REFUSED_BY_SYSTEM = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ETXTBSY}


class RootReplaced(Exception):
    """Another directory stands at the path of a root. Nothing was done yet: the root is to be opened again."""

    def __init__(self, root: Root) -> None:
        super().__init__(root.name)
        self.root = root


class Root:
    """One directory under a name."""

    def __init__(
        self,
        name: str,
        path: str,
        *,
        allowed_tools: Sequence[str],
        read_only: bool = False,
        ignore: Iterable[str] = (),
        confined: ConfinedRoot | None = None,
    ) -> None:
        self.name = name
        self.read_only = read_only
        self.allowed_tools = tuple(tool for tool in TOOL_NAMES if "*" in allowed_tools or tool in allowed_tools)
        patterns = tuple(ignore)
        try:
            self.ignore = IgnoreRules.from_lines(patterns) if patterns else None
        except InvalidPattern as error:
            raise ConfigError(f"root {name!r}: {error.message}", hint=error.hint) from error
        try:
            self.confined = confined or ConfinedRoot(os.path.expanduser(path))
        except OSError as error:
            raise ConfigError(
                f"root {name!r}: cannot open {path}: {error.strerror}",
                hint="every root must be an existing directory",
            ) from error
        # Links on the way are followed once, at the start. Later ones may be an agent's, where roots lie in each other.
        self._path = self.confined.real_path
        self._refused: tuple[int, int] | None = None
        """The directory that took the place of this one and cannot be opened."""
        self._missing = False

    def require_current(self) -> None:
        """Raise unless the open directory is still the one at the root's path."""
        try:
            status = os.stat(self._path)
        except OSError as error:
            raise self._unavailable(error) from error
        identity = (status.st_dev, status.st_ino)
        if identity == self._refused:
            raise self._not_granted()
        if identity != self.confined.identity:
            raise RootReplaced(self)
        if self._missing:
            self._missing = False
            _log.warning("the directory of a root is back", extra={"root": self.name})

    def _unavailable(self, error: OSError) -> RootUnavailable:
        if not self._missing:
            self._missing = True
            _log.warning("the directory of a root is gone", extra={"root": self.name, "reason": _reason(error)})
        return RootUnavailable(
            f"the directory of root {self.name} is not there ({_reason(error)})",
            hint="it is served again as soon as it is back",
        )

    def _not_granted(self) -> RootUnavailable:
        return RootUnavailable(
            f"the directory of root {self.name} was replaced, and this process may not open the new one",
            hint="restart the server",
        )

    def reopen(self) -> bool:
        """Take the directory that is now at the root's path; False if it is the open one. Blocks."""
        try:
            fresh = self.confined.reopened()
        except OSError as error:
            raise self._unavailable(error) from error
        if fresh.identity == self.confined.identity:
            return False
        # Calls that still work in the old directory keep it open.
        self.confined = fresh
        self._missing, self._refused = False, None
        return True

    def confirm_replaced(self) -> None:
        """Log that another directory is served from now on; raise if this thread may not read it."""
        try:
            os.close(self.confined.open_directory(""))
        except PermissionError:
            self._refused = self.confined.identity
            _log.warning(
                "the directory of a root was replaced by one that may not be opened", extra={"root": self.name}
            )
            raise self._not_granted() from None
        _log.warning("the directory of a root was replaced; the new one is served", extra={"root": self.name})

    def effective_tools(self) -> list[str]:
        """What can be done here after all is considered."""
        return [tool for tool in self.allowed_tools if not (self.read_only and tool in _CHANGES_ITS_ROOT)]

    def allow(self, tool: str, path: str, *, writing: bool) -> None:
        """Raise unless the tool may be used here."""
        error: FileError
        if tool not in self.allowed_tools:
            error = ToolNotAllowed(f"tool {tool} not allowed on root {self.name}")
        elif writing and self.read_only:
            error = ReadOnlyRoot(f"root {self.name} is read-only; tool {tool} would change it")
        else:
            return
        error.details = {"root": self.name, "path": path[:4096], "tool": tool}
        raise error

    def require_visible(self, path: str, *, is_directory: bool = False) -> None:
        """Raise if the ignore list hides the path. Asked for the path as given and for where it really leads."""
        if self.ignore is not None and path and self.ignore.hides(path, is_directory):
            # The caller is told of the path it named, not of the one a link led to.
            raise PathIgnored("path is hidden by the ignore list", private={"resolved": escape_name(path)})

    def whereabouts(self, path: str) -> str:
        """Where the path really is, or would be: links are followed as far as the way exists."""
        existing, missing = path, list[str]()
        while existing:
            try:
                with self.confined.opened(existing, os.O_PATH) as fd:
                    return "/".join(filter(None, [self.confined.locate(fd, last_known=True), *reversed(missing)]))
            except FileNotFoundError:
                existing, _, name = existing.rpartition("/")
                missing.append(name)
        return path

    def ref(self, path: str) -> FileRef:
        """The path as other capabilities name it."""
        return FileRef("root", self.name, path)


class Roots:
    """All roots of the server."""

    def __init__(self, roots: Iterable[Root]) -> None:
        self._by_name = {root.name: root for root in roots}

    def __iter__(self) -> Generator[Root]:
        yield from self._by_name.values()

    def enter(self, name: str, tool: str, path: str, *, writing: bool = False) -> Root:
        """The root of that name, if the tool may be used there."""
        root = self._by_name.get(name)
        if root is None:
            known = ", ".join(self._by_name)
            raise UnknownRoot(f"unknown root: {name[:100]}", hint=f"known roots: {known}; call list_roots for more")
        root.allow(tool, path, writing=writing)
        return root

    def granted(self) -> tuple[list[ConfinedRoot], list[ConfinedRoot]]:
        """What worker threads may write, and what they may only read."""
        return (
            [root.confined for root in self if not root.read_only],
            [root.confined for root in self if root.read_only],
        )

    def close(self) -> None:
        """Let go of the directories."""
        for root in self._by_name.values():
            root.confined.close()


_Failure = (FileError, InvalidArgument, EntryFailed, NotWritten, OSError)


@contextmanager
def about(root: Root, path: str, *, what: str = "file") -> Generator[str]:
    """Normalise the path, and let every failure inside name the root, the path and the reason."""
    try:
        root.require_current()
        normal = normalise(path)
        if leads_through_staged(normal):
            raise PathIgnored("path is reserved for changes in progress")
        root.require_visible(normal)
        yield normal
    except _Failure as error:
        _raise_located(error, root, path, what)


@contextmanager
def locating(root: Root, path: str, *, what: str = "file") -> Generator[None]:
    """Let every failure inside name the root, the path and the reason, unless it names another place already."""
    try:
        yield
    except _Failure as error:
        _raise_located(error, root, path, what)


def _raise_located(error: Exception, root: Root, path: str, what: str) -> NoReturn:
    match error:
        case FileError() | InvalidArgument():
            if "root" not in error.details:
                _place(error, root, path)
            raise error
        case EntryFailed():
            raise _translated(error.error, root, escape_name(error.path), what) from error.error
        case NotWritten():
            raise _translated(error.error, root, path, what) from error.error
        case OSError():
            raise _translated(error, root, path, what) from error
        case _:
            raise error


def _place(error: FileError | InvalidArgument, root: Root, path: str) -> None:
    error.details = {"root": root.name, "path": path[:4096]} | error.details
    if path not in error.message and not isinstance(error, (InvalidPath, RootUnavailable)):
        error.message += f": {path[:4096]}"
    if not isinstance(error, RootUnavailable):
        error.message += f" (root: {root.name})"
    if (resolved := error.private.get("resolved")) is not None:
        error.private["resolved"] = os.path.normpath(os.path.join(root.confined.real_path, resolved))


def _translated(error: OSError, root: Root, path: str, what: str) -> FileError:
    """The sandbox's word for what the operating system said; its own text may hold host paths."""
    shown = f"{path} (root: {root.name})"
    translated: FileError
    match error.errno:
        case errno.ENOENT:
            translated = NotFound(f"{what} not found: {shown}", hint="list_folder or glob shows what is there")
        case errno.ENOTDIR:
            translated = NotADirectory(f"not a directory: {shown}")
        case errno.ENXIO | errno.ENODEV:
            translated = NotARegularFile(f"not a regular file: {shown}")
        case errno.EISDIR:
            translated = IsADirectory(f"is a directory: {shown}")
        case errno.EEXIST | errno.ENOTEMPTY:
            translated = AlreadyExists(f"already exists: {shown}")
        case errno.ENAMETOOLONG | errno.EILSEQ | errno.EINVAL:
            translated = InvalidPath(f"the file system does not take this path: {shown}")
        case errno.ELOOP:
            translated = NotFound(f"links lead in a circle: {shown}")
        case code if code in _REFUSED_BY_SYSTEM:
            translated = PermissionDenied(f"{_reason(error)}: {shown}")
        case _:
            translated = StorageFailure(f"{_reason(error)}: {shown}")
    translated.details = {"root": root.name, "path": path}
    return translated


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else "input/output error"
