"""Named roots: what may be done in each, and which paths exist for agents."""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from armarium.capabilities.sandbox.errors import (
    AlreadyExists,
    NotFound,
    PathIgnored,
    PermissionDenied,
    ReadOnlyRoot,
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
from armarium.foundation.refs import FileRef

WRITING_TOOLS = ("write_file", "remove_file", "patch_file", "create_folder", "remove_folder", "copy", "move")
TOOL_NAMES = (
    "list_folder", "read_file", "write_file", "remove_file", "patch_file", "create_folder", "remove_folder",
    "stat_file", "hash_file", "permissions_file", "copy", "move", "grep", "glob",
)  # fmt: skip
"""What an allow-list may name; `list_roots` is always served, and `read_files` goes with `read_file`."""

# Copying out of a read-only root leaves it as it is.
_CHANGES_ITS_ROOT = frozenset(WRITING_TOOLS) - {"copy"}
_REFUSED_BY_SYSTEM = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ETXTBSY}


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
            shown = os.fsencode(path).decode(errors="backslashreplace")
            # The caller is told of the path it named, not of the one a link led to.
            raise PathIgnored("path is hidden by the ignore list", private={"resolved": shown})

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

    def close(self) -> None:
        """Let go of the directories."""
        for root in self._by_name.values():
            root.confined.close()


@contextmanager
def about(root: Root, path: str, *, what: str = "file") -> Generator[str]:
    """Normalise the path, and let every failure inside name the root, the path and the reason."""
    try:
        normal = normalise(path)
        root.require_visible(normal)
        yield normal
    except (FileError, InvalidArgument) as error:
        error.details = {"root": root.name, "path": path[:4096]} | error.details
        if path not in error.message and not isinstance(error, InvalidPath):
            error.message += f": {path[:4096]}"
        error.message += f" (root: {root.name})"
        if (resolved := error.private.get("resolved")) is not None:
            error.private["resolved"] = os.path.normpath(os.path.join(root.confined.real_path, resolved))
        raise
    except OSError as error:
        raise _translated(error, root, path, what) from error


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
