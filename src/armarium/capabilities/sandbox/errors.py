"""Errors of the sandbox, each with a stable code."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from armarium.foundation.files.errors import FileError


class UnknownRoot(FileError, code="UNKNOWN_ROOT", http_status=404):
    """No root of that name is configured."""


class ToolNotAllowed(FileError, code="TOOL_NOT_ALLOWED", security=True):
    """The root's allow-list does not name the tool."""


class ReadOnlyRoot(FileError, code="READ_ONLY_ROOT", security=True):
    """The root is served read-only."""


class PathIgnored(FileError, code="PATH_IGNORED", security=True):
    """The root's ignore list hides the path."""


class WriteDenied(FileError, code="WRITE_DENIED", security=True):
    """The root's `deny_write` names the path: programs execute it, or it configures them."""


class CredentialsHidden(FileError, code="CREDENTIALS_HIDDEN", security=True):
    """The name is that of a file with credentials. It is listed, but its content is hidden."""


class NotFound(FileError, code="NOT_FOUND", http_status=404):
    """Nothing exists at the path."""


class AlreadyExists(FileError, code="ALREADY_EXISTS", http_status=409):
    """Something already exists at the path."""


class CannotRemoveRoot(FileError, code="CANNOT_REMOVE_ROOT", http_status=409):
    """The root directory itself cannot be removed."""


class FileTooLarge(FileError, code="FILE_TOO_LARGE", http_status=413):
    """The file exceeds the limit for a full read."""


class PatchFailed(FileError, code="PATCH_FAILED", http_status=409):
    """The diff does not apply; nothing was written."""


class Conflict(FileError, code="CONFLICT", http_status=409):
    """The file is not in the state the caller last saw."""


class PermissionDenied(FileError, code="PERMISSION_DENIED", http_status=403):
    """The operating system denies access."""


class StorageFailure(FileError, code="STORAGE_FAILURE", retryable=True):
    """The disk is full or failing."""


class RootUnavailable(FileError, code="ROOT_UNAVAILABLE", retryable=True):
    """The directory of a root is missing, or was replaced by one that this process may not open."""


class ResourceBusy(FileError, code="RESOURCE_BUSY", retryable=True):
    """Another process holds the lock of the directory. Nothing was changed."""


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
