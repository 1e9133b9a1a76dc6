"""What can go wrong in the store, each with the stable code its contract gives it."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError, ConfigError


class StoreError(ArmariumError):
    """The store could not do what was asked of it."""


class NotFound(StoreError):
    """No file and no directory has this path."""

    code = "NOT_FOUND"


class AlreadyExists(StoreError):
    """Something is there already, and may not be replaced."""

    code = "ALREADY_EXISTS"


class IsDirectory(StoreError):
    """The path is a directory, where a file is wanted."""

    code = "IS_DIRECTORY"


class NotDirectory(StoreError):
    """A part of the path is a file, where a directory is wanted."""

    code = "NOT_DIRECTORY"


class InvalidPath(StoreError):
    """The project or the path is not written as it must be."""

    code = "INVALID_PATH"


class InvalidOffset(StoreError):
    """An offset, a length or another number lies outside what is allowed."""

    code = "INVALID_OFFSET"


class InvalidQuery(StoreError):
    """The query, or another argument, is not one that can be answered."""

    code = "INVALID_QUERY"


class NotEmpty(StoreError):
    """The directory has files in it."""

    code = "NOT_EMPTY"


class PermissionDenied(StoreError):
    """The operator does not allow it."""

    code, security = "PERMISSION_DENIED", True


class PayloadTooLarge(StoreError):
    """The content, or the file it would make, is larger than a file may be."""

    code = "PAYLOAD_TOO_LARGE"


class QuotaExceeded(StoreError):
    """The project would hold more than it may."""

    code = "QUOTA_EXCEEDED"


class RateLimited(StoreError):
    """The caller asks too often; a moment later it works."""

    code, retryable = "RATE_LIMITED", True


class ResourceBusy(StoreError):
    """Others are changing the same project, or the database does not answer; a moment later it works."""

    code, retryable = "RESOURCE_BUSY", True


class SearchBackendError(StoreError):
    """A query can be looked for neither by meaning nor by words."""

    code, retryable = "SEARCH_BACKEND_ERROR", True


class Conflict(StoreError):
    """The file is not in the version the caller expected."""

    code = "CONFLICT"


class DatabaseUnavailable(ConfigError):
    """The database cannot be started, reached or used as it is."""

    code = "DATABASE_UNAVAILABLE"
