"""Errors of the store, with the codes of its contract."""

from __future__ import annotations

from armarium.foundation.errors import ArmariumError, ConfigError


class StoreError(ArmariumError):
    """Base class of the errors of the store."""


class NotFound(StoreError):
    """No file and no directory has this path."""

    code, http_status = "NOT_FOUND", 404


class AlreadyExists(StoreError):
    """The path already exists and may not be replaced."""

    code, http_status = "ALREADY_EXISTS", 409


class IsDirectory(StoreError):
    """The path is a directory, where a file is required."""

    code, http_status = "IS_DIRECTORY", 409


class NotDirectory(StoreError):
    """A part of the path is a file, where a directory is required."""

    code, http_status = "NOT_DIRECTORY", 409


class InvalidPath(StoreError):
    """The project or the path is invalid."""

    code, http_status = "INVALID_PATH", 400


class InvalidOffset(StoreError):
    """An offset, a length or another number is out of range."""

    code, http_status = "INVALID_OFFSET", 400


class InvalidQuery(StoreError):
    """The query or another argument is invalid."""

    code, http_status = "INVALID_QUERY", 400


class NotEmpty(StoreError):
    """The directory contains files."""

    code, http_status = "NOT_EMPTY", 409


class PermissionDenied(StoreError):
    """The operator does not allow it."""

    code, security = "PERMISSION_DENIED", True


class PayloadTooLarge(StoreError):
    """The content, or the resulting file, exceeds the size limit."""

    code, http_status = "PAYLOAD_TOO_LARGE", 413


class QuotaExceeded(StoreError):
    """The project would exceed its size limit."""

    code, http_status = "QUOTA_EXCEEDED", 413


class RateLimited(StoreError):
    """The caller exceeds the rate limit. Retry later."""

    code, retryable, http_status = "RATE_LIMITED", True, 429


class ResourceBusy(StoreError):
    """The project is locked by other changes, or the database does not answer. Retry later."""

    code, retryable = "RESOURCE_BUSY", True


class SearchBackendError(StoreError):
    """Neither semantic nor lexical search is possible."""

    code, retryable = "SEARCH_BACKEND_ERROR", True


class SearchDisabled(SearchBackendError):
    """The operator has disabled search. A retry does not help."""

    retryable = False


class Conflict(StoreError):
    """The file does not have the version that the caller expected."""

    code, http_status = "CONFLICT", 409


class DatabaseUnavailable(ConfigError):
    """The database cannot be started, reached or used."""

    code = "DATABASE_UNAVAILABLE"
