"""What can be wrong with a path or a pattern, whoever asks."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError


class FileError(ArmariumError):
    """A file could not be reached as asked."""


class PathEscapesRoot(FileError):
    """The path leads, or a link on it leads, outside the root."""

    code, security = "PATH_ESCAPES_ROOT", True


class InvalidPath(FileError):
    """No file can have this path: a NUL byte, a name too long, characters no file system stores."""

    code, security = "INVALID_PATH", True


class NotADirectory(FileError):
    """A directory was expected."""

    code = "NOT_A_DIRECTORY"


class IsADirectory(FileError):
    """A file was expected."""

    code = "IS_A_DIRECTORY"


class NotARegularFile(FileError):
    """A FIFO, socket or device, which is never opened for its content."""

    code = "NOT_A_REGULAR_FILE"


class InvalidPattern(FileError):
    """The regular expression or glob does not parse."""

    code = "INVALID_PATTERN"
