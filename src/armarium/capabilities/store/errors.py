"""What can go wrong in the store, each with the stable code its contract gives it."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError, ConfigError


class StoreError(ArmariumError):
    """The store could not do what was asked of it."""


class NotFound(StoreError):
    """No file and no directory has this path."""

    code, http_status = "NOT_FOUND", 404


class AlreadyExists(StoreError):
    """Something is there already, and may not be replaced."""

    code, http_status = "ALREADY_EXISTS", 409


class IsDirectory(StoreError):
    """The path is a directory, where a file is wanted."""

    code, http_status = "IS_DIRECTORY", 409


class NotDirectory(StoreError):
    """A part of the path is a file, where a directory is wanted."""

    code, http_status = "NOT_DIRECTORY", 409


class InvalidPath(StoreError):
    """The project or the path is not written as it must be."""

    code, http_status = "INVALID_PATH", 400


class InvalidOffset(StoreError):
    """An offset, a length or another number lies outside what is allowed."""

    code, http_status = "INVALID_OFFSET", 400


class InvalidQuery(StoreError):
    """The query, or another argument, is not one that can be answered."""

    code, http_status = "INVALID_QUERY", 400


class NotEmpty(StoreError):
    """The directory has files in it."""

    code, http_status = "NOT_EMPTY", 409


class PermissionDenied(StoreError):
    """The operator does not allow it."""

    code, security = "PERMISSION_DENIED", True


class PayloadTooLarge(StoreError):
    """The content, or the file it would make, is larger than a file may be."""

    code, http_status = "PAYLOAD_TOO_LARGE", 413


class QuotaExceeded(StoreError):
    """The project would hold more than it may."""

    code, http_status = "QUOTA_EXCEEDED", 413


class RateLimited(StoreError):
    """The caller asks too often; a moment later it works."""

    code, retryable, http_status = "RATE_LIMITED", True, 429


class ResourceBusy(StoreError):
    """Others are changing the same project, or the database does not answer; a moment later it works."""

    code, retryable = "RESOURCE_BUSY", True


class SearchBackendError(StoreError):
    """A query can be looked for neither by meaning nor by words."""

    code, retryable = "SEARCH_BACKEND_ERROR", True


class SearchDisabled(SearchBackendError):
    """The operator has switched searching off. Asking again does not help."""

    retryable = False


class Conflict(StoreError):
    """The file is not in the version the caller expected."""

    code, http_status = "CONFLICT", 409


class DatabaseUnavailable(ConfigError):
    """The database cannot be started, reached or used as it is."""

    code = "DATABASE_UNAVAILABLE"
