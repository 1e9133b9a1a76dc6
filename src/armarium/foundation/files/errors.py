"""Errors about paths and patterns."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class FileError(ArmariumError):
    """Base class of errors about files."""


class PathEscapesRoot(FileError):
    """The path, or a link on it, leads outside the root."""

    code, security = "PATH_ESCAPES_ROOT", True


class InvalidPath(FileError):
    """No file can have this path: it has a NUL byte, a name that is too long, or invalid characters."""

    code, security = "INVALID_PATH", True


class NotADirectory(FileError):
    """A directory was expected."""

    code = "NOT_A_DIRECTORY"


class IsADirectory(FileError):
    """A file was expected."""

    code = "IS_A_DIRECTORY"


class NotARegularFile(FileError):
    """The entry is a FIFO, socket or device, which cannot be read."""

    code = "NOT_A_REGULAR_FILE"


class InvalidPattern(FileError):
    """The regular expression or glob does not parse."""

    code = "INVALID_PATTERN"
