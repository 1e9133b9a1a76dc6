"""Errors about paths and patterns."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class FileError(ArmariumError):
    """Base class of errors about files."""


class PathEscapesRoot(FileError, code="PATH_ESCAPES_ROOT", security=True):
    """The path, or a link on it, leads outside the root."""


class InvalidPath(FileError, code="INVALID_PATH", security=True, http_status=400):
    """No file can have this path: it has a NUL byte, a name that is too long, or invalid characters."""


class NotADirectory(FileError, code="NOT_A_DIRECTORY", http_status=409):
    """A directory was expected."""


class IsADirectory(FileError, code="IS_A_DIRECTORY", http_status=409):
    """A file was expected."""


class NotARegularFile(FileError, code="NOT_A_REGULAR_FILE", http_status=409):
    """The entry is a FIFO, socket or device, which cannot be read."""


class InvalidPattern(FileError, code="INVALID_PATTERN", http_status=400):
    """The regular expression or glob does not parse."""
