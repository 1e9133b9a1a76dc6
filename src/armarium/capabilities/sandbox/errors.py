"""Errors of the sandbox, each with a stable code."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from armarium.foundation.files.errors import FileError


class UnknownRoot(FileError):
    """No root of that name is configured."""

    code = "UNKNOWN_ROOT"


class ToolNotAllowed(FileError):
    """The root's allow-list does not name the tool."""

    code, security = "TOOL_NOT_ALLOWED", True


class ReadOnlyRoot(FileError):
    """The root is served read-only."""

    code, security = "READ_ONLY_ROOT", True


class PathIgnored(FileError):
    """The root's ignore list hides the path."""

    code, security = "PATH_IGNORED", True


class NotFound(FileError):
    """Nothing exists at the path."""

    code = "NOT_FOUND"


class AlreadyExists(FileError):
    """Something already exists at the path."""

    code = "ALREADY_EXISTS"


class CannotRemoveRoot(FileError):
    """The root directory itself cannot be removed."""

    code = "CANNOT_REMOVE_ROOT"


class FileTooLarge(FileError):
    """The file exceeds the limit for a full read."""

    code = "FILE_TOO_LARGE"


class PatchFailed(FileError):
    """The diff does not apply; nothing was written."""

    code = "PATCH_FAILED"


class Conflict(FileError):
    """The file is not in the state the caller last saw."""

    code = "CONFLICT"


class PermissionDenied(FileError):
    """The operating system denies access."""

    code = "PERMISSION_DENIED"


class StorageFailure(FileError):
    """The disk is full or failing."""

    code, retryable = "STORAGE_FAILURE", True


class RootUnavailable(FileError):
    """The directory of a root is missing, or was replaced by one that this process may not open."""

    code, retryable = "ROOT_UNAVAILABLE", True


class ResourceBusy(FileError):
    """Another process holds the lock of the directory. Nothing was changed."""

    code, retryable = "RESOURCE_BUSY", True


class DestinationFailed(Exception):
    """Internal: writing the destination of a copy failed. A plain `OSError` is about the source."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def destination_errors() -> Generator[None]:
    """Raise an `OSError` of the block as `DestinationFailed`."""
    try:
        yield
    except OSError as error:
        raise DestinationFailed(error) from error


def os_error_reason(error: OSError) -> str:
    """The operating system's text for the error, without any path."""
    return os.strerror(error.errno).lower() if error.errno else "input/output error"
